// AITER's words for --libtype name families of each backend.
#include "cli/shared/family_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/fake_device.h"

namespace gemmtune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FamilyNamesOfCuda : public ::testing::Test {
 protected:
  FamilyNamesOfCuda() {
    device_.change_info().backend = "cuda";
    for (const char* name : {"cublaslt", "skinny", "wgmma", "mma", "mxfp4", "simt"})
      device_.add({.name = name});
  }

  std::vector<std::string> names(const char* words) const {
    const auto resolved = resolve_families(words, device_);
    EXPECT_TRUE(resolved.ok()) << words << ": " << resolved.message();
    return resolved.ok() ? *resolved : std::vector<std::string>();
  }

  testing::FakeDevice device_;
};

TEST_F(FamilyNamesOfCuda, AitersWordsAreTakenAsTheSameKind) {
  for (const char* word : {"hipblaslt", "hipblast", "torch"})
    EXPECT_THAT(names(word), ElementsAre("cublaslt")) << word;
  for (const char* word : {"asm", "triton", "ck", "cktile", "both", "flydsl", "opus", "gluon"})
    EXPECT_THAT(names(word), ElementsAre("wgmma", "mxfp4", "mma")) << word;
  EXPECT_THAT(names("skinny,hipblaslt"), ElementsAre("skinny", "cublaslt"));
  EXPECT_TRUE(names("all").empty());
}

TEST_F(FamilyNamesOfCuda, RocblasIsRefusedWithTheWordToUse) {
  const auto refused = resolve_families("rocblas", device_);
  EXPECT_THAT(refused.message(), HasSubstr("expected hipblaslt"));
  EXPECT_THAT(names("hipblaslt"), ElementsAre("cublaslt"));
  EXPECT_THAT(resolve_families("nonsense", device_).message(), HasSubstr("hipblaslt (= cublaslt)"));
}

}  // namespace
}  // namespace gemmtune::cli
