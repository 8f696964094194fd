#include "support/emulation/emulated_runtime.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/pack/pack.h"
#include "numbers/weight_layout.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::emulation {
namespace {

class EmulatedProgram final : public gpu::Program {
 public:
  EmulatedProgram(std::shared_ptr<Module> module, std::string kernel, std::size_t max_shared_bytes,
                  Statistics* const& statistics)
      : module_(std::move(module)),
        kernel_(std::move(kernel)),
        max_shared_bytes_(max_shared_bytes),
        statistics_(statistics) {}
  const gpu::Resources& resources() const override { return resources_; }
  const gpu::LoadedKernel& loaded() const override { return loaded_; }
  Status reserve_shared(std::size_t bytes) override {
    if (bytes <= max_shared_bytes_) return {};
    return Status::unsupported("{} bytes of shared memory, {} are there", bytes, max_shared_bytes_);
  }
  Status launch(const gpu::LaunchShape& shape, void** arguments, Stream) const override {
    Launch launch;
    std::copy(shape.grid.begin(), shape.grid.end(), launch.grid);
    launch.block[0] = shape.threads;
    launch.shared_bytes = static_cast<unsigned>(shape.shared_bytes);
    launch.arguments = arguments;
    const std::string wrong = module_->launch(kernel_, launch, statistics_);
    if (wrong.empty()) return {};
    return Status::internal("{}: {}", kernel_, wrong);
  }

 private:
  std::shared_ptr<Module> module_;
  std::string kernel_;
  std::size_t max_shared_bytes_;
  Statistics* const& statistics_;  // of the runtime
  gpu::Resources resources_;
  gpu::LoadedKernel loaded_;
};

/// An operand in a buffer that ends where it does; a copy is aligned to 16 bytes, or `odd` elements behind that.
class DeviceOperand {
 public:
  DeviceOperand(const char* name, std::size_t bytes, std::size_t odd_bytes, int fill)
      : memory_(bytes + odd_bytes + 64, static_cast<std::byte>(fill)), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + ((address + 15) / 16 * 16 - address) + odd_bytes;
    if (bytes > 0) register_buffer(begin_, bytes, name);
  }
  ~DeviceOperand() {
    if (bytes_ > 0) unregister_buffer(begin_);
  }
  DeviceOperand(const DeviceOperand&) = delete;
  DeviceOperand& operator=(const DeviceOperand&) = delete;
  void* data() const { return bytes_ > 0 ? begin_ : nullptr; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<std::byte> memory_;
  std::size_t bytes_;
  std::byte* begin_ = nullptr;
};

void copy_whole(const DeviceOperand& to, const std::vector<std::byte>& from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

/// Where the rows of x and y lie, in bytes; of a column-major x its columns.
struct Lines {
  std::size_t batches, count, bytes;  // of a batch; of a line
  std::size_t pitch, batch_pitch;

  Lines(const MatrixShape& matrix, Strides strides, std::int64_t odd_elements)
      : batches(static_cast<std::size_t>(matrix.count)),
        count(static_cast<std::size_t>(matrix.lines())),
        bytes(static_cast<std::size_t>(bytes_of(matrix.type, matrix.line_elements()))) {
    const std::size_t gap =
        strides == Strides::odd ? static_cast<std::size_t>(bytes_of(matrix.type, odd_elements)) : 0;
    const bool side_by_side = strides == Strides::side_by_side;
    pitch = (side_by_side ? batches : 1) * bytes + gap;
    batch_pitch = side_by_side ? bytes : count * pitch + 2 * gap;
  }
  std::size_t offset(std::size_t batch, std::size_t line) const { return batch * batch_pitch + line * pitch; }
  std::size_t end() const { return offset(batches - 1, count - 1) + bytes; }
  /// Calls visit(offset of a line, its number) for the lines of all batches.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::size_t batch = 0; batch < batches; ++batch)
      for (std::size_t line = 0; line < count; ++line) visit(offset(batch, line), batch * count + line);
  }
};

/// The bytes of a weight in the layout that the kernel reads.
std::vector<std::byte> in_layout(const Problem& problem, WeightLayout layout,
                                 const std::vector<std::byte>& plain) {
  const std::int64_t element_bytes = bits(problem.w_type) / 8;
  if (layout == WeightLayout::aiter16x16) {
    const Tile16 shape = gpu::shuffled_tiles_of(problem);
    std::vector<std::byte> shuffled(static_cast<std::size_t>(shape.bytes()));
    shuffle_tile16(shape, plain.data(), shuffled.data());
    return shuffled;
  }
  if (layout == WeightLayout::tile64x128) {
    const Tile64 shape{.n = problem.n, .k = problem.k, .element_bytes = element_bytes};
    std::vector<std::byte> packed(static_cast<std::size_t>(shape.bytes()));
    pack_tile64(shape, plain.data(), packed.data());
    return packed;
  }
  if (layout == WeightLayout::fragment64) {
    const Fragment64 shape = gpu::fragments_of(problem);
    const DeviceOperand from("plain weight", plain.size(), 0, 0xff);
    const DeviceOperand to("packed weight", static_cast<std::size_t>(shape.bytes()), 0, 0xff);
    copy_whole(from, plain);
    EmulatedRuntime runtime("gfx942");
    if (!gpu::pack_fragments(runtime, shape, problem.w_type == DataType::i4, from.data(), to.data()).ok())
      return {};
    const auto* const begin = static_cast<const std::byte*>(to.data());
    return {begin, begin + to.bytes()};
  }
  return plain;
}

}  // namespace

