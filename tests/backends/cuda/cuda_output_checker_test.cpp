// The reference and the comparisons on a GPU: the same as the host's, on awkward shapes and all types, and
// for kernels that are broken on purpose. Skips where there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "backends/output_checker.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "problem/operands.h"
#include "support/dense_problem.h"
#include "support/first_gpu.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

class CudaOutputChecker : public OnGpu {};

int cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

struct Size {
  std::int64_t m, n, k;
};

TEST_F(CudaOutputChecker, ItsReferenceIsTheHosts) {
  const Size sizes[] = {{1, 1, 16}, {1, 65, 144},  {3, 130, 4096}, {9, 4097, 48}, {64, 64, 64},
                        {5, 7, 3},  {65, 129, 80}, {200, 333, 77}, {17, 1, 1},    {128, 512, 2049}};
  const std::pair<DataType, DataType> types[] = {{DataType::bf16, DataType::bf16},
                                                 {DataType::bf16, DataType::f32},
                                                 {DataType::f16, DataType::f16},
                                                 {DataType::f32, DataType::f32},
                                                 {DataType::f8_e4m3fn, DataType::bf16}};
  int turn = 0;
  for (const Size& size : sizes) {
    std::vector<Problem> problems{
        quantized(Operation::a8w8, size.m, size.n, size.k, DataType::i8, size.m % 2 == 0),
        quantized(Operation::a8w8, size.m, size.n, size.k, DataType::f8_e4m3fn),
        quantized(Operation::a8w8_blockscale, size.m, size.n, size.k, DataType::f8_e4m3fn),
        with_e8m0_scales(size.m, size.n, size.k)};
    for (const auto& [x, y] : types) problems.push_back(dense(size.m, size.n, size.k, x, y, ++turn % 2 == 0));
    problems.push_back(batched(3, size.m, size.n, size.k, DataType::bf16, turn % 2 == 0));
    problems.push_back(batched(2, size.m, size.n, size.k, DataType::i8));
    for (const Problem& problem : problems) {
      const auto host = make_inputs(problem, 5);
      auto operands = DeviceOperands::make(*gpu(), problem, Placement::page_end);
      ASSERT_TRUE(host.ok() && operands.ok());
      ASSERT_TRUE(operands->fill(*host).ok());
      const auto expected = compute_reference(problem, *host, {.threads = cores()});
      ASSERT_TRUE(expected.ok() && expected->complete);
      const std::vector<Reference> batches =
          problem.batch > 1 ? expected->batches : std::vector<Reference>{*expected};
      const auto checker = gpu()->output_checker(problem);
      ASSERT_TRUE(checker.ok()) << checker.message();
      const Status computed = (*checker)->compute_reference(*operands->operands(WeightLayout::plain));
      ASSERT_TRUE(computed.ok()) << print(problem) << ": " << computed.message();
      std::vector<double> values(static_cast<std::size_t>(size.n));
      std::vector<float> magnitudes(values.size());
      for (std::int64_t row = 0; row < problem.batch * size.m; ++row) {
        const Reference& batch = batches[static_cast<std::size_t>(row / size.m)];
        ASSERT_TRUE((*checker)->read_row(row, values, magnitudes).ok());
        for (std::size_t n = 0; n < values.size(); ++n) {
          const std::size_t at = static_cast<std::size_t>(row % size.m) * values.size() + n;
          const double magnitude = batch.magnitudes[at];
          ASSERT_NEAR(values[n], batch.values[at], 1e-12 * magnitude) << print(problem) << " " << row;
          ASSERT_NEAR(static_cast<double>(magnitudes[n]), magnitude, 1e-4 * magnitude) << print(problem);
        }
      }
    }
  }
}

