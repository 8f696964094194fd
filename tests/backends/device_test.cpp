// The CPU device as its users see it: kernel names, weights, samples, defaults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/families/skinny/skinny.h"
#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/machine/timer.h"
#include "backends/default_kernels.h"
#include "backends/forwarding_device.h"
#include "backends/gpu/families/element_code.h"
#include "backends/library_baseline.h"
#include "backends/traits.h"
#include "support/fake_device.h"

namespace gemmtune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Device& device() {
  static const auto opened = open_device("cpu", {});
  return **opened;
}

Problem problem_of(std::int64_t m, DataType type) {
  Problem problem;
  problem.m = m;
  problem.n = 96;
  problem.k = 64;
  problem.x_type = problem.w_type = problem.y_type = type;
  return problem;
}

Problem packed(Problem problem, WeightLayout layout) {
  problem.weight_layout = layout;
  return problem;
}

/// An anonymous mapping, from a huge page's begin on.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes + 2 * page) {
    mapping_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(mapping_) / page + 1) * page);
  }
  ~Pages() { ::munmap(mapping_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* data() const { return data_; }
  /// Kilobytes on huge pages, of the part of the mapping that begins with data().
  std::int64_t huge_kilobytes() const {
    std::ifstream maps("/proc/self/smaps");
    const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(data_));
    bool is_it = false;
    for (std::string line; std::getline(maps, line);) {
      is_it = is_it || line.starts_with(begin);
      if (is_it && line.starts_with("AnonHugePages:")) return std::stoll(line.substr(14));
    }
    return 0;
  }

 private:
  static constexpr std::size_t page = std::size_t{2} << 20;
  void* mapping_;
  std::size_t bytes_;
  char* data_;
};

/// Whether this system gives huge pages to memory that asks for them: before it is touched, or after.
bool gives_huge_pages(std::size_t bytes, bool touched) {
  constexpr int collapse = 25;  // MADV_COLLAPSE, Linux 6.1
  const Pages pages(bytes);
  if (touched) std::memset(pages.data(), 1, bytes);
  (void)::madvise(pages.data(), bytes, MADV_HUGEPAGE);
  if (touched) return ::madvise(pages.data(), bytes, collapse) == 0;
  std::memset(pages.data(), 1, bytes);
  return pages.huge_kilobytes() > 0;
}

TEST(CpuDevice, APackedWeightLiesOnHugePagesWhateverWasThereBefore) {
  Problem problem = problem_of(1, DataType::bf16);
  problem.n = problem.k = 1536;  // two huge pages and a quarter
  const auto bytes = static_cast<std::size_t>(problem.n * problem.k * 2);
  const std::vector<std::uint16_t> plain(bytes / 2, 0x3f80);
  for (const bool touched : {false, true}) {
    const Pages pages(bytes);
    // Where a system has huge pages everywhere, too, they are there because packing asks for them.
    ASSERT_EQ(::madvise(pages.data(), bytes, MADV_NOHUGEPAGE), 0);
    if (touched) std::memset(pages.data(), 1, bytes);
    ASSERT_TRUE(device()
                    .pack_weight(packed(problem, WeightLayout::panel16), WeightLayout::panel16, plain.data(),
                                 pages.data())
                    .ok());
    EXPECT_EQ(std::memcmp(pages.data(), plain.data(), bytes), 0);
    if (gives_huge_pages(bytes, touched)) {
      EXPECT_EQ(pages.huge_kilobytes(), 2 * 2048) << "touched: " << touched;
    }
  }
}

TEST(CpuDevice, DescribesItself) {
  const DeviceInfo& info = device().info();
  EXPECT_EQ(info.backend, "cpu");
  EXPECT_GE(info.cu_num, 1);
  EXPECT_FALSE(info.model.empty());
  EXPECT_GT(device().free_memory_bytes(), std::size_t{1} << 20);
  for (const char* name : {"tiled", "skinny", "reference"})
    EXPECT_NE(device().find_family(name), nullptr) << name;
  EXPECT_EQ(device().find_family("nonsense"), nullptr);
  EXPECT_EQ(device().families().back()->name(), "reference");
}

