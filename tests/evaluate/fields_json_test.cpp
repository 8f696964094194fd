// Every field of the structs that are written as JSON survives being written and read.
#include "evaluate/fields_json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gemmtune {
namespace {

void change(std::string& text) { text += "x"; }
void change(bool& value) { value = !value; }
void change(double& value) { value += 0.375; }
void change(int& value) { value += 3; }
void change(std::int64_t& value) { value += 5; }
void change(std::uint64_t& value) { value += std::uint64_t{1} << 63; }
void change(CacheMode& mode) { mode = CacheMode::cold; }
void change(Team& team) { team = Team::own; }
void change(LaunchMode& mode) { mode = LaunchMode::eager; }
void change(InitType& type) { type = InitType::trig_float; }
void change(AccuracyPolicy& policy) { policy = AccuracyPolicy::fast; }
void change(Objective& objective) { objective = Objective::edp; }
void change(RoutingKind& kind) { kind = RoutingKind::zipf; }
void change(std::vector<std::int32_t>& values) { values.push_back(3); }
void change(std::vector<std::string>& texts) { texts.emplace_back("text"); }
void change(std::shared_ptr<const RoutingTrace>& trace) {
  trace = std::make_shared<const RoutingTrace>(RoutingTrace{"t", 4, 1, {2}});
}
void change(Config& config) { config.set("mr", "6"); }
template <HasFields Struct>
void change(Struct& object);
void change(std::vector<Library>& libraries) {
  libraries.emplace_back();
  change(libraries.back());
}

template <HasFields Struct>
void change(Struct& object) {
  visit_fields(object, [](std::string_view, auto& member) { change(member); });
}

/// The written form has every field as changed, each under a name of its own, and reads back to the same.
template <typename Struct>
void expect_survival(std::size_t fields) {
  Struct changed;
  change(changed);
  const Json written = changed;
  const Json untouched = Struct();
  EXPECT_EQ(written.size(), fields);
  for (const auto& [name, value] : written.items())
    EXPECT_NE(value.dump(), untouched.at(name).dump()) << name;
  const Json again = written.get<Struct>();
  EXPECT_EQ(again.dump(), written.dump());
  for (const auto& [name, value] : written.items()) {
    Json lacking = written;
    lacking.erase(name);
    EXPECT_THROW((void)lacking.get<Struct>(), Json::exception) << name;
  }
}

TEST(FieldsJson, EveryFieldSurvives) {
  expect_survival<Policy>(21);
  expect_survival<RoutingTrace>(4);
  expect_survival<DeviceRequest>(16);
  expect_survival<InProcessOptions>(10);
  expect_survival<Library>(3);
  expect_survival<DeviceInfo>(6);
  expect_survival<Candidate>(3);
}

TEST(FieldsJson, MembersHaveTheirOwnNames) {
  Policy policy;
  policy.cache = CacheMode::warm;
  policy.sample_microseconds = 17;
  policy.seed = ~std::uint64_t{0};
  const Json written = policy;
  EXPECT_EQ(written.at("cache").get<std::string>(), "warm");
  EXPECT_EQ(written.at("sample_us").get<double>(), 17);
  EXPECT_EQ(written.get<Policy>().seed, policy.seed);
  EXPECT_EQ(written.get<Policy>().text(), policy.text());
  DeviceRequest request;
  request.text = "cpu:0-3";
  request.pin_threads = true;
  const Json asked = request;
  EXPECT_EQ(asked.at("text").get<std::string>(), "cpu:0-3");
  EXPECT_TRUE(asked.at("pin_threads").get<bool>());
  EXPECT_FALSE(asked.at("rebuild_kernels").get<bool>());
}

TEST(FieldsJson, OtherValuesThrow) {
  Json written = Policy();
  written["cache"] = "hot";
  EXPECT_THROW((void)written.get<Policy>(), Json::exception);
  EXPECT_THROW((void)Json("a16w16 m=x").get<Problem>(), Json::exception);
}

}  // namespace
}  // namespace gemmtune