TEST_F(CudaOutputChecker, ComparesBitForBit) {
  const auto checker = gpu()->output_checker(dense(3, 5, 8, DataType::bf16, DataType::bf16, false));
  ASSERT_TRUE(checker.ok()) << checker.message();
  const std::size_t bytes = 100003;
  auto one = gpu()->allocate(bytes, Placement::plain);
  auto other = gpu()->allocate(bytes, Placement::plain);
  ASSERT_TRUE(one.ok() && other.ok());
  for (const std::size_t at : {std::size_t{0}, std::size_t{50001}, bytes - 2, bytes - 1}) {
    ASSERT_TRUE(gpu()->fill((*one)->data(), 0x5a, bytes).ok());
    ASSERT_TRUE(gpu()->fill((*other)->data(), 0x5a, bytes).ok());
    EXPECT_TRUE(*(*checker)->same((*one)->data(), (*other)->data(), bytes));
    ASSERT_TRUE(gpu()->fill(static_cast<std::byte*>((*one)->data()) + at, 0x5b, 1).ok());
    EXPECT_FALSE(*(*checker)->same((*one)->data(), (*other)->data(), bytes)) << at;
  }
}

TEST_F(CudaOutputChecker, OperandsDrawnOnTheDeviceAreTheHosts) {
  for (const DataType type : {DataType::bf16, DataType::f32, DataType::f8_e4m3fn}) {
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{3000001}}) {
      const RandomFill recipe = random_fill(type, count, 0.3, Random(11));
      std::vector<std::byte> expected(recipe.bytes());
      fill_random(recipe, 0, expected);
      const auto buffer = gpu()->allocate(recipe.bytes(), Placement::page_end);
      ASSERT_TRUE(buffer.ok()) << buffer.message();
      const Status drawn_there = gpu()->fill_random((*buffer)->data(), recipe);
      ASSERT_TRUE(drawn_there.ok()) << drawn_there.message();
      std::vector<std::byte> seen(recipe.bytes());
      ASSERT_TRUE(gpu()->copy_out(seen.data(), (*buffer)->data(), seen.size()).ok());
      EXPECT_TRUE(seen == expected) << count;
    }
  }
}

TEST_F(CudaOutputChecker, RefusesWhatItCannotHold) {
  EXPECT_EQ(gpu()->output_checker(dense(1 << 20, 1 << 20, 16, DataType::bf16, DataType::bf16, false)).code(),
            StatusCode::out_of_memory);
}

/// A right kernel with something done to its operands before it runs or to y after it.
class AlteredKernel final : public Kernel {
 public:
  using Before = std::function<void(Operands&)>;
  using After = std::function<void(const Operands&, int run)>;
  AlteredKernel(const Kernel& right, Before before, After after)
      : right_(right), before_(std::move(before)), after_(std::move(after)) {}
  std::size_t workspace_bytes() const override { return right_.workspace_bytes(); }
  WeightLayout weight_layout() const override { return right_.weight_layout(); }
  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Operands altered = operands;
    if (before_) before_(altered);
    GEMMTUNE_RETURN_IF_ERROR(right_.run(altered, workspace, stream));
    GEMMTUNE_RETURN_IF_ERROR(gpu()->synchronize());
    if (after_) after_(operands, runs_++);
    return {};
  }

 private:
  const Kernel& right_;
  Before before_;
  After after_;
  mutable int runs_ = 0;
};

/// Elements of y from (row, column) on, written over.
template <typename Element>
void put(const Operands& operands, std::int64_t row, std::int64_t column, std::vector<Element> elements) {
  auto* y = static_cast<Element*>(operands.y) + row * operands.ldy + column;
  EXPECT_TRUE(gpu()->copy_in(y, elements.data(), elements.size() * sizeof(Element)).ok());
}

struct Fault {
  const char* what;
  AlteredKernel::Before before;
  AlteredKernel::After after;
  std::string phrase;  // of the reason; empty: right
};

std::string phrase_of(const Outcome& outcome) { return outcome.reason.substr(0, outcome.reason.find(':')); }

/// The outcomes of both gates, the quick one's first where it fails already.
Outcome outcome_of(KernelVerifier& verifier, const Kernel& kernel) {
  const KernelOfClass kernels[] = {{&kernel}};
  const Outcome quick = verifier.verify_quickly(kernels[0]);
  if (quick.kind != OutcomeKind::ok) return quick;
  const auto full = verifier.verify_fully(kernels);
  EXPECT_TRUE(full.ok()) << full.message();
  return full.ok() ? full->front() : Outcome();
}

