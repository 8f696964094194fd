// Extreme sizes, legal and not, of every operation through the C functions: a status with a sentence, no crash,
// no memory in GiB, nothing written. GEMMTUNE_SOAK=1 draws more; GEMMTUNE_SEED begins with another seed.
#include <fmt/format.h>
#include <gemmtune/tuning.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "base/rounding.h"
#include "capi/c_support.h"
#include "formats/aiter/tuned_csv.h"
#include "support/c_problem.h"
#include "support/cpu_context.h"
#include "support/fenced_operands.h"
#include "support/operation_problems.h"
#include "support/temporary_folder.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

using test::CProblem;
using ::testing::AnyOf;
__extension__ using Wide = __int128;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t two_31 = std::int64_t{1} << 31;

/// Sizes of which many products leave 32 or 64 bits.
constexpr std::int64_t sizes[] = {least,
                                  -two_31 - 1,
                                  -1,
                                  0,
                                  1,
                                  2,
                                  31,
                                  32,
                                  128,
                                  4096,
                                  65535,
                                  65536,
                                  (1 << 24) + 1,
                                  1 << 30,
                                  two_31 - 32,
                                  two_31 - 1,
                                  two_31,
                                  two_31 + 1,
                                  2 * two_31 - 1,
                                  2 * two_31,
                                  2 * two_31 + 1,
                                  3037000500,  // its square leaves 63 bits
                                  std::int64_t{1} << 47,
                                  (std::int64_t{1} << 61) + 1,
                                  std::int64_t{1} << 62,
                                  most - 1,
                                  most};
constexpr std::int32_t counts[] = {std::numeric_limits<std::int32_t>::min(),
                                   -1,
                                   0,
                                   1,
                                   2,
                                   8,
                                   65536,
                                   536870911,
                                   536870912,
                                   1073741823,
                                   1073741824,
                                   2147483646,
                                   2147483647};
constexpr std::int32_t alignments[] = {
    0, 0, 0, 0, 0, 0, 1, 16, 64, 1 << 30, 3, -1, std::numeric_limits<std::int32_t>::min(), 2147483647};
/// Plain, any, aiter16x16, those of gemmtune's own, and none.
constexpr gemmtune_layout layouts[] = {0, 1, 2, 0x1001, 0x1002, 0x1003, 3, -1, 2147483647};

bool is_soak() { return std::getenv("GEMMTUNE_SOAK") != nullptr; }
int draws() { return is_soak() ? 60000 : 1500; }

std::uint64_t seed_of_sizes() { return test::seed_or(5); }

std::vector<Problem> kinds() {
  const testing_problems::Shape shape{3, 64, 64};
  auto list = testing_problems::dense_problems(shape);
  const auto mixtures = testing_problems::mixtures(shape);
  list.insert(list.end(), mixtures.begin(), mixtures.end());
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    list.push_back(default_problem(Operation::a16w16));
    list.back().m = 3;
    list.back().n = list.back().k = 64;
    list.back().x_type = list.back().w_type = list.back().y_type = type;
  }
  return list;
}

/// Often a small size, so that those problems are legal that have one or two extreme ones.
std::int64_t drawn_size(Random& random) {
  if (random.below(2) == 0) return 32 << random.below(3);
  return sizes[random.below(std::size(sizes))];
}

/// A problem of any operation, type and layout with sizes drawn anew.
std::unique_ptr<CProblem> drawn_problem(const std::vector<Problem>& all, Random& random) {
  Problem kind = all[random.below(all.size())];
  if (random.below(3) == 0) (void)testing_problems::in_layout(kind, WeightLayout::panel16);
  auto asked = std::make_unique<CProblem>(kind);
  (*asked)->m = drawn_size(random);
  (*asked)->n = drawn_size(random);
  (*asked)->k = drawn_size(random);
  if (traits(kind.operation).batched || random.below(8) == 0) (*asked)->batch = drawn_size(random);
  (*asked)->alignment = alignments[random.below(std::size(alignments))];
  if (is_mixture(kind)) {
    asked->moe().experts = counts[random.below(std::size(counts))];
    asked->moe().topk = random.below(2) == 0 ? 1 : counts[random.below(std::size(counts))];
    asked->moe().shared_experts = random.below(2) == 0 ? 0 : counts[random.below(std::size(counts))];
  }
  return asked;
}

