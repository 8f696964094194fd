#include "speed/reading.h"

#include <cstdint>

namespace gemmtune::speed {
namespace {

constexpr std::size_t line_bytes = 64;
typedef std::uint64_t Line __attribute__((vector_size(line_bytes)));

/// Four lines a step, so that four sums hide the latency of their additions.
void read_lines(const char* from, std::size_t lines, std::size_t ahead) {
  Line sums[4] = {};
  for (std::size_t line = 0; line + 4 <= lines; line += 4, from += 4 * line_bytes) {
    for (std::size_t i = 0; i < 4; ++i) {
      if (ahead != 0) __builtin_prefetch(from + ahead + i * line_bytes);
      sums[i] ^= *reinterpret_cast<const Line*>(from + i * line_bytes);
    }
  }
  const Line all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  __asm__ volatile("" : : "m"(all));
}

class ReadingKernel final : public Kernel {
 public:
  ReadingKernel(std::size_t bytes, std::size_t ahead, WeightLayout layout)
      : lines_(bytes / line_bytes), ahead_(ahead), layout_(layout) {}

  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return layout_; }
  Status run(const Operands& operands, void*, Stream stream) const override {
    auto* executor = static_cast<cpu::Executor*>(stream.handle);
    const auto parts = static_cast<std::size_t>(executor->threads());
    auto read = [&](std::int64_t index) {
      const auto part = static_cast<std::size_t>(index);
      const std::size_t first = lines_ * part / parts;
      read_lines(static_cast<const char*>(operands.w) + first * line_bytes,
                 lines_ * (part + 1) / parts - first, ahead_);
    };
    if (parts == 1) {
      read(0);
    } else {
      executor->run_parts(executor->threads(), read);
    }
    return {};
  }

 private:
  std::size_t lines_;
  std::size_t ahead_;
  WeightLayout layout_;
};

}  // namespace

std::unique_ptr<Kernel> make_reading_kernel(std::size_t bytes, std::size_t ahead, WeightLayout layout) {
  return std::make_unique<ReadingKernel>(bytes, ahead, layout);
}

}  // namespace gemmtune::speed
