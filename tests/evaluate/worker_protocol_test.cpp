// What tuner and worker say to each other survives the way there.
#include "evaluate/worker/worker_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cmath>
#include <limits>
#include <thread>

#include "evaluate/worker/message_channel.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

Candidate tiled() {
  Candidate candidate;
  candidate.family = "tiled";
  candidate.revision = 3;
  candidate.config.set("kc", 256);
  candidate.config.set("isa", "avx2");
  return candidate;
}

template <typename Request>
Request sent(const Request& request) {
  const auto parsed = parse_request(print_request({7, request}));
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  if (!parsed.ok()) return {};
  EXPECT_EQ(parsed->number, 7U);
  const auto* content = std::get_if<Request>(&parsed->content);
  EXPECT_NE(content, nullptr);
  return content == nullptr ? Request{} : *content;
}

Problem problem() {
  Problem problem = default_problem(Operation::a16w16);
  problem.m = 3;
  problem.n = 64;
  problem.k = 128;
  problem.bias = true;
  problem.weight_layout = WeightLayout::panel16;
  problem.alignment = 64;
  return problem;
}

TEST(WorkerProtocol, RequestsArriveAsTheyWereSent) {
  OpenRequest open;
  open.backend = "cpu";
  open.device = {"cpu:0-3", 2,         "avx2",     "/lib/x", {"/onednn"},
                 "/cache",  true,      "/sources", 3,        true,
                 true,      Team::own, 32,         "/rapl",  "python3 torch_linear.py",
                 true};
  open.evaluation.policy.cache = CacheMode::cold;
  open.evaluation.policy.iterations = 17;
  open.evaluation.policy.pool_limit_bytes = 12345678901;
  open.evaluation.policy.seed = 99;
  auto trace = std::make_shared<RoutingTrace>();
  trace->name = "t";
  trace->experts = 4;
  trace->topk = 2;
  trace->ids = {3, 1};
  open.evaluation.policy.routing = RoutingKind::trace;
  open.evaluation.policy.routing_trace = trace;
  open.evaluation.max_err_ratio = 0.01;
  open.evaluation.timing_lock = "/run/lock";
  open.evaluation.share = 0.1;
  open.evaluation.bit_classes = true;
  EXPECT_EQ(open.version, gemmtune_version_text());
  open.version = "0.0.7";
  const OpenRequest opened = sent(open);
  EXPECT_EQ(opened.device.text, "cpu:0-3");
  EXPECT_EQ(opened.device.threads, 2);
  EXPECT_EQ(opened.device.isa_cap, "avx2");
  EXPECT_EQ(opened.device.module_folder, "/lib/x");
  EXPECT_EQ(opened.device.onednn_folders, (std::vector<std::string>{"/onednn"}));
  EXPECT_EQ(opened.device.opponent, "python3 torch_linear.py");
  EXPECT_TRUE(opened.device.library_baseline);
  EXPECT_TRUE(opened.device.pin_threads);
  EXPECT_EQ(opened.device.powercap_folder, "/rapl");
  EXPECT_EQ(opened.device.team, Team::own);
  EXPECT_EQ(opened.evaluation.policy.text(), open.evaluation.policy.text());
  EXPECT_EQ(opened.evaluation.policy.pool_limit_bytes, 12345678901U);
  EXPECT_EQ(opened.evaluation.policy.seed, 99U);
  ASSERT_NE(opened.evaluation.policy.routing_trace, nullptr);
  EXPECT_EQ(opened.evaluation.policy.routing_trace->text(), trace->text());
  EXPECT_EQ(opened.evaluation.max_err_ratio, 0.01);
  EXPECT_EQ(opened.evaluation.timing_lock, "/run/lock");
  EXPECT_EQ(opened.evaluation.share, 0.1);
  EXPECT_TRUE(opened.evaluation.bit_classes);
  EXPECT_EQ(opened.version, "0.0.7");

  const ScreenRequest screen = sent(ScreenRequest{problem(), tiled(), 4});
  EXPECT_EQ(screen.problem, problem());
  EXPECT_EQ(screen.candidate, tiled());
  EXPECT_EQ(screen.samples, 4);
  const FinalsRequest finals = sent(FinalsRequest{problem(), {tiled(), Candidate{"vendor", 1, {}}}, 15});
  EXPECT_EQ(finals.problem, problem());
  EXPECT_THAT(finals.candidates, ElementsAre(tiled(), Candidate{"vendor", 1, {}}));
  EXPECT_EQ(finals.rounds, 15);
  EXPECT_FALSE(finals.kind.energy);
  EXPECT_EQ(finals.kind.routing, std::nullopt);
  EXPECT_EQ(sent(FinalsRequest{problem(), {tiled()}, 6, {.routing = RoutingKind::zipf}}).kind.routing,
            RoutingKind::zipf);
  EXPECT_TRUE(sent(FinalsRequest{problem(), {tiled()}, 7, {.energy = true}}).kind.energy);
  EXPECT_EQ(sent(NeighbourRequest{problem(), tiled(), 2}).m, 2);
  const AnnounceRequest announce = sent(AnnounceRequest{problem(), {tiled(), Candidate{"vendor", 1, {}}}});
  EXPECT_EQ(announce.problem, problem());
  EXPECT_THAT(announce.candidates, ElementsAre(tiled(), Candidate{"vendor", 1, {}}));
  EXPECT_THAT(sent(AnnounceRequest{problem(), {}}).candidates, ElementsAre());
}

