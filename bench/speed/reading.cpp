#include "speed/reading.h"

#include <cstdint>

namespace gemmtune::speed {
namespace {

constexpr std::size_t line_bytes = 64;
typedef std::uint64_t Line __attribute__((vector_size(line_bytes)));

/// Four lines a step, so that four sums hide the latency of their additions. With loads of whole lines where
/// the machine has them: smaller ones draw a quarter less from memory.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void read_lines(const char* from, std::size_t lines, std::size_t ahead) {
  // Names of their own: an array of sums would live in memory.
  Line a{};
  Line b{};
  Line c{};
  Line d{};
  for (std::size_t at = 0; at + 4 <= lines; at += 4, from += 4 * line_bytes) {
    if (ahead != 0) {
      __builtin_prefetch(from + ahead);
      __builtin_prefetch(from + ahead + line_bytes);
      __builtin_prefetch(from + ahead + 2 * line_bytes);
      __builtin_prefetch(from + ahead + 3 * line_bytes);
    }
    const auto* line = reinterpret_cast<const Line*>(from);
    a ^= line[0];
    b ^= line[1];
    c ^= line[2];
    d ^= line[3];
  }
  const Line all = a ^ b ^ c ^ d;
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