KernelVerifierOptions verified_on_device(bool device) {
  KernelVerifierOptions options;
  options.reference_threads = cores();
  options.max_host_flops = device ? 0 : std::numeric_limits<double>::infinity();
  options.max_host_elements = device ? 0 : std::numeric_limits<std::int64_t>::max();
  return options;
}

void expect_found(const Problem& problem, const std::vector<Fault>& faults) {
  const KernelFamily* family = gpu()->find_family("simt");
  ASSERT_NE(family, nullptr);
  const auto right = family->build(problem, family->default_config(problem));
  ASSERT_TRUE(right.ok()) << right.message();
  auto host = KernelVerifier::make(*gpu(), problem, verified_on_device(false));
  auto device = KernelVerifier::make(*gpu(), problem, verified_on_device(true));
  ASSERT_TRUE(host.ok() && device.ok()) << host.message() << device.message();
  EXPECT_FALSE(host->on_device());
  EXPECT_TRUE(device->on_device());
  for (const Fault& fault : faults) {
    const Outcome one = outcome_of(*host, AlteredKernel(**right, fault.before, fault.after));
    const Outcome other = outcome_of(*device, AlteredKernel(**right, fault.before, fault.after));
    EXPECT_EQ(phrase_of(one), fault.phrase) << fault.what << ": " << one.reason;
    EXPECT_EQ(other.kind, one.kind) << fault.what;
    EXPECT_EQ(other.reason, one.reason) << fault.what;
    EXPECT_EQ(other.err_ratio, one.err_ratio) << fault.what;
    EXPECT_EQ(other.deterministic, one.deterministic) << fault.what;
  }
}

TEST_F(CudaOutputChecker, FindsWhatTheHostFindsIn16BitOutputs) {
  const Problem problem = dense(70, 200, 512, DataType::bf16, DataType::bf16, true);
  const auto shorter = gpu()->allocate(static_cast<std::size_t>(problem.m * problem.k * 2), Placement::plain);
  ASSERT_TRUE(shorter.ok());
  const auto poison = [](const Operands& y, int) {
    for (std::int64_t row = 64; row < 70; ++row) put(y, row, 128, std::vector<unsigned short>(64, 0xffff));
  };
  const auto cut_k = [&](Operands& operands) {
    auto* x = static_cast<unsigned short*>((*shorter)->data());
    EXPECT_TRUE(gpu()->copy_within(x, operands.x, static_cast<std::size_t>(problem.m * problem.k * 2)).ok());
    for (std::int64_t row = 0; row < problem.m; ++row)
      EXPECT_TRUE(gpu()->fill(x + row * problem.k + 496, 0, 32).ok());
    operands.x = x;
  };
  const auto other_row = [](const Operands& y, int) {
    put(y, 12, 0, std::vector<unsigned short>(200, 0x7fc0));
  };
  expect_found(problem, {{"right", {}, {}, ""},
                         {"a tile that is not written", {}, poison, check_phrase::unwritten},
                         {"sixteen of k left out", cut_k, {}, check_phrase::element},
                         {"no bias", [](Operands& o) { o.bias = nullptr; }, {}, check_phrase::element},
                         {"a row of NaN", {}, other_row, check_phrase::not_finite},
                         {"an infinity",
                          {},
                          [](const Operands& y, int) { put<unsigned short>(y, 69, 199, {0xff80}); },
                          check_phrase::not_finite},
                         {"a row that is another's",
                          {},
                          [](const Operands& y, int) {
                            auto* rows = static_cast<unsigned short*>(y.y);
                            EXPECT_TRUE(gpu()->copy_within(rows, rows + y.ldy, 400).ok());
                          },
                          check_phrase::element},
                         {"something between the rows",
                          {},
                          [](const Operands& y, int) {
                            if (y.ldy > 200) put<unsigned short>(y, 69, y.ldy - 1, {0});
                          },
                          "wrote between the rows of y"}});
}

