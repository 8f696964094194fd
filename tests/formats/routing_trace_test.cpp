#include <gtest/gtest.h>

#include <string>

#include "formats/routing/routing_trace_file.h"

namespace gemmtune {
namespace {

std::string error_of(const std::string& content) {
  const auto trace = parse_routing_trace("a.routing", content);
  return trace.ok() ? "read" : trace.message();
}

TEST(RoutingTraceFile, TheExampleIsRead) {
  const auto trace = read_routing_trace(std::string(GEMMTUNE_TEST_DATA) + "/routing/small.routing");
  ASSERT_TRUE(trace.ok()) << trace.message();
  EXPECT_EQ((*trace)->name, "small.routing");
  EXPECT_EQ((*trace)->experts, 16);
  EXPECT_EQ((*trace)->topk, 4);
  EXPECT_EQ((*trace)->tokens(), 48);
  EXPECT_EQ((*trace)->ids[0], 14);
  EXPECT_EQ((*trace)->ids[3], 4);
}

TEST(RoutingTraceFile, ErrorsNameFileLineValueAndWhatWasExpected) {
  const std::string head = "gemmtune routing 1\nexperts 4\ntopk 2\n";
  EXPECT_EQ(error_of(head + "0 1\r\n\n# more\n  2\t 3 \n"), "read");
  EXPECT_EQ(error_of(head + "0 1\n# more\n2\n"), "a.routing:6: 1 experts, expected 2 (topk)");
  EXPECT_EQ(error_of("M,N,K\n1,2,3\n"),
            "a.routing:1: 'M,N,K', expected 'gemmtune routing 1': a routing trace");
  EXPECT_EQ(error_of(""), "a.routing:1: '', expected 'gemmtune routing 1': a routing trace");
  EXPECT_EQ(error_of("gemmtune routing 1\nexperts 0\n"),
            "a.routing:2: 'experts 0', expected 'experts' and a whole number from 1 to 2147483647");
  EXPECT_EQ(error_of("gemmtune routing 1\nexperts 4\ntopk 5\n"),
            "a.routing:3: 'topk 5', expected 'topk' and a whole number from 1 to 4");
  EXPECT_EQ(error_of(head + "0 4\n"), "a.routing:4: expert '4', expected a whole number from 0 to 3");
  EXPECT_EQ(error_of(head + "0 x\n"), "a.routing:4: expert 'x', expected a whole number from 0 to 3");
  EXPECT_EQ(error_of(head + "0 1\n3 3\n"), "a.routing:5: expert 3 twice, expected each at most once a token");
  EXPECT_EQ(error_of(head), "a.routing:4: the file ends, expected a line of 2 experts a token");
  EXPECT_FALSE(read_routing_trace("/no/such.routing").ok());
}

}  // namespace
}  // namespace gemmtune