bool is_dimension(std::int64_t size) { return size >= 1 && size < two_31; }

/// A tensor of at most 2^47 bytes.
bool fits(DataType type, std::initializer_list<std::int64_t> tensor) {
  Wide elements = 1;
  for (const std::int64_t size : tensor) elements *= size;
  return elements * bits(type) <= (Wide{1} << 47) * 8;
}

struct Sizes {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

/// Of elements of 4 bits: what share a scale along k.
std::int64_t scale_block_of(const Problem& p) {
  const bool nvfp4 = p.operation == Operation::a16w4_nvfp4 || p.operation == Operation::a8w4_nvfp4 ||
                     p.operation == Operation::a4w4_nvfp4 || p.moe.quant_type == QuantType::per_1x16;
  const bool int4 = p.operation == Operation::a16w4_int4 || p.operation == Operation::a8w4_int4 ||
                    p.moe.quant_type == QuantType::per_group;
  return int4 ? p.w_group : nvfp4 ? 16 : 32;
}

/// What the header says of sizes, worked out in 128 bits. `sizes` stand in for the problem's.
bool is_legal(const CProblem& asked, const Sizes& sizes) {
  gemmtune_problem known;
  Problem p;
  if (c::read_problem(asked.get(), known, p) != GEMMTUNE_OK) return false;
  const std::int64_t m = sizes.m;
  p.n = sizes.n;
  p.k = sizes.k;
  const bool blocks = bits(p.x_type) == 4 || bits(p.w_type) == 4;
  const std::int64_t block = scale_block_of(p);
  if (!is_dimension(m) || !is_dimension(p.n) || !is_dimension(p.k) || !is_dimension(p.batch)) return false;
  if (!traits(p.operation).batched && p.batch != 1) return false;
  if (p.alignment < 1 || (p.alignment & (p.alignment - 1)) != 0) return false;
  if (blocks && (p.k % block != 0 || (is_mixture(p) && p.n % block != 0))) return false;
  if (!fits(p.x_type, {p.batch, m, p.k})) return false;
  if (!is_mixture(p)) return fits(p.w_type, {p.batch, p.n, p.k}) && fits(p.y_type, {p.batch, m, p.n});
  const MoeShape& moe = p.moe;
  if (moe.shared_experts < 0 || moe.shared_experts >= moe.topk) return false;
  return moe.experts >= 1 && moe.topk >= 1 && moe.topk <= moe.experts && fits(p.y_type, {m, p.k}) &&
         fits(DataType::f32, {m, moe.topk}) && fits(p.w_type, {3, moe.experts, p.n, p.k}) &&
         (!p.bias || fits(DataType::f32, {moe.experts, 2 * p.n + p.k}));
}

/// A call may have sizes of 0, but no inter_dim of 0: legal sizes in their place.
Sizes without_zeros(const CProblem& asked) {
  const bool mixture = asked->operation == GEMMTUNE_FUSED_MOE;
  return {asked->m == 0 ? 1 : asked->m, asked->n == 0 && !mixture ? 1 : asked->n,
          asked->k != 0 ? asked->k : std::max<std::int64_t>(asked->w_group, 32)};
}

bool writes_nothing(const CProblem& asked) {
  return asked->m == 0 || (asked->operation == GEMMTUNE_FUSED_MOE ? asked->k : asked->n) == 0;
}

std::string text_of(const CProblem& asked) {
  gemmtune_problem known;
  Problem problem;
  return c::read_problem(asked.get(), known, problem) == GEMMTUNE_OK ? print(problem) : gemmtune_last_error();
}

std::size_t peak_of_address_space() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPeak:")) return std::strtoull(line.c_str() + 7, nullptr, 10) * 1024;
  }
  ADD_FAILURE() << "/proc/self/status has no VmPeak";
  return 0;
}

class CExtremeSizes : public ::testing::Test {
 protected:
  CExtremeSizes() : context_(test::open_cpu_context()), room_(64, Fence::after) {}
  ~CExtremeSizes() override { gemmtune_context_destroy(context_); }