TEST(CpuDevice, UsesTheFirstThreadsOfTheSet) {
  DeviceRequest request;
  request.threads = 1;
  const auto one = open_device("cpu", request);
  ASSERT_TRUE(one.ok()) << one.message();
  EXPECT_EQ((*one)->info().cu_num, 1);
  request.text = (*one)->info().name;
  const auto again = open_device("cpu", request);
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ((*again)->info().name, (*one)->info().name);
}

TEST(CpuDevice, ResolvesTheNameOfEveryDefault) {
  for (const KernelFamily* family : device().families()) {
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      for (const std::int64_t m : {1, 16, 100}) {
        const Problem problem = problem_of(m, type);
        if (!family->accepts(problem).ok()) continue;
        const Candidate candidate{std::string(family->name()), family->revision(),
                                  family->default_config(problem)};
        const auto resolved = device().resolve(candidate.kernel_name(), problem);
        ASSERT_TRUE(resolved.ok()) << resolved.message();
        EXPECT_EQ(*resolved, candidate);
        EXPECT_TRUE(device().build(*resolved, problem).ok());
      }
    }
  }
}

TEST(CpuDevice, RefusesOtherNamesWithAReason) {
  const Problem problem = problem_of(16, DataType::f32);
  const auto why = [&](const std::string& name) { return device().resolve(name, problem).message(); };
  EXPECT_THAT(why("_ZN7ck_tile6kernelE"), HasSubstr("none of gemmtune's"));
  EXPECT_THAT(why(""), HasSubstr("none of gemmtune's"));
  EXPECT_THAT(why("wgmma_r1_bm64"), AllOf(HasSubstr("'wgmma'"), HasSubstr("tiled")));
  EXPECT_THAT(why("tiled_r999"), HasSubstr("revision 999"));
  EXPECT_THAT(why("tiled_r1_nosuchkey8"), HasSubstr("nosuchkey8"));
  EXPECT_THAT(why("tiled_r1_mr77777"), AllOf(HasSubstr("mr"), HasSubstr("77777")));
  EXPECT_EQ(device().resolve("skinny_r1", problem_of(4096, DataType::f32)).code(), StatusCode::unsupported);
  Candidate stranger{"tiled", 1, {}};
  stranger.config.set("zz", std::string("1"));
  EXPECT_THAT(device().build(stranger, problem).message(), HasSubstr("no parameter zz"));
  EXPECT_EQ(device().build({"wgmma", 1, {}}, problem).code(), StatusCode::not_found);
}

// The device checks for all families; they build what they are given.
TEST(CpuDevice, BuildsOnlyWhatTheSpaceHolds) {
  for (const char* name : {"tiled", "skinny", "reference"}) {
    const KernelFamily& family = *device().find_family(name);
    const Problem plain = problem_of(16, DataType::f32);
    const Problem panels = packed(plain, WeightLayout::panel16);
    const auto refusal_of = [&](const Problem& problem, const char* key, const char* value) {
      Candidate changed{name, family.revision(), {}};
      const Config config = family.default_config(problem);
      for (const auto& [known, text] : config.settings())
        if (known != key) changed.config.set(known, text);
      if (value != nullptr) changed.config.set(key, std::string(value));
      return device().build(changed, problem).status().message();
    };
    EXPECT_EQ(refusal_of(plain, "w", "plain"), "") << name;
    EXPECT_EQ(refusal_of(plain, "w", nullptr), "") << name;
    EXPECT_THAT(refusal_of(plain, "w", "panel16"), HasSubstr("w (weight layout) is panel16")) << name;
    EXPECT_THAT(refusal_of(panels, "w", nullptr), HasSubstr("w is not the weight's layout")) << name;
    EXPECT_THAT(refusal_of(panels, "w", "plain"), HasSubstr("w is not the weight's layout")) << name;
    EXPECT_THAT(refusal_of(plain, "bogus", "1"), HasSubstr("no parameter bogus")) << name;
    if (family.default_config(plain).find("isa") == nullptr) continue;
    EXPECT_THAT(refusal_of(plain, "isa", "avx1024"), HasSubstr("isa (instruction set) is avx1024")) << name;
  }
}

