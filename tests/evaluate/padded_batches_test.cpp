// What full verification draws beside ordinary data: batches with empty slots, scales of the whole range. A kernel that fails on
// them alone is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "support/mixture_checker.h"
#include "support/operation_problems.h"

namespace gemmtune::padded_batches_test {
namespace {

using testing_mixtures::AlteredMixture;
using testing_mixtures::Changed;

class FullVerification : public ::testing::Test {
 protected:
  FullVerification() {
    DeviceRequest request;
    request.text = "cpu";
    request.threads = 1;
    auto device = open_device("cpu", request);
    EXPECT_TRUE(device.ok()) << device.message();
    device_ = std::move(*device);
  }

  std::unique_ptr<Kernel> fallback(const Problem& problem) const {
    const auto candidate = device_->fallback(problem);
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    auto kernel = device_->build(*candidate, problem);
    EXPECT_TRUE(kernel.ok()) << kernel.message();
    return std::move(*kernel);
  }
  /// Both reasons: of the quick verification and of the full one.
  std::pair<std::string, std::string> reasons(const Problem& problem, const Kernel& kernel) {
    auto verifier = KernelVerifier::make(*device_, problem, testing_mixtures::verified_on_device(false));
    EXPECT_TRUE(verifier.ok()) << verifier.message();
    const std::string quick = verifier->verify_quickly({&kernel}).reason;
    const KernelOfClass kernels[] = {{&kernel}};
    const auto full = verifier->verify_fully(kernels);
    EXPECT_TRUE(full.ok()) << full.message();
    return {quick, full->front().reason};
  }

  std::unique_ptr<Device> device_;
};

TEST_F(FullVerification, FindsAKernelThatTakesAnEmptySlotForTheFirstExpert) {
  const Problem problem =
      testing_problems::moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {12, 40, 72});
  const auto right = fallback(problem);
  const auto [quick, full] = reasons(problem, *right);
  EXPECT_EQ(quick, "");
  EXPECT_EQ(full, "");
  const auto pairs = static_cast<std::size_t>(given_pairs(problem));
  Changed<std::int32_t> ids(*device_, pairs);
  Changed<float> weights(*device_, pairs);
  const AlteredMixture broken(*device_, *right,
                              [&](Operands& o) {
                                o.topk_ids = ids(o.topk_ids, [](auto& all) {
                                  for (std::int32_t& id : all) id = std::max(id, 0);
                                });
                                o.topk_weights = weights(o.topk_weights, [](auto& all) {
                                  for (float& weight : all) weight = weight > 0 ? weight : 0.5F;
                                });
                              },
                              {});
  const auto [broken_quick, broken_full] = reasons(problem, broken);
  EXPECT_EQ(broken_quick, "");
  EXPECT_NE(broken_full, "");
}

TEST_F(FullVerification, FindsAKernelThatDoesNotKnowTheLargestScales) {
  Problem problem = testing_problems::problem_of(Operation::a16w4, DataType::bf16, {4, 40, 128});
  problem.y_type = DataType::bf16;
  const auto right = fallback(problem);
  const auto [quick, full] = reasons(problem, *right);
  EXPECT_EQ(quick, "");
  EXPECT_EQ(full, "");
  Changed<std::uint8_t> scales(*device_, static_cast<std::size_t>(operand_shapes(problem).w.scale_bytes()));
  for (const bool largest : {true, false}) {
    const AlteredMixture broken(
        *device_, *right,
        [&](Operands& o) {
          o.w_scale = scales(o.w_scale, [&](auto& all) {
            for (std::uint8_t& code : all)
              code = static_cast<std::uint8_t>(largest ? std::min<int>(code, 252) : code == 253 ? 254 : code);
          });
        },
        {});
    const auto [broken_quick, broken_full] = reasons(problem, broken);
    EXPECT_EQ(broken_quick, "");
    EXPECT_NE(broken_full, "") << largest;
  }
}

}  // namespace
}  // namespace gemmtune::padded_batches_test