  /// Operands of 64 bytes each, whose ends are unreadable. They are enough for what is refused.
  gemmtune_operands small_operands() {
    gemmtune_operands given{};
    given.size = sizeof given;
    given.x = given.w = given.bias = given.x_scale = given.w_scale = room_.data();
    given.y = room_.data();
    given.moe = &moe_;
    moe_.size = sizeof moe_;
    moe_.w2 = moe_.w2_scale = room_.data();
    moe_.topk_ids = reinterpret_cast<const std::int32_t*>(room_.data());
    moe_.topk_weights = moe_.bias2 = moe_.w2_global_scale = reinterpret_cast<const float*>(room_.data());
    moe_.w2_zero_points = reinterpret_cast<const std::int8_t*>(room_.data());
    return given;
  }
  bool room_is_untouched() const {
    for (std::size_t i = 0; i < room_.bytes(); ++i)
      if (room_.data()[i] != FencedMemory::poison) return false;
    return room_.surroundings_intact();
  }
  void expect_sentence(gemmtune_status status, const std::string& what) const {
    EXPECT_THAT(status, AnyOf(GEMMTUNE_INVALID_ARGUMENT, GEMMTUNE_UNSUPPORTED, GEMMTUNE_OUT_OF_MEMORY,
                              GEMMTUNE_NULL_POINTER, GEMMTUNE_MISALIGNED))
        << what << ": " << gemmtune_last_error();
    EXPECT_GT(std::strlen(gemmtune_last_error()), 10U) << what;
    EXPECT_TRUE(room_is_untouched()) << what;
  }
  void plan_and_refuse(const CProblem& asked, Random& random);
  void refuse_calls(const CProblem& asked, const gemmtune_plan* plan, Random& random);
  void ask_for_scales(const CProblem& asked) const;
  void ask_for_weights(const CProblem& asked, gemmtune_layout layout);

  gemmtune_context* context_;
  FencedMemory room_;
  gemmtune_moe_operands moe_{};
};

/// Calls with strides that no tensor of at most 2^47 bytes has, and without operands.
void CExtremeSizes::refuse_calls(const CProblem& asked, const gemmtune_plan* plan, Random& random) {
  const std::string what = text_of(asked);
  gemmtune_operands nothing{};
  nothing.size = sizeof nothing;
  expect_sentence(gemmtune_plan_run(plan, &nothing, nullptr, nullptr), what);
  for (std::int64_t stride : {least, std::int64_t{-1}, two_31, std::int64_t{1} << 62, most}) {
    gemmtune_operands given = small_operands();
    std::int64_t* const members[] = {&given.ldx, &given.ldy, &given.x_batch_stride, &given.y_batch_stride};
    const std::size_t member = random.below(asked->batch > 1 ? 4 : 2);
    if (member > 1 && stride == two_31) stride = std::int64_t{1} << 48;  // few batches may be far apart
    *members[member] = stride;
    expect_sentence(gemmtune_plan_run(plan, &given, room_.data(), nullptr),
                    fmt::format("{}, stride {} = {}", what, member, stride));
  }
}

void CExtremeSizes::ask_for_scales(const CProblem& asked) const {
  const std::string what = text_of(asked);
  const bool legal = is_legal(asked, without_zeros(asked));
  gemmtune_scales scales{};
  scales.size = sizeof scales;
  scales.x = -7;
  const gemmtune_status status = gemmtune_problem_scales(asked.get(), &scales);
  EXPECT_EQ(status == GEMMTUNE_OK, legal) << what << ": " << gemmtune_last_error();
  if (status != GEMMTUNE_OK) {
    expect_sentence(status, what);
    EXPECT_EQ(scales.x, -7) << what;
    return;
  }
  for (const std::int64_t count : {scales.x, scales.w, scales.w2}) {
    EXPECT_GE(count, 0) << what;
    EXPECT_LE(count, std::int64_t{1} << 47) << what;
  }
}

