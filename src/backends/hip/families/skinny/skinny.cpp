#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/hip/families/compute_unit.h"
#include "backends/hip/families/own_families.h"
#include "backends/hip/families/skinny/skinny_arguments.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::hip {

GEMMTUNE_FIELDS(SkinnyConfig, rows, weight_rows, waves, unroll, shuffled, w_columns);

namespace {

constexpr std::int64_t max_rows = 16;
constexpr std::int64_t bytes_per_load = 16;   // of k, of a lane's load
constexpr std::int64_t max_sums = 32;         // of a lane
constexpr std::int64_t lanes_with_rows = 16;  // of a shuffled or column-major weight

struct LaunchConfig {
  std::int64_t rows = 1;  // of x, of the kernel
  std::int64_t weight_rows = 1;
  std::int64_t waves = 4;
  std::int64_t unroll = 2;
  std::int64_t row_lanes = 1;
  std::int64_t units = 1;          // of k
  bool fp4 = false;                // of the weight: a unit has 32 elements
  bool columns = false;            // the weight is column-major
  std::int64_t element_bytes = 2;  // of a column-major weight

  std::int64_t block_rows() const { return weight_rows * row_lanes; }
  std::int64_t k_lanes() const { return wave_lanes / row_lanes; }
  /// Bytes that a lane reads of a line of a column-major weight, in each of the loads of 16 bytes of k; and that its block does.
  std::int64_t part_bytes() const { return weight_rows * element_bytes; }
  std::int64_t line_bytes() const { return lanes_with_rows * part_bytes(); }
  /// What the compiler needs about for a column-major weight: parts of lines in flight, the units that they become, sums, x of all loads in
  /// flight with its addresses, and others.
  std::int64_t transposing_registers() const {
    const std::int64_t parts = bytes_per_load / element_bytes * ceil_div(part_bytes(), 4) * unroll;
    return parts + 4 * weight_rows + weight_rows * rows + 8 * rows * unroll + 64;
  }
  /// What the compiler needs about for fp8, whose products it widens to float32 for all loads in flight.
  std::int64_t widened_registers() const {
    return rows * unroll * (9 + 3 * (weight_rows - 1)) + 20 * weight_rows;
  }
};

LaunchConfig launch_config(const Problem& problem, const Config& config) {
  LaunchConfig launch;
  while (launch.rows < problem.m) launch.rows *= 2;
  launch.weight_rows = config.number("rn", 1);
  launch.waves = config.number("nw", 4);
  launch.unroll = config.number("un", 2);
  launch.columns = problem.w_order == Order::column_major;
  launch.element_bytes = bits(problem.w_type) / 8;
  launch.row_lanes = is_packed(problem) || launch.columns ? lanes_with_rows : 1;
  launch.units = ceil_div(bytes_of(problem.w_type, problem.k), bytes_per_load);
  launch.fp4 = problem.w_type == DataType::f4_e2m1;
  return launch;
}

class SkinnyKernel final : public gpu::JitKernel<LaunchConfig> {
 public:
  SkinnyKernel(gpu::Programs programs, const Problem& problem, const LaunchConfig& launch)
      : JitKernel(std::move(programs), problem, launch) {
    shape_.threads = static_cast<unsigned>(wave_lanes * launch.waves);
    shape_.grid[0] = static_cast<unsigned>(ceil_div(problem.n, launch.block_rows()));
    shape_.grid[2] = static_cast<unsigned>(problem.batch);
  }
  WeightLayout weight_layout() const override {
    return is_packed(problem_) ? WeightLayout::aiter16x16 : WeightLayout::plain;
  }
  Status run(const Operands& o, void*, Stream stream) const override {
    SkinnyArguments values{};
    values.x = static_cast<const unsigned char*>(o.x);
    values.w = static_cast<const unsigned char*>(o.w);
    values.bias = o.bias;
    values.scales = gpu::scales_of(problem_, o);
    values.y = o.y;
    values.x_line_bytes = bytes_of(problem_.x_type, o.ldx);
    values.k_bytes = bytes_of(problem_.w_type, problem_.k);
    values.ldy = o.ldy;
    values.x_batch_step = bytes_of(problem_.x_type, o.x_batch_stride);
    values.w_batch_step = problem_.n * values.k_bytes;
    values.y_batch_step = o.y_batch_stride;
    values.m = as_int(problem_.m);
    values.n = as_int(problem_.n);
    if (is_packed(problem_) && reinterpret_cast<std::uintptr_t>(o.w) % 16 != 0)
      return Status::unsupported("skinny needs a shuffled weight at a multiple of 16 bytes");
    return enqueue(0, shape_, values, stream);
  }

