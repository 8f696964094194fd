// Errata of a process: where they come from, and that they decide candidates, rows and the fallback.
#include "resolve/errata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "backends/default_kernels.h"
#include "backends/traits.h"
#include "resolve/answer.h"
#include "resolve/candidate_list.h"
#include "support/dispatch_tables.h"
#include "support/paper_device.h"

namespace gemmtune {
namespace {

using test::row;
using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Before known_errata() reads it.
const bool errata_set = setenv("GEMMTUNE_ERRATA", GEMMTUNE_TEST_DATA "/errata", 1) == 0;

constexpr std::int64_t struck_k = 471;  // of errata/onednn-test.json

DeviceInfo device_with(const char* gfx, const char* library, const char* version) {
  DeviceInfo info;
  info.gfx = gfx;
  info.libraries.push_back({library, version, {}, {}});
  return info;
}

TEST(ShippedErrata, AreReadAndHaveNamesOfTheirOwn) {
  const KnownErrata known = load_errata({});
  ASSERT_TRUE(known.status.ok()) << known.status.message();
  std::set<std::string> names;
  for (const Erratum& erratum : known.errata) {
    EXPECT_TRUE(names.insert(erratum.name).second) << erratum.name;
    EXPECT_THAT(erratum.repro, HasSubstr("gemmtune check "));
  }
  EXPECT_TRUE(names.contains("cublaslt-split-k-tail"));
  EXPECT_TRUE(names.contains("onednn-amx-odd-k"));
}

TEST(ShippedErrata, CoverOnlyTheirLibraryVersionAndArchitecture) {
  const KnownErrata known = load_errata({});
  const auto names = [&](const DeviceInfo& info) {
    std::string text;
    for (const Erratum* erratum : DeviceErrata(info, known).list()) text += erratum->name + ";";
    return text;
  };
  for (const char* wrong : {"12.8.4", "12.9.1", "12.9.2", "13.0.2", "13.1.0", "13.1.1"})
    EXPECT_EQ(names(device_with("sm_90", "cuBLASLt", wrong)), "cublaslt-split-k-tail;") << wrong;
  for (const char* right : {"12.9.3", "13.10.0"})
    EXPECT_EQ(names(device_with("sm_90", "cuBLASLt", right)), "") << right;
  EXPECT_EQ(names(device_with("sm_100", "cuBLASLt", "13.1.0")), "");
  EXPECT_EQ(names(device_with("x86-amx", "oneDNN", "2.6.3")), "onednn-amx-odd-k;");
  EXPECT_EQ(names(device_with("x86-avx512bf16", "oneDNN", "2.6.3")), "") << "capped, or no AMX";
  EXPECT_EQ(names(device_with("x86-amx", "oneDNN", "3.0.0")), "");
  EXPECT_EQ(names(device_with("x86-avx512bf16", "oneDNN", "3.6.2")), "onednn-f32-k1;");
  EXPECT_EQ(names(device_with("x86-avx2", "oneDNN", "3.6.2")), "") << "other code";
  EXPECT_EQ(names(device_with("x86-avx512", "oneDNN", "3.2.0")), "");
}

TEST(ShippedErrata, OnednnWithAmxIsLeftOutFrom33RowsOn) {
  const KnownErrata known = load_errata({});
  const DeviceErrata errata(device_with("x86-amx", "oneDNN", "2.6.3"), known);
  const Candidate onednn{"onednn", 1, {}};
  const auto struck = [&](std::int64_t m, std::int64_t k) {
    Problem problem = test::small_problem(m, 64, k);
    return errata.find(problem, onednn) != nullptr;
  };
  EXPECT_TRUE(struck(33, 63));
  EXPECT_FALSE(struck(32, 63));
  EXPECT_FALSE(struck(33, 64));
}

TEST(LoadErrata, ReadsAFileOrAFolderAndReplacesByName) {
  TemporaryFolder folder;
  const std::string text = R"({"name": "onednn-amx-odd-k", "family": "onednn", "condition": "m == 5",
    "effect": "wrong", "what": "w", "found": "f", "repro": "r"})";
  const std::string file = folder.write("a.json", text);
  folder.write("b.txt", "no erratum");
  for (const std::string& place : {file, folder.path()}) {
    const KnownErrata known = load_errata(place);
    ASSERT_TRUE(known.status.ok()) << known.status.message();
    EXPECT_EQ(known.errata.size(), shipped_errata().size());
    for (const Erratum& erratum : known.errata)
      if (erratum.name == "onednn-amx-odd-k") {
        EXPECT_EQ(erratum.condition.text(), "m == 5");
      }
  }
  EXPECT_THAT(load_errata("none").errata, IsEmpty());
}

TEST(LoadErrata, AFaultNamesTheFileAndLeavesTheShippedOnes) {
  TemporaryFolder folder;
  folder.write("bad.json", "{\n\"names\": \"x\"}");
  const KnownErrata known = load_errata(folder.path());
  EXPECT_THAT(known.status.message(),
              HasSubstr("GEMMTUNE_ERRATA: " + folder.path() + "/bad.json:2: field 'names'"));
  EXPECT_EQ(known.errata.size(), shipped_errata().size());
  EXPECT_THAT(load_errata(folder.path() + "/absent").status.message(), HasSubstr("absent"));
}