void CExtremeSizes::plan_and_refuse(const CProblem& asked, Random& random) {
  const std::string what = text_of(asked);
  gemmtune_plan* plan = nullptr;
  const gemmtune_status status = gemmtune_plan_create(context_, asked.get(), &plan);
  if (status != GEMMTUNE_OK) {
    EXPECT_EQ(plan, nullptr);
    expect_sentence(status, what);
    EXPECT_EQ(status == GEMMTUNE_INVALID_ARGUMENT, !is_legal(asked, without_zeros(asked)))
        << what << ": " << gemmtune_last_error();
  } else {
    EXPECT_TRUE(is_legal(asked, without_zeros(asked))) << what;
    gemmtune_plan_info info{};
    info.size = sizeof info;
    ASSERT_EQ(gemmtune_plan_get_info(plan, &info), GEMMTUNE_OK);
    EXPECT_LE(info.workspace_bytes, std::size_t{1} << 47) << what << ": " << info.kernel_name;
    if (writes_nothing(asked)) {
      EXPECT_EQ(gemmtune_plan_run(plan, nullptr, nullptr, nullptr), GEMMTUNE_OK) << what;
    } else {
      refuse_calls(asked, plan, random);
    }
    gemmtune_plan_release(plan);
  }
  ask_for_scales(asked);
  gemmtune_operands nothing{};
  nothing.size = sizeof nothing;
  const gemmtune_status called = gemmtune_gemm(context_, asked.get(), &nothing, nullptr);
  if (writes_nothing(asked) && status == GEMMTUNE_OK && asked->weight_layout != GEMMTUNE_LAYOUT_ANY) {
    EXPECT_EQ(called, GEMMTUNE_OK) << what;
  } else {
    expect_sentence(called, what);
  }
}

void CExtremeSizes::ask_for_weights(const CProblem& asked, gemmtune_layout layout) {
  const std::string what = fmt::format("{}, layout {}", text_of(asked), layout);
  const bool legal = is_legal(asked, {1, asked->n, asked->k});
  gemmtune_layout chosen = -7;
  if (const auto status = gemmtune_weight_layout(context_, asked.get(), &chosen); status != GEMMTUNE_OK) {
    expect_sentence(status, what);
    EXPECT_FALSE(legal) << what << ": " << gemmtune_last_error();
    EXPECT_EQ(chosen, -7);
  } else {
    EXPECT_TRUE(legal) << what;
  }
  std::size_t bytes = 7;
  const gemmtune_status status = gemmtune_packed_weight_bytes(context_, asked.get(), layout, &bytes);
  if (status == GEMMTUNE_OK) {
    EXPECT_TRUE(legal) << what;
    gemmtune_problem known;
    Problem problem;
    ASSERT_EQ(c::read_problem(asked.get(), known, problem), GEMMTUNE_OK);
    const Wide plain = Wide{problem.batch} * problem.n * problem.k * bits(problem.w_type) / 8;
    EXPECT_GE(Wide{static_cast<std::int64_t>(bytes)}, plain) << what;
    EXPECT_LE(bytes, std::size_t{1} << 47) << what;
    return;
  }
  expect_sentence(status, what);
  EXPECT_EQ(bytes, 7U);
  expect_sentence(gemmtune_pack_weight(context_, asked.get(), layout, room_.data(), room_.data()), what);
  expect_sentence(gemmtune_unpack_weight(context_, asked.get(), layout, room_.data(), room_.data()), what);
}

TEST_F(CExtremeSizes, EachHasAStatusAndASentence) {
  const std::vector<Problem> all = kinds();
  Random random(seed_of_sizes());
  int legal = 0;
  const std::size_t before = peak_of_address_space();
  for (int i = 0; i < draws(); ++i) {
    const auto asked = drawn_problem(all, random);
    legal += is_legal(*asked, {(*asked)->m, (*asked)->n, (*asked)->k}) ? 1 : 0;
    plan_and_refuse(*asked, random);
    ask_for_weights(*asked, layouts[random.below(std::size(layouts))]);
    if (HasFailure() && !is_soak()) break;
  }
  EXPECT_GT(legal, draws() / 50);
  EXPECT_LT(peak_of_address_space() - before, std::size_t{1} << 30) << "bytes of memory";
}