TEST(CpuDevice, PacksAndUnpacksEveryLayout) {
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    Problem problem = problem_of(0, type);  // a weight has no M
    std::vector<unsigned char> plain(static_cast<std::size_t>(weight_bytes(problem)));
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<unsigned char>(i * 31 % 113);
    for (const WeightLayout layout : {WeightLayout::plain, WeightLayout::panel16, WeightLayout::onednn}) {
      const auto bytes = device().packed_bytes(problem, layout);
      if (layout == WeightLayout::onednn && !bytes.ok()) {
        EXPECT_EQ(bytes.code(), StatusCode::unsupported) << bytes.message();
        continue;
      }
      ASSERT_TRUE(bytes.ok()) << bytes.message();
      EXPECT_GE(*bytes, plain.size());
      auto weight = device().allocate(*bytes, Placement::guarded);
      ASSERT_TRUE(device().pack_weight(problem, layout, plain.data(), (*weight)->data()).ok());
      EXPECT_TRUE((*weight)->guards_intact().ok());
      std::vector<unsigned char> back(plain.size());
      ASSERT_TRUE(device().unpack_weight(problem, layout, (*weight)->data(), back.data()).ok());
      EXPECT_EQ(back, plain);
    }
  }
}

TEST(CpuDevice, RefusesWeightsThatCannotBe) {
  Problem problem = problem_of(1, DataType::f32);
  EXPECT_THAT(device().packed_bytes(problem, WeightLayout::any).message(), HasSubstr("any"));
  EXPECT_THAT(device().pack_weight(problem, WeightLayout::panel16, nullptr, nullptr).message(),
              HasSubstr("null"));
  problem.n = problem.k = max_dimension;
  EXPECT_EQ(device().packed_bytes(problem, WeightLayout::panel16).code(), StatusCode::invalid_argument);
  problem.n = std::int64_t{1} << 31;
  EXPECT_EQ(device().packed_bytes(problem, WeightLayout::plain).code(), StatusCode::invalid_argument);
  problem.n = max_dimension;
  problem.k = 16000;  // plain fits into 2⁴⁷ bytes
  EXPECT_TRUE(device().packed_bytes(problem, WeightLayout::plain).ok());
}

/// Operands of a problem on the device, dense.
struct Prepared {
  std::unique_ptr<Kernel> kernel;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Operands> rotation;
  SampleRequest request;
};

Prepared prepare(Device& on, const Problem& problem, const Candidate& candidate) {
  Prepared made;
  made.kernel = on.build(candidate, problem).value();
  const auto add = [&](std::size_t bytes) {
    made.buffers.push_back(on.allocate(bytes, Placement::plain).value());
    EXPECT_TRUE(on.fill(made.buffers.back()->data(), 0, bytes).ok());
    return made.buffers.back()->data();
  };
  for (int copy = 0; copy < 3; ++copy) {
    Operands operands;
    operands.x = add(static_cast<std::size_t>(bytes_of(problem.x_type, problem.m * problem.k)));
    operands.w = add(static_cast<std::size_t>(weight_bytes(problem)));
    operands.y = add(static_cast<std::size_t>(bytes_of(problem.y_type, problem.m * problem.n)));
    operands.ldx = problem.k;
    operands.ldy = problem.n;
    made.rotation.push_back(operands);
  }
  made.request = {made.kernel.get(), made.rotation, 0, 4, add(made.kernel->workspace_bytes())};
  return made;
}

TEST(CpuDevice, SamplesTakeTime) {
  const Problem problem = problem_of(16, DataType::f32);
  for (const KernelFamily* family : device().families()) {
    if (!family->accepts(problem).ok()) continue;
    auto prepared =
        prepare(device(), problem,
                {std::string(family->name()), family->revision(), family->default_config(problem)});
    prepared.request.rotation = prepared.rotation;
    device().quiesce(family->thread_pool());
    const auto microseconds = device().sample(prepared.request);
    ASSERT_TRUE(microseconds.ok()) << microseconds.message();
    EXPECT_GT(*microseconds, 0.0) << family->name();
    EXPECT_LT(*microseconds, 1e6) << family->name();
  }
}

/// Notes when it runs.
class NotingKernel final : public Kernel {
 public:
  explicit NotingKernel(std::string& notes) : notes_(notes) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands&, void*, Stream) const override {
    notes_ += 'k';
    return {};
  }

 private:
  std::string& notes_;
};