class ErrataOfACpu : public ::testing::Test {
 protected:
  void SetUp() override {
    DeviceRequest request;
    request.text = "cpu";
    auto opened = open_device("cpu", request);
    ASSERT_TRUE(opened.ok()) << opened.message();
    device_ = std::move(opened).value();
    problem_ = test::small_problem(16, 64, struck_k);
    problem_.x_type = problem_.w_type = problem_.y_type = DataType::f32;
    onednn_ = device_->find_family("onednn");
    if (onednn_ == nullptr || !onednn_->accepts(problem_).ok()) GTEST_SKIP() << "no oneDNN here";
  }
  std::string onednn_kernel() const {
    return Candidate{"onednn", onednn_->revision(), onednn_->default_config(problem_)}.kernel_name();
  }

  std::unique_ptr<Device> device_;
  const KernelFamily* onednn_ = nullptr;
  Problem problem_;
};

TEST_F(ErrataOfACpu, ACandidateIsLeftOutWithItsErratum) {
  const auto listed = [&](const Problem& problem) {
    int count = 0;
    for (const ListedCandidate& one : list_candidates(*device_, problem, {}).candidates)
      count += one.candidate.family == "onednn";
    return count;
  };
  EXPECT_EQ(listed(problem_), 0);
  EXPECT_THAT(list_candidates(*device_, problem_, {}).refusals,
              ::testing::Contains("onednn: 1 kernel left out, the first " + onednn_kernel() +
                                  ": erratum onednn-test: nothing: an erratum for tests"));
  problem_.k = 472;
  EXPECT_EQ(listed(problem_), 1);
}

TEST_F(ErrataOfACpu, ARowOfItIsPassedOver) {
  const Binding binding = bind_name(*device_, onednn_kernel(), problem_);
  ASSERT_FALSE(binding.bound);
  EXPECT_EQ(binding.refusal, Refusal::erratum);
  EXPECT_THAT(binding.status.message(), HasSubstr("erratum onednn-test"));
  EXPECT_FALSE(resolve_name(*device_, onednn_kernel(), problem_).ok());
  problem_.k = 472;
  EXPECT_TRUE(bind_name(*device_, onednn_kernel(), problem_).bound);
}

TEST_F(ErrataOfACpu, TheFallbackIsTheNextRightKernel) {
  const auto own = device_->fallback(problem_);
  ASSERT_TRUE(own.ok());
  if (own->family != "onednn") GTEST_SKIP() << "the fallback is " << own->family;
  const auto bound = bind_fallback(*device_, problem_);
  ASSERT_TRUE(bound.ok()) << bound.message();
  EXPECT_NE(bound->candidate.family, "onednn");
  EXPECT_THAT(describe_fallback(problem_, *bound),
              HasSubstr("; passed over " + own->kernel_name() + ": erratum onednn-test: "));
  problem_.k = 472;
  EXPECT_EQ(bind_fallback(*device_, problem_)->candidate.family, "onednn");
  EXPECT_THAT(describe_fallback(problem_, *bind_fallback(*device_, problem_)), Not(HasSubstr("passed over")));
}

TEST_F(ErrataOfACpu, TheDefaultIsNotUsable) {
  const auto own = default_kernel(*device_, problem_, AccuracyPolicy::keep);
  ASSERT_TRUE(own.ok());
  if (own->family != "onednn") GTEST_SKIP() << "the default is " << own->family;
  EXPECT_EQ(usable_default(*device_, problem_, AccuracyPolicy::keep).code(), StatusCode::unsupported);
  problem_.k = 472;
  EXPECT_TRUE(usable_default(*device_, problem_, AccuracyPolicy::keep).ok());
}

/// Where the default config may not run, the one that is predicted to be the fastest of those that may.
TEST(AllowedFallback, IsTheFastestByTheCostModel) {
  testing::PaperDevice device;
  device.mutable_info().backend = "cuda";
  device.mutable_info().gfx = "sm_80";
  device.add({.name = "mma",
              .parameters = {{"fast", {"1", "0"}, "0", ""}, {"bm", {"16", "32", "64"}, "16", ""}},
              .predicted = [](const Problem&,
                              const Config& config) { return config.number("bm") == 32 ? 1.0 : 2.0; },
              .fast_key = "fast"});
  Problem problem;
  problem.m = problem.n = problem.k = 64;
  const auto found = choose_fallback(traits_of("cuda").families, device, problem, [&](const Candidate& one) {
    return device.accuracy(one, problem) == Accuracy::fp32;
  });
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(found->kernel_name(), "mma_r1_fast0_bm32");
  EXPECT_EQ(*default_kernel(device, problem, AccuracyPolicy::fp32), *found);
  EXPECT_EQ(default_kernel(device, problem, AccuracyPolicy::keep)->kernel_name(), "mma_r1_fast1_bm16");
}

}  // namespace
}  // namespace gemmtune
