// Verification of mixtures of experts on a GPU: the reference, what it finds, and its time. Skips where there is no GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "support/first_gpu.h"
#include "support/mixture_checker.h"

namespace gemmtune {
namespace {

using testing_problems::moe_problem;

class CudaMixtureChecker : public OnGpu {};

TEST_F(CudaMixtureChecker, ItsReferenceIsTheHosts) {
  testing_mixtures::expect_the_hosts_reference(*gpu(), {9, 70, 46});
  testing_mixtures::expect_the_hosts_reference(*gpu(), {150, 288, 416});
}

TEST_F(CudaMixtureChecker, FindsWhatTheHostFinds) {
  testing_mixtures::MixtureFaults(*gpu(), "simt_moe").expect_found();
}

/// A layer of a model, and what one may take there.
struct ModelLayer {
  const char* name;
  Problem problem;
};

std::vector<ModelLayer> model_layers() {
  constexpr auto bf16 = DataType::bf16;
  constexpr auto fp8 = DataType::f8_e4m3fn;
  const auto routed = testing_mixtures::routed;
  std::vector<ModelLayer> all{
      {"Qwen3-30B-A3B", routed(moe_problem(bf16, bf16, QuantType::none, {1, 768, 2048}), 128, 8)},
      {"DeepSeek-V3 TP8", routed(moe_problem(fp8, fp8, QuantType::per_1x128, {1, 256, 7168}), 256, 8)},
      {"gpt-oss-120b",
       routed(moe_problem(bf16, DataType::f4_e2m1, QuantType::per_1x32, {1, 2880, 2880}), 128, 4)}};
  all.back().problem.moe.activation = Activation::swiglu;
  return all;
}

// The goals of an H200, with room: the reference in 2 s, a check in 50 ms.
TEST_F(CudaMixtureChecker, LayersOfModelsAreQuick) {
  const auto seconds = [](auto&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (ModelLayer& layer : model_layers())
    for (const std::int64_t tokens : {1, 128, 1024, 4096}) {
      Problem problem = layer.problem;
      problem.m = tokens;
      KernelVerifierOptions options;
      options.reference_threads = testing_mixtures::cores();
      auto verifier = KernelVerifier::make(*gpu(), problem, options);  // compiles
      ASSERT_TRUE(verifier.ok()) << verifier.message();
      EXPECT_TRUE(verifier->on_device());
      verifier = Status::internal("gone");
      const double made = seconds([&] { verifier = KernelVerifier::make(*gpu(), problem, options); });
      ASSERT_TRUE(verifier.ok()) << verifier.message();
      const auto checker = gpu()->output_checker(problem);
      ASSERT_TRUE(checker.ok()) << checker.message();
      const Operands operands = *verifier->operands().operands(WeightLayout::plain);
      const double reference = seconds([&] { ASSERT_TRUE((*checker)->compute_reference(operands).ok()); });
      const auto candidate = gpu()->fallback(problem);
      ASSERT_TRUE(candidate.ok()) << candidate.message();
      const auto kernel = gpu()->build(*candidate, problem);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      const KernelOfClass of_class{kernel->get(), gpu()->accuracy(*candidate, problem)};
      double check = 0;
      for (int i = 0; i < 2; ++i) {
        check = seconds([&] {
          const Outcome outcome = verifier->verify_quickly(of_class);
          EXPECT_EQ(outcome.kind, OutcomeKind::ok) << layer.name << " " << tokens << ": " << outcome.reason;
        });
      }
      const double full = seconds([&] {
        const auto outcomes = verifier->verify_fully({&of_class, 1});
        ASSERT_TRUE(outcomes.ok()) << outcomes.message();
        EXPECT_EQ(outcomes->front().reason, "") << layer.name << " " << tokens;
      });
      std::printf("[ seconds ] %-16s %4lld tokens: verifier %.3f reference %.4f check %.4f full %.3f (%s)\n",
                  layer.name, static_cast<long long>(tokens), made, reference, check, full,
                  candidate->kernel_name().c_str());
      EXPECT_LT(reference, 2);
      EXPECT_LT(check, 0.1);
    }
}

}  // namespace
}  // namespace gemmtune