TEST(CpuTimer, LeavesOutWhatRunsBeforeEachCall) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  std::string notes;
  const NotingKernel kernel(notes);
  const Operands operands;
  const SampleRequest request{.kernel = &kernel, .rotation = {&operands, 1}, .launches = 3};
  Microseconds passes{};
  const auto begin = std::chrono::steady_clock::now();
  const auto mean = cpu::time_batch(request, {}, [&] {
    const auto pass = std::chrono::steady_clock::now();
    notes += 'p';
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    passes += std::chrono::steady_clock::now() - pass;
  });
  const Microseconds all = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(mean.ok()) << mean.message();
  EXPECT_EQ(notes, "pkpkpk");
  EXPECT_LE(*mean * 3, (all - passes).count());
}

TEST(CpuDevice, SamplesWithAParallelPassTakeTime) {
  const Problem problem = problem_of(16, DataType::f32);
  auto prepared = prepare(device(), problem, *device().fallback(problem));
  prepared.request.rotation = prepared.rotation;
  prepared.request.parallel_pass = true;
  const auto microseconds = device().sample(prepared.request);
  ASSERT_TRUE(microseconds.ok()) << microseconds.message();
  EXPECT_GT(*microseconds, 0.0);
}

TEST(CpuDevice, SamplesOfPinnedDevicesLeaveTheCallerAsItWas) {
  DeviceRequest request;
  request.pin_threads = true;
  const auto pinned = open_device("cpu", request);
  ASSERT_TRUE(pinned.ok()) << pinned.message();
  const auto cores = cpu::thread_affinity();
  const Problem problem = problem_of(16, DataType::f32);
  for (const KernelFamily* family : (*pinned)->families()) {
    if (!family->accepts(problem).ok()) continue;
    auto prepared =
        prepare(**pinned, problem,
                {std::string(family->name()), family->revision(), family->default_config(problem)});
    prepared.request.rotation = prepared.rotation;
    (*pinned)->quiesce(family->thread_pool());
    EXPECT_TRUE((*pinned)->sample(prepared.request).ok());
    EXPECT_EQ(cpu::thread_affinity(), cores) << family->name();
  }
}

TEST(CpuDevice, RefusesEmptySamples) {
  const Problem problem = problem_of(4, DataType::f32);
  auto prepared = prepare(device(), problem, *device().fallback(problem));
  SampleRequest request = prepared.request;
  request.rotation = prepared.rotation;
  EXPECT_TRUE(device().sample(request).ok());
  request.launches = 0;
  EXPECT_THAT(device().sample(request).message(), HasSubstr("launches = 0"));
  request.launches = 1;
  request.rotation = {};
  EXPECT_THAT(device().sample(request).message(), HasSubstr("rotation"));
  EXPECT_THAT(device().sample({}).message(), HasSubstr("no kernel"));
}

/// The families that take the problem, by name; the others are there too and refuse it.
std::string chosen(bool baseline, std::vector<std::string_view> takers, std::int64_t m) {
  testing::FakeDevice fake;
  for (const std::string_view name : {"reference", "tiled", "skinny", "openblas", "onednn"}) {
    const bool takes = std::find(takers.begin(), takers.end(), name) != takers.end();
    fake.add({.name = std::string(name), .accepts = [name, takes](const Problem&) {
                return takes ? Status() : Status::unsupported("{}: data types: none", name);
              }});
  }
  const Problem problem = problem_of(m, DataType::f32);
  const FamilyInfos known = traits_of("cpu").families;
  const auto candidate =
      baseline ? choose_baseline(known, fake, problem) : choose_fallback(known, fake, problem);
  return candidate.ok() ? candidate->family : candidate.message();
}

TEST(Defaults, BaselineIsWhatAUserHasWithoutUs) {
  EXPECT_EQ(chosen(true, {"onednn", "openblas", "tiled"}, 4), "onednn");
  EXPECT_EQ(chosen(true, {"openblas", "tiled", "reference"}, 4), "openblas");
  EXPECT_THAT(chosen(true, {"tiled", "skinny", "reference"}, 4),
              AllOf(HasSubstr("onednn: data types: none"), HasSubstr("openblas: data types: none")));
}

