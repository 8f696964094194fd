#include "numbers/scale_type.h"

#include <cstring>

#include "numbers/data_type.h"
#include "numbers/minifloat.h"

namespace gemmtune {
namespace {

template <typename Word>
Word word_at(const void* base, std::int64_t index) {
  Word word;
  std::memcpy(&word, static_cast<const char*>(base) + index * std::int64_t{sizeof(Word)}, sizeof(Word));
  return word;
}

}  // namespace

std::int64_t bytes_of(ScaleType type) {
  switch (type) {
    case ScaleType::none:
      return 0;
    case ScaleType::f32:
      return 4;
    case ScaleType::e8m0:
    case ScaleType::e4m3:
      return 1;
    case ScaleType::bf16:
    case ScaleType::f16:
      return 2;
  }
  return 0;
}

double scale_value(ScaleType type, const void* scales, std::int64_t index) {
  float value = 1;
  switch (type) {
    case ScaleType::none:
      break;
    case ScaleType::f32:
      value = word_at<float>(scales, index);
      break;
    case ScaleType::e8m0:
      value = e8m0_to_f32(word_at<std::uint8_t>(scales, index));
      break;
    case ScaleType::e4m3:
      value = f8_e4m3fn_to_f32(word_at<std::uint8_t>(scales, index));
      break;
    case ScaleType::bf16:
      value = traits(DataType::bf16).to_f32(word_at<std::uint16_t>(scales, index));
      break;
    case ScaleType::f16:
      value = traits(DataType::f16).to_f32(word_at<std::uint16_t>(scales, index));
      break;
  }
  return static_cast<double>(value);
}

}  // namespace gemmtune