EmulatedRuntime::EmulatedRuntime(std::string architecture, int units)
    : architecture_(std::move(architecture)) {
  const bool amd = architecture_.starts_with("gfx");
  limits_.multiprocessors = units > 0                   ? units
                            : architecture_ == "gfx942" ? 304
                            : architecture_ == "gfx950" ? 256
                            : architecture_ == "gfx90a" ? 110
                                                        : 108;
  limits_.registers_per_thread = amd ? 512 : 255;
  const std::size_t lds_bytes = architecture_ == "gfx950" ? 163840 : 65536;
  limits_.shared_bytes_per_block = amd ? lds_bytes : 166912;
  limits_.shared_bytes_per_multiprocessor = amd ? lds_bytes : 167936;
  limits_.cache_bytes = 4 << 20;
}

Result<std::shared_ptr<gpu::Program>> EmulatedRuntime::load(const gpu::Source& source) {
  std::vector<std::string> options{
      (architecture_.starts_with("gfx") ? "--offload-arch=" : "--gpu-architecture=") + architecture_};
  for (const std::string& define : source.defines) options.push_back("-D" + define);
  std::string log;
  auto module = Module::compile(gpu::resolved_text(source.text), options, &log);
  if (!module) return Status::invalid("{}: {}", source.name, log.substr(0, 2000));
  if (!module->has(source.kernel)) return Status::invalid("{}: no kernel {}", source.name, source.kernel);
  return std::shared_ptr<gpu::Program>(std::make_shared<EmulatedProgram>(
      std::move(module), source.kernel, limits_.shared_bytes_per_block, statistics));
}