TEST(WorkerProtocol, RepliesKeepEveryBitAndWhatIsMissing) {
  WorkerReply reply;
  reply.number = 9;
  reply.candidate_seconds = 0.1;
  reply.waited_seconds = 0.2;
  reply.processor_seconds = 0.3;
  reply.result.times = {{1.0 / 3, missing}, {missing, 1e-9}};
  reply.result.same_ratios = {1.0 / 7};
  reply.result.joules = {{0.25, missing}, {missing, 1.0 / 3}};
  reply.result.quietness = {static_cast<int>(reply.result.times.size()), 1, 2};
  Outcome outcome;
  outcome.kind = OutcomeKind::wrong;
  outcome.reason = "no UTF-8: \xff";
  outcome.microseconds = {0.1, 123456.789};
  outcome.err_ratio = 0.3;
  outcome.deterministic = false;
  outcome.bits.reason = "bits of a row change with M";
  Outcome right;
  right.bits.id = "f32-0123456789ab";
  reply.result.outcomes = {outcome, right};
  const auto parsed = parse_reply(print_reply(reply));
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(parsed->number, 9U);
  EXPECT_EQ(parsed->candidate_seconds, 0.1);
  EXPECT_EQ(parsed->waited_seconds, 0.2);
  EXPECT_EQ(parsed->processor_seconds, 0.3);
  EXPECT_EQ(parsed->result.times[0][0], 1.0 / 3);
  EXPECT_TRUE(std::isnan(parsed->result.times[0][1]));
  EXPECT_EQ(parsed->result.times[1][1], 1e-9);
  ASSERT_EQ(parsed->result.joules.size(), 2U);
  EXPECT_EQ(parsed->result.joules[0][0], 0.25);
  EXPECT_TRUE(std::isnan(parsed->result.joules[0][1]));
  EXPECT_EQ(parsed->result.joules[1][1], 1.0 / 3);
  EXPECT_THAT(parsed->result.same_ratios, ElementsAre(1.0 / 7));
  EXPECT_EQ(parsed->result.quietness, reply.result.quietness);
  EXPECT_EQ(parsed->result.outcomes[0].kind, OutcomeKind::wrong);
  EXPECT_THAT(parsed->result.outcomes[0].reason, HasSubstr("no UTF-8"));
  EXPECT_THAT(parsed->result.outcomes[0].microseconds, ElementsAre(0.1, 123456.789));
  EXPECT_EQ(parsed->result.outcomes[0].err_ratio, 0.3);
  EXPECT_FALSE(parsed->result.outcomes[0].deterministic);
  EXPECT_EQ(parsed->result.outcomes[0].bits, outcome.bits);
  EXPECT_EQ(parsed->result.outcomes[1].bits, right.bits);
}

TEST(WorkerProtocol, AnErrorKeepsItsCodeAndText) {
  WorkerReply reply;
  reply.number = 2;
  reply.status = Status::out_of_memory("no {} bytes", 8);
  const auto parsed = parse_reply(print_reply(reply));
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(parsed->status.code(), StatusCode::out_of_memory);
  EXPECT_EQ(parsed->status.message(), "no 8 bytes");
}

TEST(WorkerProtocol, WhatIsNoMessageIsAnError) {
  for (const char* text : {"", "{", "[]", "{\"number\":1}", "{\"number\":\"x\",\"ask\":\"open\"}",
                           "{\"number\":1,\"ask\":\"screen\",\"problem\":\"nonsense\"}"}) {
    EXPECT_FALSE(parse_request(text).ok()) << text;
    EXPECT_FALSE(parse_reply(text).ok()) << text;
  }
}

TEST(WorkerPage, BothSidesSeeOneState) {
  auto page = WorkerPage::make();
  ASSERT_TRUE(page.ok()) << page.message();
  auto other = WorkerPage::attach(page->descriptor());
  ASSERT_TRUE(other.ok()) << other.message();
  EXPECT_EQ(page->read(), WorkerState());
  for (const WorkerState& state :
       {WorkerState{1, 1, Step::preparing, std::nullopt},
        WorkerState{65535, (1U << 28) - 1, Step::candidate, 4}, WorkerState{2, 7, Step::waiting, 0},
        WorkerState{2, 8, Step::idle, std::nullopt}}) {
    other->write(state);
    EXPECT_EQ(page->read(), state);
  }
}

TEST(MessageChannel, MessagesKeepTheirBorders) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  MessageChannel reader(ends[1]);
  const std::string large(1 << 20, 'x');
  std::thread writer([&] {
    MessageChannel channel(ends[0]);
    for (const std::string& text : {std::string("first"), std::string(), large})
      EXPECT_TRUE(channel.send(text).ok());
  });
  EXPECT_EQ(reader.receive(), "first");
  EXPECT_EQ(reader.receive(), "");
  EXPECT_EQ(reader.receive(), large);
  EXPECT_EQ(reader.receive(), std::nullopt);
  writer.join();
  EXPECT_FALSE(reader.send("to nobody").ok());
}

TEST(MessageChannel, GarbageIsNoMessage) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  MessageChannel reader(ends[1]);
  MessageChannel other(ends[0]);
  ASSERT_EQ(::send(other.descriptor(), "\xff\xff\xff\xff....", 8, 0), 8);
  EXPECT_EQ(reader.receive(), std::nullopt);
}

}  // namespace
}  // namespace gemmtune
