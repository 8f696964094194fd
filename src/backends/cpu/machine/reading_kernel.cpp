#include "backends/cpu/machine/reading_kernel.h"

#include <cstdint>

#include "backends/cpu/threads/executor.h"

namespace gemmtune::cpu {
namespace {

constexpr std::size_t read_line_bytes = 64;
typedef std::uint64_t ReadLine __attribute__((vector_size(read_line_bytes)));

/// Four sums, so that loads overlap.
void read_whole_lines(const char* from, std::size_t lines) {
  ReadLine a{};
  ReadLine b{};
  ReadLine c{};
  ReadLine d{};
  for (std::size_t at = 0; at + 4 <= lines; at += 4, from += 4 * read_line_bytes) {
    const auto* line = reinterpret_cast<const ReadLine*>(from);
    a ^= line[0];
    b ^= line[1];
    c ^= line[2];
    d ^= line[3];
  }
  const ReadLine all = a ^ b ^ c ^ d;
  __asm__ volatile("" : : "m"(all));
}

class ReadingKernel final : public Kernel {
 public:
  explicit ReadingKernel(std::size_t bytes) : lines_(bytes / read_line_bytes) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands& operands, void*, Stream stream) const override {
    auto* const executor = static_cast<Executor*>(stream.handle);
    const auto parts = static_cast<std::size_t>(executor->threads());
    executor->run_parts(executor->threads(), [&](std::int64_t index) {
      const auto part = static_cast<std::size_t>(index);
      const std::size_t first = lines_ * part / parts;
      read_whole_lines(static_cast<const char*>(operands.w) + first * read_line_bytes,
                       lines_ * (part + 1) / parts - first);
    });
    return {};
  }

 private:
  std::size_t lines_;
};

}  // namespace

std::unique_ptr<Kernel> make_reading_kernel(std::size_t bytes) {
  return std::make_unique<ReadingKernel>(bytes);
}

}  // namespace gemmtune::cpu