 private:
  gpu::LaunchShape shape_;
};

class SkinnyFamily final : public gpu::JitFamily<LaunchConfig> {
 public:
  explicit SkinnyFamily(gpu::Runtime& runtime)
      : JitFamily(runtime, {.name = "skinny", .tie_rank = 10, .packed = WeightLayout::aiter16x16}),
        unit_(compute_unit(runtime.architecture(), runtime.limits())) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

 protected:
  LaunchConfig launch_config(const Problem& problem, const Config& config) const override {
    return hip::launch_config(problem, config);
  }
  void fill(gpu::LaunchSpace<LaunchConfig>& space) const override;
  double cost(const Problem& problem, const LaunchConfig& launch) const override;
  std::vector<gpu::Part> parts(const Problem& problem, const LaunchConfig& launch) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const LaunchConfig& launch) const override {
    return std::make_unique<SkinnyKernel>(std::move(programs), problem, launch);
  }
  std::string device_text() const override { return source_; }

 private:
  ComputeUnit unit_;
  std::string source_ = gpu::include_line("backends/hip/families/skinny/skinny.cu");
};

Status SkinnyFamily::accepts(const Problem& problem) const {
  const bool decodes = problem.operation == Operation::a8w4;
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_on_tensor_cores(
      problem, {.weights = gpu::Weights::shuffled_too,
                .orders = refusal::Orders::any_input,
                .row_scales = true,
                .block_scales = true,
                .int8 = true,
                .fp8 = decodes ? gpu::Fp8::both : fp8_of(runtime().architecture()),
                .fp4 = true,
                .batches = true}));
  // A lane would read its elements of k one by one.
  if (problem.x_order == Order::column_major)
    return refusal::refuse(refusal::order, "column-major x, only row-major");
  if (problem.m > max_rows) return refusal::refuse(refusal::rows, "{}, at most {}", problem.m, max_rows);
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (problem.n > most || problem.k > most)
    return refusal::refuse(refusal::size, "n {} and k {}, at most {} each", problem.n, problem.k, most);
  // Offsets within the lines that a block has have 31 bits.
  constexpr std::int64_t max_lane_line_bytes = std::int64_t{1} << 20;
  if (problem.w_order == Order::column_major && bytes_of(problem.w_type, problem.n) > max_lane_line_bytes)
    return refusal::refuse(refusal::size, "columns of {} elements, at most {} bytes", problem.n,
                           max_lane_line_bytes);
  if (bytes_of(problem.w_type, problem.k) < bytes_per_load)
    return refusal::refuse(refusal::reduction, "{} {}, at least 16 bytes", problem.k,
                           to_string(problem.x_type));
  if (is_packed(problem) && !gpu::shuffled_tiles_of(problem).fits())
    return refusal::refuse(refusal::layout, "aiter16x16 of {} x {}: n is no multiple of 16 or k none of {}",
                           problem.n, problem.k, gpu::shuffled_k_multiple(problem));
  return {};
}

std::string refuse_skinny_registers(const Problem& problem, const LaunchConfig& launch) {
  if (launch.weight_rows * launch.rows > max_sums) return "rn has more sums than a lane has registers";
  const std::string refused = "rn and un need more registers than a lane has";
  // Of a block of 16 waves each has a quarter of a SIMD's registers, of one of 9 no more.
  const std::int64_t max_widened = launch.waves > 8 ? 120 : launch.waves > 4 ? 230 : 340;
  if (traits(problem.x_type).fp8 && launch.widened_registers() > max_widened) return refused;
  if (launch.columns) {
    const std::int64_t waves_on_simd = ceil_div(launch.waves, simds_per_unit);
    return launch.transposing_registers() > registers_per_lane / waves_on_simd ? refused : "";
  }
  const std::int64_t needed =
      launch.weight_rows * (launch.rows * (launch.fp4 ? 2 : 1) + 4 * launch.unroll + (launch.fp4 ? 8 : 0));
  return needed > (launch.waves > 8 ? 16 : 96) ? refused : "";
}

std::string refuse_skinny_waste(const LaunchConfig& launch) {
  if (launch.columns && launch.part_bytes() < 4 && launch.weight_rows < 4 &&
      2 * launch.weight_rows * launch.rows <= max_sums)
    return "rn reads less than 4 bytes of a column-major weight's line";
  const std::int64_t step = launch.k_lanes() * launch.waves;
  if (launch.waves > 1 && launch.units <= step / 2) return "nw has more waves than k has loads";
  if (launch.unroll > 1 && launch.units <= step * launch.unroll / 2) return "un has more loads than k";
  return {};
}