TEST(Defaults, FallbackIsOnednnThenOursNeverTheReference) {
  EXPECT_EQ(chosen(false, {"onednn", "openblas", "tiled", "skinny"}, 4), "onednn");
  EXPECT_EQ(chosen(false, {"openblas", "tiled", "skinny", "reference"}, 4), "skinny");
  EXPECT_EQ(chosen(false, {"openblas", "tiled", "skinny", "reference"}, 64), "tiled");
  EXPECT_EQ(chosen(false, {"tiled"}, 1), "tiled");
  EXPECT_THAT(chosen(false, {"openblas", "reference"}, 1), HasSubstr("skinny: data types: none"));
}

/// Which rows of x those are: RowReadsOfAProcessor in tests/backends/cpu/row_reads_test.cpp.
TEST(Defaults, FewRowsRunSkinnyInPlaceOfOnednnWhereItWasMeasuredAhead) {
  testing::FakeDevice fake;
  for (const char* name : {"onednn", "skinny", "tiled"}) fake.add({.name = name});
  const FamilyInfos known = traits_of("cpu").families;
  const auto runs = [&](const char* architecture, const Problem& problem) {
    fake.change_info().gfx = architecture;
    EXPECT_EQ(choose_baseline(known, fake, problem)->family, "onednn") << "what a user has without us";
    return choose_fallback(known, fake, problem)->family;
  };
  for (const DataType type : {DataType::bf16, DataType::f32, DataType::f16})
    for (const char* architecture : {"x86-scalar", "x86-avx2", "x86-avx512", "x86-avx512bf16", "x86-amx"})
      for (int m = 1; m <= 64; m *= 2) {
        const Problem problem = problem_of(m, type);
        const bool leads = cpu::skinny_leads_untuned(problem, architecture, cpu::detect_row_reads());
        EXPECT_EQ(runs(architecture, problem), leads ? "skinny" : "onednn")
            << architecture << " " << print(problem);
      }
  EXPECT_EQ(runs("x86-avx512bf16", problem_of(1, DataType::bf16)), "skinny") << "on every processor";
}

/// bench/results/xeon_amx/packed_untuned.csv and epyc_zen4/in_a_program_untuned.csv. Whoever packs asks for one M, and the weight then serves all.
TEST(Defaults, PackedWeightsOfBf16RunOurPanelsWithAmxAndOnZen4) {
  testing::FakeDevice fake;
  for (const char* name : {"onednn", "skinny", "tiled"}) fake.add({.name = name});
  const FamilyInfos known = traits_of("cpu").families;
  for (const char* architecture : {"x86-avx2", "x86-avx512", "x86-avx512bf16", "x86-amx"})
    for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32})
      for (const WeightLayout layout : {WeightLayout::any, WeightLayout::panel16})
        for (const std::int64_t k : {256, 512, 513, 8192})
          for (const std::int64_t m : {1, 32, 512, 513, 4096}) {
            fake.change_info().gfx = architecture;
            Problem problem = packed(problem_of(m, type), layout);
            problem.k = k;
            const bool ours = type == DataType::bf16 && (k > 512 || layout == WeightLayout::panel16);
            const bool unaided = std::string_view(architecture) == "x86-avx512bf16" &&
                                 cpu::detect_row_reads() == cpu::RowReads::unaided;
            const char* leader = unaided ? (m <= 16 ? "skinny" : "tiled")
                                 : std::string_view(architecture) == "x86-amx" ? "skinny"
                                                                               : nullptr;
            EXPECT_EQ(choose_fallback(known, fake, problem)->family,
                      ours && leader != nullptr ? leader : "onednn")
                << architecture << " " << print(problem);
            EXPECT_EQ(choose_baseline(known, fake, problem)->family, "onednn")
                << "what a user has without us";
          }
}

