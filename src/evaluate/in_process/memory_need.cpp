#include "evaluate/in_process/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

#include "backends/host.h"
#include "backends/traits.h"
#include "base/saturating.h"
#include "problem/operands.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

/// "1.5 GiB".
std::string size_text(std::int64_t bytes) {
  constexpr std::string_view units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(units); ++unit) size /= 1024;
  return fmt::format("{:.1f} {}", size, units[unit]);
}

std::int64_t signed_size(std::size_t bytes) {
  return static_cast<std::int64_t>(std::min<std::size_t>(bytes, std::numeric_limits<std::int64_t>::max()));
}

Status check_fits(const Problem& problem, std::int64_t need, std::int64_t available, std::string_view where) {
  if (need <= available) return {};
  return Status::out_of_memory(
      "too large: {} takes at least {} of {} (operands, copies, reference), {} are available",
      short_name(problem), size_text(need), where, size_text(available));
}

}  // namespace

MemoryNeed memory_need(const Problem& problem, CacheMode cache, bool timed) {
  const OperandShapes shapes = operand_shapes(problem);
  const std::int64_t x = saturating_sum({shapes.x.bytes(), shapes.x.scale_bytes()});
  const std::int64_t weights =
      saturating_sum({shapes.w.bytes(), shapes.w.scale_bytes(), shapes.w2.bytes(), shapes.w2.scale_bytes()});
  const std::int64_t routes =
      saturating_product({given_pairs(problem), sizeof(std::int32_t) + sizeof(float)});
  const std::int64_t bias = saturating_sum({shapes.bias.bytes(), shapes.bias2.bytes()});
  const std::int64_t operands = saturating_sum({x, weights, routes, bias});
  const std::int64_t packed = is_packed(problem) ? shapes.w.bytes() : 0;
  const std::int64_t y = shapes.y.bytes();
  // The reference reads row-major copies.
  const auto copy_of = [](const MatrixShape& shape) {
    return shape.order == Order::row_major ? std::int64_t{0} : shape.bytes();
  };
  const std::int64_t copies = saturating_sum({copy_of(shapes.x), copy_of(shapes.w)});
  const std::int64_t reference = reference_bytes(problem, {});
  MemoryNeed need;
  need.device = saturating_sum({operands, operands, packed, packed, y, y});
  if (timed) {
    const std::int64_t activations = cache == CacheMode::cold ? saturating_sum({x, y}) : 0;
    need.device = saturating_sum({need.device, weights, y, activations});
  }
  need.host = saturating_sum({operands, copies, reference, reference, y, y});
  return need;
}

std::int64_t bytes_on(const Device& device, const MemoryNeed& need) {
  return traits_of(device.info()).runs_on_host ? saturating_sum({need.device, need.host}) : need.device;
}

Status check_device_memory(Device& device, const Problem& problem, const MemoryNeed& need,
                           std::size_t host_limit) {
  const std::int64_t free = signed_size(device.free_memory_bytes());
  // A lost GPU states no memory either.
  if (free == 0) GEMMTUNE_RETURN_IF_ERROR(device.synchronize());
  if (!traits_of(device.info()).runs_on_host)
    return check_fits(problem, need.device, free, "memory on " + device.info().name);
  const std::int64_t limit = host_limit == 0 ? free : std::min(free, signed_size(host_limit));
  return check_fits(problem, bytes_on(device, need), limit, "memory");
}

Status check_host_memory(const Problem& problem) {
  return check_fits(problem, memory_need(problem, CacheMode::warm, false).host,
                    signed_size(free_host_memory_bytes()), "host memory");
}

}  // namespace gemmtune