void SkinnyFamily::fill(gpu::LaunchSpace<LaunchConfig>& space) const {
  space.add({"rn", {"1", "2", "4"}, "1", "weight rows of a lane"});
  space.add({"nw", {"1", "2", "4", "8", "16"}, "4", "waves that divide k", NumberRange{1, 16}});
  space.add(
      {"un", {"1", "2", "4"}, "2", "loads of 16 bytes in flight for each weight row", NumberRange{1, 8}});
  space.rule("registers", Rule::build, refuse_skinny_registers);
  space.rule("waste", Rule::search, refuse_skinny_waste);
}

Config SkinnyFamily::default_config(const Problem& problem) const {
  Config config;
  const LaunchConfig launch = launch_config(problem, config);
  if (launch.columns) {
    // 4 bytes of a line, or as many as the sums leave.
    const std::int64_t rows = std::min(4 / launch.element_bytes, max_sums / launch.rows);
    const bool widened = traits(problem.x_type).fp8 && launch.rows >= 8;
    config.set("rn", rows);
    config.set("nw", std::int64_t{4});
    config.set("un", std::int64_t{widened ? 1 : 2});
    return config;
  }
  config.set("rn",
             std::int64_t{
                 is_packed(problem) || problem.batch * problem.n < 8 * unit_.units || problem.m > 8 ? 1 : 2});
  config.set("nw", std::int64_t{4});
  config.set("un", std::int64_t{2});
  return config;
}

std::vector<gpu::Part> SkinnyFamily::parts(const Problem& problem, const LaunchConfig& launch) const {
  gpu::Source source{"skinny", source_, gpu::type_defines(problem), "skinny"};
  source.defines.push_back(gpu::config_define(SkinnyConfig{.rows = as_int(launch.rows),
                                                           .weight_rows = as_int(launch.weight_rows),
                                                           .waves = as_int(launch.waves),
                                                           .unroll = as_int(launch.unroll),
                                                           .shuffled = is_packed(problem),
                                                           .w_columns = launch.columns}));
  return {{std::move(source)}};
}

/// The weight at the memory's rate, less where few bytes are in flight; or the instructions of the products.
double SkinnyFamily::cost(const Problem& problem, const LaunchConfig& launch) const {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double blocks = real(ceil_div(problem.n, launch.block_rows()) * problem.batch);
  const std::int64_t resident = std::min<std::int64_t>(32 / launch.waves, 8);
  const double in_flight = std::min(blocks, real(unit_.units * resident)) *
                           real(launch.waves * wave_lanes * bytes_per_load) *
                           real(launch.unroll * launch.weight_rows);
  const double reach = std::clamp(in_flight / 8e6, 0.05, 0.9);
  // A block may have less of a column-major weight's line than the 64 bytes that memory answers with.
  const double share = launch.columns ? std::max(1.0, 64 / real(launch.line_bytes())) : 1;
  const double memory = bytes(problem) * share / unit_.memory_bytes_per_microsecond / reach;
  // Instructions of a lane for each pair of elements of w and x, with what decodes x, and for each element of w.
  const bool pairs = problem.x_type == DataType::f16 || problem.x_type == DataType::f4_e2m1;
  const double each = bits(problem.x_type) == 8 ? (problem.x_type == DataType::i8 ? 0.25 : 1.5)
                      : pairs                   ? (problem.x_type == DataType::f16 ? 0.5 : 2)
                                                : 1;
  // Transposing: an instruction for two elements, of 8 bits three for four.
  const double transposing = !launch.columns ? 0 : launch.element_bytes == 1 ? 0.75 : 0.5;
  const double decoding = (!launch.fp4 ? 1 : pairs ? 1.5 : 2.5) + transposing;
  const double products =
      real(problem.batch * problem.n) * real(problem.k) * (real(launch.rows) * each + decoding);
  const double rate = real(unit_.units * simds_per_unit) * 16 * unit_.clock_megahertz;
  // x is read by each block, from L2 at 64 bytes a clock and unit.
  const double from_l2 = blocks * real(launch.rows) * real(bytes_of(problem.x_type, problem.k)) /
                         (64 * real(unit_.units) * unit_.clock_megahertz);
  return 3 + std::max({memory, products / rate, from_l2}) + 0.2 * real(launch.waves > 1 ? 2 : 0);
}

}  // namespace

std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime) {
  return std::make_unique<SkinnyFamily>(runtime);
}

const gpu::FamilyEntry& skinny_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "skinny", .rank = 30, .fallback_rank = 30},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!has_mfma(context.runtime.architecture())) return nullptr;
        return make_skinny_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::hip