/// Each alone, beside sizes that are legal.
TEST_F(CExtremeSizes, EachSizeByItself) {
  Random random(seed_of_sizes());
  for (const Problem& kind : kinds()) {
    CProblem asked(kind);
    for (std::int64_t* size : {&asked->m, &asked->n, &asked->k, &asked->batch}) {
      const std::int64_t legal = *size;
      for (const std::int64_t extreme : sizes) {
        *size = extreme;
        plan_and_refuse(asked, random);
      }
      *size = legal;
    }
    for (std::int32_t* count : {&asked.moe().experts, &asked.moe().topk, &asked.moe().shared_experts}) {
      const std::int32_t legal = *count;
      for (const std::int32_t extreme : counts) {
        if (!is_mixture(kind)) break;
        *count = extreme;
        plan_and_refuse(asked, random);
      }
      *count = legal;
    }
    if (HasFailure()) return;
  }
}

TEST_F(CExtremeSizes, ATuningOfThemIsRefusedOrCounted) {
  const test::TemporaryFolder folder;
  const std::string output = folder.file("tuned.csv");
  gemmtune_tuning_options options{};
  options.size = sizeof options;
  options.problem_count = 1;
  options.output = output.c_str();
  options.backend = "cpu";
  options.threads = 1;
  options.libtypes = "reference";
  options.budget_seconds = 1;
  Random random(seed_of_sizes());
  const std::vector<Problem> all = kinds();
  const std::size_t before = peak_of_address_space();
  for (int i = 0; i < draws() / 30; ++i) {
    const auto asked = drawn_problem(all, random);
    (*asked)->k = sizes[13 + random.below(4)];  // too large for any machine, or illegal
    (*asked)->n = 4096;
    if ((*asked)->weight_layout != GEMMTUNE_LAYOUT_PLAIN) (*asked)->weight_layout = GEMMTUNE_LAYOUT_ANY;
    options.problems = asked->get();
    gemmtune_tuning_summary summary{};
    summary.size = sizeof summary;
    const gemmtune_status status = gemmtune_tune(&options, &summary);
    if (status != GEMMTUNE_OK) {
      expect_sentence(status, text_of(*asked));
    } else {
      EXPECT_EQ(summary.failed + summary.unsupported, 1) << text_of(*asked);
    }
  }
  EXPECT_LT(peak_of_address_space() - before, std::size_t{1} << 30) << "bytes of memory";
}

/// Rows far apart in reserved addresses, of which only their own pages can be touched.
class FarRows {
 public:
  FarRows(std::int64_t rows, std::size_t step, std::size_t row_bytes) : step_(step), row_bytes_(row_bytes) {
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = round_up(step * static_cast<std::size_t>(rows - 1) + row_bytes, page_) + page_;
    void* map = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) std::abort();
    map_ = static_cast<unsigned char*>(map);
    for (std::int64_t row = 0; row < rows; ++row) {
      unsigned char* const first = at(row) - (at(row) - map_) % static_cast<std::ptrdiff_t>(page_);
      const auto length = round_up(static_cast<std::size_t>(at(row) + row_bytes - first), page_);
      if (mprotect(first, length, PROT_READ | PROT_WRITE) != 0) std::abort();
      std::memset(first, FencedMemory::poison, length);
      touchable_.push_back({first, length});
    }
  }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;
  ~FarRows() { munmap(map_, bytes_); }

  unsigned char* at(std::int64_t row) const { return map_ + step_ * static_cast<std::size_t>(row); }
  /// Whether only the rows themselves were written.
  bool surroundings_intact() const {
    for (std::size_t row = 0; row < touchable_.size(); ++row) {
      const auto [first, length] = touchable_[row];
      const unsigned char* const own = at(static_cast<std::int64_t>(row));
      for (const unsigned char* byte = first; byte < first + length; ++byte)
        if ((byte < own || byte >= own + row_bytes_) && *byte != FencedMemory::poison) return false;
    }
    return true;
  }

 private:
  struct Pages {
    unsigned char* first;
    std::size_t length;
  };
  std::size_t step_;
  std::size_t row_bytes_;
  std::size_t page_ = 0;
  std::size_t bytes_ = 0;
  unsigned char* map_ = nullptr;
  std::vector<Pages> touchable_;
};