TEST(CpuDevice, AnUntunedPackedWeightHasOneLayoutForEveryM) {
  for (const DataType type : {DataType::bf16, DataType::f32})
    for (const std::int64_t k : {256, 768, 1024}) {
      Problem problem = packed(problem_of(1, type), WeightLayout::any);
      problem.k = k;
      const auto layout_at = [&](std::int64_t m, WeightLayout asked) {
        problem.m = m;
        problem.weight_layout = asked;
        const auto candidate = device().fallback(problem);
        return candidate.ok() ? std::string(candidate->config.word("w")) : candidate.message();
      };
      const std::string chosen = layout_at(1, WeightLayout::any);
      for (const std::int64_t m : {16, 33, 512, 513, 4096}) {
        EXPECT_EQ(layout_at(m, WeightLayout::any), chosen) << print(problem);
        for (const WeightLayout asked : {WeightLayout::panel16, WeightLayout::onednn}) {
          if (!device().packed_bytes(problem, asked).ok()) continue;
          EXPECT_EQ(layout_at(m, asked), to_string(asked)) << print(problem);
        }
      }
    }
}

/// bench/results/epyc_zen5/few_rows_four_bit.csv.
TEST(Defaults, FewRowsOfFourBitWeightsRunSkinnyW4WhereItWasMeasuredAheadOfQuantized) {
  testing::FakeDevice fake;
  for (const char* name : {"skinny_w4", "quantized"}) fake.add({.name = name});
  const FamilyInfos known = traits_of("cpu").families;
  const auto max_rows = [&](const char* architecture, Operation operation, DataType x_type, std::int64_t k) {
    fake.change_info().gfx = architecture;
    Problem problem = default_problem({operation, false});
    problem.x_type = x_type;
    problem.n = 2048;
    problem.k = k;
    int rows = 0;
    for (int m = 1; m <= 160; ++m) {
      problem.m = m;
      if (choose_fallback(known, fake, problem)->family != "skinny_w4") continue;
      EXPECT_EQ(rows, m - 1) << "fewer rows too: " << print(problem);
      rows = m;
    }
    return rows;
  };
  struct Case {
    Operation operation;
    DataType x_type;
    std::vector<int> rows;  // with K of 256, 512, 896, 1536, 4096 and 8192
  };
  const std::vector<int> others = {16, 16, 32, 32, 32, 16};
  const std::vector<int> all(6, 160);  // bench/results/xeon_amx/four_bit_cpu.csv
  for (const auto& [operation, x_type, rows] :
       {Case{Operation::a16w4_int4, DataType::bf16, {8, 16, 32, 48, 48, 32}},
        {Operation::a16w4_nvfp4, DataType::bf16, {8, 16, 32, 48, 48, 32}},
        {Operation::a16w4, DataType::bf16, {8, 16, 24, 32, 32, 32}},
        {Operation::a16w4_int4, DataType::f16, others},
        {Operation::a8w4_int4, DataType::i8, {16, 32, 128, 128, 128, 64}}}) {
    std::vector<int> here;
    std::vector<int> with_amx;
    for (const std::int64_t k : {256, 512, 896, 1536, 4096, 8192}) {
      here.push_back(max_rows("x86-avx512bf16", operation, x_type, k));
      with_amx.push_back(max_rows("x86-amx", operation, x_type, k));
    }
    EXPECT_EQ(here, rows) << to_string(OperationForm{operation, false}) << " " << to_string(x_type);
    EXPECT_EQ(with_amx, x_type == DataType::f16 ? others : all)
        << to_string(OperationForm{operation, false}) << " " << to_string(x_type);
  }
}

/// bench/results/h100/few_rows.csv: ahead at every size of the kind, on Hopper alone.
TEST(Defaults, FewRowsRunHoppersKernelsInPlaceOfCublasLtWhereTheyWereMeasuredAhead) {
  testing::FakeDevice fake;
  for (const char* name : {"cublaslt", "skinny", "wgmma"})
    fake.add({.name = name, .accepts = [](const Problem&) { return Status(); }});
  const FamilyInfos known = traits_of("cuda").families;
  const auto runs = [&](const Problem& problem, const char* architecture = "sm_90") {
    fake.change_info().gfx = architecture;
    EXPECT_EQ(choose_baseline(known, fake, problem)->family, "cublaslt") << "what a user has without us";
    return choose_fallback(known, fake, problem)->family;
  };
  const auto sized = [](int m, int n, int k, DataType type = DataType::bf16) {
    Problem problem = problem_of(m, type);
    problem.n = n;
    problem.k = k;
    return problem;
  };
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const int m : {1, 8, 16}) {
      EXPECT_EQ(runs(sized(m, 256, 7168, type)), "skinny") << m;
      EXPECT_EQ(runs(sized(m, 1280, 8192, type)), "wgmma") << m;
      EXPECT_EQ(runs(sized(m, 24576, 1536, type)), "wgmma") << m;
      EXPECT_EQ(runs(sized(m, 10240, 5120, type)), "cublaslt") << m;
      EXPECT_EQ(runs(sized(m, 512, 4096, type)), "cublaslt") << "no measured size: " << m;
    }
    EXPECT_EQ(runs(sized(17, 2048, 2048, type)), "cublaslt");
    EXPECT_EQ(runs(sized(1, 2048, 2048, type), "sm_80"), "cublaslt");
  }
  EXPECT_EQ(runs(sized(1, 2048, 2048, DataType::f32)), "cublaslt");
  Problem other = sized(1, 2048, 2048);
  other.y_type = DataType::f32;
  EXPECT_EQ(runs(other), "cublaslt");
  other = sized(1, 2048, 2048);
  other.w_order = Order::column_major;
  EXPECT_EQ(runs(other), "cublaslt");
  EXPECT_EQ(runs(packed(sized(1, 2048, 2048), WeightLayout::any)), "cublaslt");
}

