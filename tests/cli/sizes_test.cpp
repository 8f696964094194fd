// Sizes that fit no memory, long lists, and what budgets do with them, from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* header = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
constexpr const char* tail = ",False,torch.bfloat16,torch.bfloat16,False,False\n";
/// What is needed and what is free.
constexpr const char* both_figures =
    "too large: .* at least [0-9.]+ [KMGTP]iB .*, [0-9.]+ [KMGTP]iB are available";

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Sizes : public ::testing::Test {
 protected:
  Program program;
};

TEST_F(Sizes, ATuningThatFitsNoMemoryIsRefusedAtOnceWithBothFigures) {
  SubprocessResult result;
  const double seconds = seconds_of([&] {
    result = program.run({"tune", "-m", "10000000", "-n", "1000000", "-k", "64", "--budget", "30", "-o",
                          program.file("o.csv")});
  });
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, ContainsRegex(both_figures));
  EXPECT_LT(seconds, 20) << "it took 41 s and 11 GB";
}

TEST_F(Sizes, TheOtherShapesOfTheListAreTuned) {
  const SimulatedProgram program;  // a budget of seconds proves something on a busy machine too
  const std::string shapes = program.folder().write(
      "shapes.csv", std::string(header) + "10000000,1000000,64" + tail + "3,64,64" + tail);
  const auto result = program.run({"tune", "-i", shapes, "-o", program.file("o.csv"), "--libtype",
                                   "tiled,skinny", "--budget", "60", "--iters", "5", "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const Json json = parse_json(result.out);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_EQ(json["problems"][0]["state"], "failed");
  EXPECT_THAT(json["problems"][0]["reason"].get<std::string>(), ContainsRegex(both_figures));
  EXPECT_THAT(json["problems"][1]["state"].get<std::string>(), ::testing::AnyOf("tuned", "default"));
}

TEST_F(Sizes, BenchCheckAndWarmGoOnAfterAShapeThatFitsNoMemory) {
  const std::string shapes =
      program.folder().write("shapes.csv", std::string(header) + "10000000,1000000,64" + tail);
  const auto bench = program.run({"bench", shapes, "--rounds", "3"});
  EXPECT_EQ(bench.exit_code, 1) << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("too large"));

  const Json device = parse_json(program.run({"devices", "--backend", "cpu", "--json"}).out);
  const Json& info = device["backends"][0]["devices"][0];
  const std::string table = program.folder().write("tuned.csv",
                                                   "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,"
                                                   "libtype,solidx,splitK,us,kernelName,err_ratio,"
                                                   "tflops,bw\n" +
                                                       info["gfx"].get<std::string>() + "," +
                                                       std::to_string(info["cu_num"].get<int>()) +
                                                       ",10000000,1000000,64,False,torch.bfloat16,torch."
                                                       "bfloat16,False,False,reference,0,0,10,reference_r1,"
                                                       "0,1,1\n");
  const auto checked = program.run({"check", table});
  EXPECT_EQ(checked.exit_code, 1) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("not runnable")) << checked.err;
  EXPECT_THAT(checked.out, ContainsRegex(both_figures));
  const auto warm = program.run({"cache", "warm", table});
  EXPECT_EQ(warm.exit_code, 0) << warm.out << warm.err;
}

TEST_F(Sizes, ALongListEndsWithItsBudget) {
  const SimulatedProgram program;
  const int rows = std::getenv("GEMMTUNE_SOAK") != nullptr ? 1000000 : 40000;
  std::string text = header;
  for (int i = 0; i < rows; ++i)
    text += std::to_string(1 + i % 1000) + "," + std::to_string(64 + i / 1000) + ",64" + tail;
  const std::string shapes = program.folder().write("long.csv", text);
  SubprocessResult result;
  const double seconds = seconds_of([&] {
    result = program.run({"tune", "-i", shapes, "-o", program.file("o.csv"), "--libtype", "tiled,skinny",
                          "--budget", "1", "--iters", "5"});
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("not reached"));
  EXPECT_LT(result.err.size(), 100000U) << "shapes that were not reached are counted, not listed";
  EXPECT_LT(seconds, 15 + rows / 4000.0) << "the square of the rows takes minutes";
}

TEST_F(Sizes, ALimitOfNothingIsAnError) {
  for (const std::string value : {"0", "-1", "-9223372036854775808"}) {
    const auto result = program.run(
        {"tune", "-m", "3", "-n", "64", "-k", "64", "--limit=" + value, "-o", program.file("o.csv")});
    EXPECT_EQ(result.exit_code, 2) << value;
    EXPECT_THAT(result.err, HasSubstr("--limit")) << value;
  }
}

TEST_F(Sizes, MoreWorkersThanDevicesAreTakenAsAll) {
  const auto result =
      program.run(program.quick_tune({"--mp", "4", "--backend", "cpu", "-o", program.file("o.csv")}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--mp 4"));
}

TEST_F(Sizes, ABackendWithoutADriverLoadsNoLibraryOfIt) {
  SubprocessOptions options = program.options();
  options.environment["LD_DEBUG"] = "files";
  const auto result =
      program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--backend", "auto"}, options);
  if (result.err.find("libcuda.so.1") == std::string::npos) GTEST_SKIP() << "no trace of loaded libraries";
  if (result.err.find("calling init: ") != std::string::npos &&
      result.err.find("/libcuda.so.1\n") != std::string::npos)
    GTEST_SKIP() << "this machine has a driver";
  EXPECT_THAT(result.err, Not(HasSubstr("libcublasLt")));
  EXPECT_THAT(result.err, Not(HasSubstr("libnvrtc")));
}

}  // namespace
}  // namespace gemmtune::test