/// Empty, or what is wrong with a call whose rows are the longest leading dimension apart.
std::string run_far_apart(gemmtune_context* context, const Problem& problem) {
  const auto host = make_inputs(problem, 3);
  const auto reference = compute_reference(problem, *host, {});
  const std::int64_t columns = output_columns(problem);
  const std::int64_t rows = problem.batch * problem.m;
  const std::int64_t leading = max_dimension - 1;  // even: two elements of fp4 share a byte
  const auto x_row = static_cast<std::size_t>(bytes_of(problem.x_type, problem.k));
  const auto y_row = static_cast<std::size_t>(bytes_of(problem.y_type, columns));
  const FarRows x(rows, static_cast<std::size_t>(bytes_of(problem.x_type, leading)), x_row);
  const FarRows y(rows, static_cast<std::size_t>(bytes_of(problem.y_type, leading)), y_row);
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(x.at(row), host->x.data() + static_cast<std::size_t>(row) * x_row, x_row);
  const CProblem asked(problem);
  gemmtune_plan* plan = nullptr;
  if (gemmtune_plan_create(context, asked.get(), &plan) != GEMMTUNE_OK) return gemmtune_last_error();
  gemmtune_plan_info info{};
  info.size = sizeof info;
  (void)gemmtune_plan_get_info(plan, &info);
  const std::string name = info.kernel_name;
  const FencedMemory workspace(round_up(info.workspace_bytes, std::size_t{64}), Fence::after);
  test::FencedOperands operands(problem, *host, Fence::after);
  gemmtune_operands given = operands.given();
  given.x = x.at(0);
  given.y = y.at(0);
  given.ldx = given.ldy = leading;
  const gemmtune_status status = gemmtune_plan_run(plan, &given, workspace.data(), nullptr);
  gemmtune_plan_release(plan);
  if (status != GEMMTUNE_OK) return name + ": " + gemmtune_last_error();
  std::vector<std::byte> dense(static_cast<std::size_t>(rows) * y_row);
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(dense.data() + static_cast<std::size_t>(row) * y_row, y.at(row), y_row);
  const CheckReport report = check_output(problem, *reference, dense, columns, tolerance_for(problem, 0.05));
  if (!report.right) return name + ": " + report.reason;
  return y.surroundings_intact() && workspace.surroundings_intact() ? "" : name + " wrote outside";
}

/// With the fallback, then with the default kernel of every family that takes the problem.
TEST_F(CExtremeSizes, RowsMayBeTheLongestLeadingDimensionApart) {
  DeviceRequest request;
  request.text = "cpu";
  request.threads = 2;
  const auto device = open_device("cpu", request);
  ASSERT_TRUE(device.ok()) << device.message();
  const test::TemporaryFolder folder;
  int kernels = 0;
  for (Problem problem : kinds()) {
    problem.m = 3;
    problem.alignment = 1;
    EXPECT_EQ(run_far_apart(context_, problem), "") << print(problem);
    for (const KernelFamily* family : (*device)->families()) {
      if (!family->accepts(problem).ok()) continue;
      TunedEntry row;
      row.gfx = (*device)->info().gfx;
      row.cu_num = (*device)->info().cu_num;
      row.problem = problem;
      row.us = 50;
      row.libtype = family->name();
      row.kernel_name =
          Candidate{row.libtype, family->revision(), family->default_config(problem)}.kernel_name();
      if (is_mixture(problem)) row.stages = std::make_shared<MoeStages>();
      const std::string path =
          folder.write("t.csv", write_tuned_csv(form_of(problem), {row}, CsvSchema::aiter));
      gemmtune_context* const tuned =
          test::open_cpu_context({{c::operation_to_c(form_of(problem)), path.c_str()}});
      EXPECT_EQ(run_far_apart(tuned, problem), "") << print(problem);
      gemmtune_counters answers{};
      answers.size = sizeof answers;
      EXPECT_EQ(gemmtune_context_counters(tuned, &answers), GEMMTUNE_OK);
      kernels += static_cast<int>(answers.exact + answers.coarse);
      gemmtune_context_destroy(tuned);
    }
  }
  EXPECT_GT(kernels, 30);
}

}  // namespace
}  // namespace gemmtune
