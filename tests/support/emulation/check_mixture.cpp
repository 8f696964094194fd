#include "support/emulation/check_mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "numbers/weight_layout.h"
#include "problem/mixture_routes.h"
#include "support/emulation/emulation.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::emulation {
namespace {

constexpr std::size_t alignment = 256;

/// Memory whose ranges are registered one by one.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes, int fill = 0xff)
      : memory_(bytes + alignment, static_cast<std::byte>(fill)), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + ((address + alignment - 1) / alignment * alignment - address);
  }
  ~DeviceMemory() {
    for (const void* range : ranges_) unregister_buffer(range);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void show(std::size_t first, std::size_t bytes, const char* name) {
    if (bytes == 0) return;
    register_buffer(begin_ + first, bytes, name);
    ranges_.push_back(begin_ + first);
  }
  void show_all(const char* name) { show(0, bytes_, name); }
  std::byte* data() const { return bytes_ > 0 ? begin_ : nullptr; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<std::byte> memory_;
  std::size_t bytes_;
  std::byte* begin_ = nullptr;
  std::vector<const void*> ranges_;
};

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

/// A weight of all experts, of which the touched ones are there.
void place(DeviceMemory& memory, const MatrixShape& shape, WeightLayout layout,
           const std::vector<std::byte>& plain, const std::set<std::int32_t>& touched, const char* name) {
  if (layout == WeightLayout::aiter16x16) {
    const Tile16 tiles{
        .n = shape.count * shape.rows, .k = shape.columns, .element_bytes = bits(shape.type) / 8};
    shuffle_tile16(tiles, plain.data(), memory.data());
  } else {
    std::copy(plain.begin(), plain.end(), memory.data());
  }
  const std::size_t each = size(bytes_of(shape.type, shape.rows * shape.columns));
  for (const std::int32_t expert : touched) memory.show(static_cast<std::size_t>(expert) * each, each, name);
}

/// The value in y's type: 16 bits, or all of it.
double element_at(DataType type, const std::byte* at) {
  float value = 0;
  traits(type).widen({at, static_cast<std::size_t>(bits(type) / 8)}, 0, {&value, 1});
  return static_cast<double>(value);
}

}  // namespace

