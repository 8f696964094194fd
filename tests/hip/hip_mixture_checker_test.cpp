// Verification of mixtures of experts on doubles of AMD's libraries, whose kernels run on the emulation.
#include <gtest/gtest.h>

#include <memory>

#include "backends/hip/hip_backend.h"
#include "support/mixture_checker.h"

namespace gemmtune::hip {
namespace {

std::unique_ptr<Device> opened() {
  auto device = hip_backend().open({});
  EXPECT_TRUE(device.ok()) << device.message();
  return device.ok() ? std::move(*device) : nullptr;
}

TEST(HipMixtureChecker, ItsReferenceIsTheHosts) {
  const auto device = opened();
  ASSERT_NE(device, nullptr);
  testing_mixtures::expect_the_hosts_reference(*device, {9, 70, 46});
}

TEST(HipMixtureChecker, FindsWhatTheHostFinds) {
  const auto device = opened();
  ASSERT_NE(device, nullptr);
  testing_mixtures::MixtureFaults(*device, "simt_moe").expect_found();
}

}  // namespace
}  // namespace gemmtune::hip