EmulatedOutput run_kernel(const Kernel& kernel, const Problem& problem, const HostOperands& host,
                          Strides strides) {
  const OperandShapes shapes = operand_shapes(problem);
  // Gaps are whole bytes of fp4 too.
  const std::int64_t x_gap = bits(problem.x_type) == 4 ? 6 : 3;
  const Lines x_lines(shapes.x, strides, x_gap);
  const Lines y_lines(shapes.y, strides, 5);
  const auto x_elements = [&](std::size_t bytes) {
    return static_cast<std::int64_t>(bytes * 8) / bits(problem.x_type);
  };
  const std::size_t y_element = static_cast<std::size_t>(bits(problem.y_type) / 8);
  const std::vector<std::byte> weight = in_layout(problem, kernel.weight_layout(), host.w);
  const bool shuffled = kernel.weight_layout() != WeightLayout::plain;
  const bool odd = strides == Strides::odd;

  const auto x_shift = static_cast<std::size_t>(odd ? bytes_of(problem.x_type, x_gap) / 3 : 0);
  const DeviceOperand x("x", x_lines.end(), x_shift, 0xff);
  const DeviceOperand w("w", weight.size(), shuffled ? 0 : x_shift, 0xff);
  const DeviceOperand bias("bias", host.bias.size(), odd ? y_element : 0, 0xff);
  const DeviceOperand x_scale("x_scale", host.x_scale.size(), 0, 0xff);
  const DeviceOperand w_scale("w_scale", host.w_scale.size(), 0, 0xff);
  const DeviceOperand x_global("x_global_scale", host.x_global_scale.size(), 0, 0xff);
  const DeviceOperand w_global("w_global_scale", host.w_global_scale.size(), 0, 0xff);
  const DeviceOperand zero_points("w_zero_points", host.w_zero_points.size(), 0, 0xff);
  const DeviceOperand y("y", y_lines.end(), odd ? y_element : 0, poison_byte);
  const DeviceOperand workspace("workspace", kernel.workspace_bytes(), 0, poison_byte);
  x_lines.each([&](std::size_t offset, std::size_t line) {
    std::memcpy(static_cast<std::byte*>(x.data()) + offset, host.x.data() + line * x_lines.bytes,
                x_lines.bytes);
  });
  copy_whole(w, weight);
  copy_whole(bias, host.bias);
  copy_whole(x_scale, host.x_scale);
  copy_whole(w_scale, host.w_scale);
  copy_whole(x_global, host.x_global_scale);
  copy_whole(w_global, host.w_global_scale);
  copy_whole(zero_points, host.w_zero_points);

  Operands operands;
  operands.x = x.data();
  operands.w = w.data();
  operands.bias = bias.data();
  operands.x_scale = x_scale.data();
  operands.w_scale = w_scale.data();
  operands.x_global_scale = x_global.data();
  operands.w_global_scale = w_global.data();
  operands.w_zero_points = zero_points.data();
  operands.y = y.data();
  operands.ldx = x_elements(x_lines.pitch);
  operands.ldy = static_cast<std::int64_t>(y_lines.pitch / y_element);
  operands.x_batch_stride = x_elements(x_lines.batch_pitch);
  operands.y_batch_stride = static_cast<std::int64_t>(y_lines.batch_pitch / y_element);
  if (const Status ran = kernel.run(operands, workspace.data(), {}); !ran.ok()) return {ran.message(), {}};

  std::vector<std::byte> output(y_lines.batches * y_lines.count * y_lines.bytes);
  auto* const written = static_cast<std::byte*>(y.data());
  y_lines.each([&](std::size_t offset, std::size_t line) {
    std::memcpy(output.data() + line * y_lines.bytes, written + offset, y_lines.bytes);
    std::memset(written + offset, poison_byte, y_lines.bytes);
  });
  for (std::size_t i = 0; i < y.bytes(); ++i)
    if (written[i] != std::byte{poison_byte})
      return {fmt::format("wrote between the rows of y, at byte {}", i), {}};
  return {{}, std::move(output)};
}

std::string check_kernel(const KernelFamily& family, const Problem& problem, const Config& config,
                         Strides strides) {
  if (const Status taken = family.accepts(problem); !taken.ok()) return taken.message();
  if (const std::string refusal = family.space(problem).build_refusal(config); !refusal.empty())
    return refusal;
  const auto kernel = family.build(problem, config);
  if (!kernel.ok()) return kernel.message();
  const auto host = make_inputs(problem, 7);
  if (!host.ok()) return host.message();
  const auto reference = compute_reference(problem, *host, {});
  if (!reference.ok()) return reference.message();
  const EmulatedOutput output = run_kernel(**kernel, problem, *host, strides);
  if (!output.wrong.empty()) return output.wrong;
  const CheckReport report =
      check_output(problem, *reference, output.y, problem.n, tolerance_for(problem, 0.05, {}));
  if (report.right) return {};
  return fmt::format("{} (row {}, column {})", report.reason, report.worst_row, report.worst_column);
}

}  // namespace gemmtune::emulation