TEST_F(CudaOutputChecker, FindsWhatTheHostFindsInFloat32Outputs) {
  const Problem problem = dense(33, 101, 256, DataType::f32, DataType::f32, false);
  const auto flip = [](const Operands& y, int run) {
    unsigned bits = 0;
    auto* element = static_cast<unsigned*>(y.y) + 32 * y.ldy + 100;
    EXPECT_TRUE(gpu()->copy_out(&bits, element, sizeof(bits)).ok());
    bits ^= static_cast<unsigned>(run % 2);
    EXPECT_TRUE(gpu()->copy_in(element, &bits, sizeof(bits)).ok());
  };
  expect_found(problem, {{"right", {}, {}, ""},
                         {"another result each time", {}, flip, ""},
                         {"an element that was not written",
                          {},
                          [](const Operands& y, int) { put<unsigned>(y, 0, 0, {0xffffffffU}); },
                          check_phrase::unwritten},
                         {"one element far off",
                          {},
                          [](const Operands& y, int) { put<float>(y, 7, 3, {1000.0F}); },
                          check_phrase::element}});
}

TEST_F(CudaOutputChecker, FindsWhatTheHostFindsInBatches) {
  const Problem problem = batched(3, 33, 104, 256);
  expect_found(
      problem,
      {{"right", {}, {}, ""},
       {"one element of the last batch far off",
        {},
        [](const Operands& y, int) { put<unsigned short>(y, 2 * 33 + 7, 3, {0x447a}); },
        check_phrase::element},
       {"a batch that is another's", [](Operands& o) { o.x_batch_stride = 0; }, {}, check_phrase::element},
       {"something between the rows",
        {},
        [](const Operands& y, int) {
          if (y.ldy > 104) put<unsigned short>(y, 2 * 33 + 32, y.ldy - 1, {0});
        },
        "wrote between the rows of y"}});
}

TEST_F(CudaOutputChecker, SeesAnotherResultEachTime) {
  const Problem problem = dense(33, 101, 256, DataType::f32, DataType::f32, false);
  const KernelFamily* family = gpu()->find_family("simt");
  const auto right = family->build(problem, family->default_config(problem));
  ASSERT_TRUE(right.ok()) << right.message();
  auto verifier = KernelVerifier::make(*gpu(), problem, verified_on_device(true));
  ASSERT_TRUE(verifier.ok()) << verifier.message();
  const AlteredKernel restless(**right, {}, [](const Operands& y, int run) {
    unsigned bits = 0;
    EXPECT_TRUE(gpu()->copy_out(&bits, y.y, sizeof(bits)).ok());
    bits ^= static_cast<unsigned>(run % 2);
    EXPECT_TRUE(gpu()->copy_in(y.y, &bits, sizeof(bits)).ok());
  });
  const Outcome outcome = outcome_of(*verifier, restless);
  EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
  EXPECT_FALSE(outcome.deterministic);
  EXPECT_TRUE(outcome_of(*verifier, AlteredKernel(**right, {}, {})).deterministic);
}

// One large problem: the device verifies it by itself, and its reference takes a fraction of a second.
TEST_F(CudaOutputChecker, LargeProblemsAreQuick) {
  const Problem problem = dense(4096, 24576, 1536, DataType::bf16, DataType::bf16, false);
  KernelVerifierOptions options;
  options.reference_threads = cores();
  auto verifier = KernelVerifier::make(*gpu(), problem, options);
  ASSERT_TRUE(verifier.ok()) << verifier.message();
  EXPECT_TRUE(verifier->on_device());
  const auto checker = gpu()->output_checker(problem);
  ASSERT_TRUE(checker.ok()) << checker.message();
  const Operands operands = *verifier->operands().operands(WeightLayout::plain);
  ASSERT_TRUE((*checker)->compute_reference(operands).ok());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE((*checker)->compute_reference(operands).ok());
  const std::chrono::duration<double> reference = std::chrono::steady_clock::now() - begin;
  std::printf("[ seconds ] reference %.4f\n", reference.count());
  EXPECT_LT(reference.count(), 0.3);
  const auto fallback = gpu()->fallback(problem);
  const auto kernel = gpu()->build(*fallback, problem);
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  for (int i = 0; i < 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = verifier->verify_quickly({kernel->get(), gpu()->accuracy(*fallback, problem)});
    const std::chrono::duration<double> check = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
    std::printf("[ seconds ] check %.4f\n", check.count());
    EXPECT_LT(check.count(), 0.1);
  }
}

}  // namespace
}  // namespace gemmtune