TEST(Defaults, TheLibraryIsTheBaselineWhereItIsAskedFor) {
  /// Its library takes one row of x; untuned calls run a family of ours.
  class OursFirst : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    Result<Candidate> baseline(const Problem& problem) const override {
      if (problem.m > 1) return Status::not_found("no library takes it");
      return Candidate{"vendor", 1, {}};
    }
    Result<Candidate> fallback(const Problem&) const override { return Candidate{"ours", 1, {}}; }
  };
  const auto family = [](const Device& of, int m) {
    return default_kernel(of, problem_of(m, DataType::bf16), AccuracyPolicy::keep)->family;
  };
  testing::FakeDevice fake;
  EXPECT_EQ(family(OursFirst(fake), 1), "ours");
  const auto against_library = with_library_baseline(std::make_unique<OursFirst>(fake));
  EXPECT_EQ(family(*against_library, 1), "vendor");
  EXPECT_EQ(family(*against_library, 2), "ours");
}

/// An opponent is what an untuned call runs, but for the library's fast call.
TEST(Defaults, TheDefaultKernelIsTheFallbackAndOfFastTheLibrarys) {
  const Problem one = problem_of(1, DataType::f32);
  const auto untuned = device().fallback(one);
  ASSERT_TRUE(untuned.ok()) << untuned.message();
  EXPECT_EQ(*default_kernel(device(), one, AccuracyPolicy::keep), *untuned);
  const auto library = library_kernel(device(), one, AccuracyPolicy::fast);
  EXPECT_EQ(*default_kernel(device(), one, AccuracyPolicy::fast), library.ok() ? *library : *untuned);
}

TEST(Defaults, TheDefaultKernelOfFp32IsTheFirstOfThatClass) {
  class TensorCoresFirst : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    Result<Candidate> fallback(const Problem&) const override { return Candidate{"mma", 1, {}}; }
  };
  testing::FakeDevice fake;
  fake.change_info().backend = "cuda";
  fake.change_info().gfx = "sm_80";
  fake.add({.name = "mma", .accuracy = Accuracy::tensor_core});
  fake.add({.name = "simt"});
  const TensorCoresFirst device(fake);
  const Problem problem = problem_of(32, DataType::bf16);
  EXPECT_EQ(default_kernel(device, problem, AccuracyPolicy::keep)->family, "mma");
  const auto exact = default_kernel(device, problem, AccuracyPolicy::fp32);
  ASSERT_TRUE(exact.ok()) << exact.message();
  EXPECT_EQ(exact->family, "simt");
}

/// cuBLASLt is what a user has without us, and slow where its sums are of the class fp32.
TEST(Defaults, ScalesOfRowsRunOursBeforeCublasLt) {
  testing::FakeDevice fake;
  for (const char* name : {"cublaslt", "wgmma"}) fake.add({.name = name});
  const FamilyInfos known = traits_of("cuda").families;
  Problem scaled = default_problem(Operation::a8w8);
  scaled.m = scaled.n = scaled.k = 64;
  EXPECT_EQ(choose_fallback(known, fake, scaled)->family, "wgmma");
  EXPECT_EQ(choose_baseline(known, fake, scaled)->family, "cublaslt");
  EXPECT_EQ(choose_fallback(known, fake, problem_of(64, DataType::bf16))->family, "cublaslt");
}