std::string check_mixture(const KernelFamily& family, const Problem& problem, const Config& config,
                          const MixtureRun& run) {
  if (const Status taken = family.accepts(problem); !taken.ok()) return taken.message();
  if (const std::string refusal = family.space(problem).build_refusal(config); !refusal.empty())
    return refusal;
  const auto kernel = family.build(problem, config);
  if (!kernel.ok()) return kernel.message();
  auto host = make_inputs(problem, 7);
  if (!host.ok()) return host.message();
  const std::vector<std::int32_t> ids = run.ids.empty() ? host->topk_ids : run.ids;
  const auto topk = static_cast<std::size_t>(problem.moe.routed_topk());
  const auto is_expert = [&](std::int32_t id) { return id >= 0 && id < problem.moe.routed_experts(); };
  std::set<std::int32_t> touched;
  for (std::int32_t shared = problem.moe.routed_experts(); shared < problem.moe.experts; ++shared)
    touched.insert(shared);
  std::set<std::size_t> lost;  // tokens with an id that is no expert
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (is_expert(ids[i])) touched.insert(ids[i]);
    const bool is_empty = ids[i] == empty_slot;
    if (!is_expert(ids[i]) && !is_empty) lost.insert(i / topk);
    host->topk_ids[i] = is_expert(ids[i]) || is_empty ? ids[i] : 0;
    if (is_empty) host->topk_weights[i] = std::numeric_limits<float>::quiet_NaN();
  }
  const auto reference = compute_reference(problem, *host, {});
  if (!reference.ok()) return reference.message();

  const OperandShapes shapes = operand_shapes(problem);
  const WeightLayout layout = (*kernel)->weight_layout();
  // Gaps keep what mfma_moe and wgmma_moe need of rows: multiples of 16 bytes.
  const std::size_t x_line = size(bytes_of(problem.x_type, problem.k));
  const std::size_t x_pitch = x_line + (run.gaps ? 16 : 0);
  const auto rows = static_cast<std::size_t>(problem.m);
  const auto columns = static_cast<std::size_t>(problem.k);
  const std::size_t y_element = size(bits(problem.y_type) / 8);
  const std::size_t ldy = columns + (run.gaps ? 5 : 0);

  DeviceMemory x((rows - 1) * x_pitch + x_line);
  DeviceMemory w(host->w.size());
  DeviceMemory w2(host->w2.size());
  DeviceMemory x_scale(host->x_scale.size());
  DeviceMemory w_scale(host->w_scale.size());
  DeviceMemory w2_scale(host->w2_scale.size());
  DeviceMemory w_global(host->w_global_scale.size());
  DeviceMemory w2_global(host->w2_global_scale.size());
  DeviceMemory w_zero_points(host->w_zero_points.size());
  DeviceMemory w2_zero_points(host->w2_zero_points.size());
  DeviceMemory bias(host->bias.size());
  DeviceMemory bias2(host->bias2.size());
  DeviceMemory topk_ids(ids.size() * 4);
  DeviceMemory topk_weights(ids.size() * 4);
  DeviceMemory y(((rows - 1) * ldy + columns) * y_element, poison_byte);
  DeviceMemory workspace((*kernel)->workspace_bytes(), poison_byte);
  for (std::size_t row = 0; row < rows; ++row)
    std::memcpy(x.data() + row * x_pitch, host->x.data() + row * x_line, x_line);
  place(w, shapes.w, layout, host->w, touched, "w1 of experts that have tokens");
  place(w2, shapes.w2, layout, host->w2, touched, "w2 of experts that have tokens");
  std::copy(host->x_scale.begin(), host->x_scale.end(), x_scale.data());
  std::copy(host->w_scale.begin(), host->w_scale.end(), w_scale.data());
  std::copy(host->w2_scale.begin(), host->w2_scale.end(), w2_scale.data());
  std::copy(host->w_global_scale.begin(), host->w_global_scale.end(), w_global.data());
  std::copy(host->w2_global_scale.begin(), host->w2_global_scale.end(), w2_global.data());
  std::copy(host->w_zero_points.begin(), host->w_zero_points.end(), w_zero_points.data());
  std::copy(host->w2_zero_points.begin(), host->w2_zero_points.end(), w2_zero_points.data());
  std::copy(host->bias.begin(), host->bias.end(), bias.data());
  std::copy(host->bias2.begin(), host->bias2.end(), bias2.data());
  std::memcpy(topk_ids.data(), ids.data(), ids.size() * 4);
  std::memcpy(topk_weights.data(), host->topk_weights.data(), ids.size() * 4);
  x.show_all("x");
  x_scale.show_all("x_scale");
  w_scale.show_all("w_scale");
  w2_scale.show_all("w2_scale");
  w_global.show_all("w1_global_scale");
  w2_global.show_all("w2_global_scale");
  w_zero_points.show_all("w1_zero_points");
  w2_zero_points.show_all("w2_zero_points");
  bias.show_all("bias1");
  bias2.show_all("bias2");
  topk_ids.show_all("topk_ids");
  topk_weights.show_all("topk_weights");
  y.show_all("y");
  workspace.show_all("workspace");

  Operands operands;
  operands.x = x.data();
  operands.w = w.data();
  operands.w2 = w2.data();
  operands.x_scale = x_scale.data();
  operands.w_scale = w_scale.data();
  operands.w2_scale = w2_scale.data();
  operands.w_global_scale = w_global.data();
  operands.w2_global_scale = w2_global.data();
  operands.w_zero_points = w_zero_points.data();
  operands.w2_zero_points = w2_zero_points.data();
  operands.bias = bias.data();
  operands.bias2 = reinterpret_cast<const float*>(bias2.data());
  operands.topk_ids = reinterpret_cast<const std::int32_t*>(topk_ids.data());
  operands.topk_weights = reinterpret_cast<const float*>(topk_weights.data());
  operands.y = y.data();
  operands.ldx = static_cast<std::int64_t>(x_pitch * 8 / size(bits(problem.x_type)));
  operands.ldy = static_cast<std::int64_t>(ldy);
  std::vector<std::byte> output;
  for (int time = 0; time < 2; ++time) {
    if (const Status ran = (*kernel)->run(operands, workspace.data(), {}); !ran.ok()) return ran.message();
    const std::vector<std::byte> once = std::move(output);
    output.assign(y.data(), y.data() + y.bytes());
    if (time > 0 && output != once) return "a second run has another result";
    if (time == 0) std::memset(y.data(), poison_byte, y.bytes());
  }

  for (std::size_t row = 0; row + 1 < rows; ++row)
    for (std::size_t i = (row * ldy + columns) * y_element; i < (row + 1) * ldy * y_element; ++i)
      if (output[i] != std::byte{poison_byte})
        return fmt::format("wrote between rows {} and {} of y", row, row + 1);
  for (const std::size_t token : lost) {
    for (std::size_t column = 0; column < columns; ++column) {
      std::byte* const at = output.data() + (token * ldy + column) * y_element;
      if (!std::isnan(element_at(problem.y_type, at)))
        return fmt::format("row {} of y is not NaN, although one of its ids is no expert", token);
      // The check below goes by the other rows.
      const auto right = static_cast<float>(reference->values[token * columns + column]);
      std::uint32_t bits32 = 0;
      std::memcpy(&bits32, &right, 4);
      const auto rounded = static_cast<std::uint16_t>((bits32 + 0x7fff + (bits32 >> 16 & 1)) >> 16);
      if (problem.y_type != DataType::bf16) return "ids that are no expert are for y of bf16";
      std::memcpy(at, &rounded, 2);
    }
  }
  const CheckReport report =
      check_output(problem, *reference, output, operands.ldy,
                   tolerance_for(problem, 0.05, {.accuracy = family.accuracy(problem, config)}));
  if (!report.right)
    return fmt::format("{} (row {}, column {})", report.reason, report.worst_row, report.worst_column);
  return {};
}

}  // namespace gemmtune::emulation