/// wgmma and skinny have fitted times, cublaslt has none. bench/results/h200/cost_wgmma.csv and cost_skinny.csv: 16 x 6144 x 4096 of fp8 with a
/// scale a row takes wgmma 7.9 us, and skinny 12.5, which is first by its rank.
TEST(Defaults, OfFamiliesWithFittedTimesTheFastestByItsModelRuns) {
  const FamilyInfos known = traits_of("cuda").families;
  Problem scaled = default_problem(Operation::a8w8);
  scaled.m = scaled.n = scaled.k = 128;
  const auto runs = [&](double skinny, double wgmma, const Problem& problem, bool vendor = false) {
    testing::FakeDevice fake;
    fake.add({.name = "skinny", .predicted_us = skinny});
    fake.add({.name = "wgmma", .predicted_us = wgmma});
    fake.add({.name = "simt", .predicted_us = 1});
    if (vendor) fake.add({.name = "cublaslt"});
    return choose_fallback(known, fake, problem)->family;
  };
  EXPECT_EQ(runs(12.5, 7.9, scaled), "wgmma");
  EXPECT_EQ(runs(6.7, 6.9, scaled), "skinny");
  EXPECT_EQ(runs(7, 7, scaled), "skinny") << "the rank decides between equals";
  EXPECT_EQ(runs(12.5, 7.9, problem_of(64, DataType::bf16)), "wgmma");
  EXPECT_EQ(runs(12.5, 7.9, problem_of(64, DataType::bf16), true), "cublaslt")
      << "its times are not predicted";
}

TEST(Refusals, NameTheFamilyOnceWhereSeveralAreListed) {
  Problem mixture = default_problem(Operation::fused_moe);
  mixture.m = mixture.n = mixture.k = 64;
  mixture.moe.experts = mixture.moe.topk = 2;
  mixture.moe.activation = Activation::situv2;
  int refused = 0;
  for (const KernelFamily* family : device().families()) {
    const std::string name(family->name());
    const Status accepted = family->accepts(mixture);
    if (accepted.ok()) continue;
    ++refused;
    EXPECT_THAT(accepted.message(), Not(StartsWith(name)));
    const auto built = device().build({name, family->revision(), {}}, mixture);
    EXPECT_EQ(built.message(), name + ": " + accepted.message());
  }
  EXPECT_GE(refused, 4);
  EXPECT_THAT(device().fallback(mixture).message(),
              AllOf(HasSubstr("skinny: operation: "), Not(HasSubstr("skinny: skinny"))));
  EXPECT_THAT(gpu::accepts_dense(mixture).message(), StartsWith("operation: fused_moe"));
}

TEST(Defaults, FollowTheWeightsLayoutOnThisDevice) {
  const Problem panels = packed(problem_of(4, DataType::bf16), WeightLayout::panel16);
  EXPECT_EQ(device().fallback(panels)->family, "skinny");
  EXPECT_EQ(device().fallback(packed(problem_of(64, DataType::bf16), WeightLayout::panel16))->family,
            device().info().gfx == "x86-amx" ? "skinny" : "tiled");
  EXPECT_EQ(device().fallback(problem_of(64, DataType::f16))->family,
            device().find_family("onednn") != nullptr &&
                    device().find_family("onednn")->accepts(problem_of(64, DataType::f16)).ok()
                ? "onednn"
                : "tiled");
  if (device().find_family("onednn") == nullptr) GTEST_SKIP() << device().missing_family("onednn").message();
  const Problem undecided = packed(problem_of(4, DataType::f32), WeightLayout::any);
  const auto baseline = device().baseline(undecided);
  ASSERT_TRUE(baseline.ok()) << baseline.message();
  EXPECT_EQ(baseline->kernel_name(), "onednn_r1_wonednn");
  EXPECT_EQ(device().baseline(problem_of(4, DataType::f32))->kernel_name(), "onednn_r1_wplain");
  EXPECT_EQ((*device().build(*baseline, undecided))->weight_layout(), WeightLayout::onednn);
}

}  // namespace
}  // namespace gemmtune
