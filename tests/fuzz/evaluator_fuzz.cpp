#include <cstddef>
#include <cstdint>
#include <string>

#include "evaluate/external/evaluator_hello.h"
#include "evaluate/external/evaluator_reply.h"
#include "formats/json.h"
#include "fuzz/expectation.h"

namespace gemmtune {
namespace {

void use(const EvaluatorHello& hello) {
  for (const Config& config : hello.defaults) (void)hello.settings(config);
  const auto value_of = [](std::string_view) { return std::optional<std::int64_t>(7); };
  for (const EvaluatorRule& rule : hello.rules) (void)rule.refuses.evaluate(value_of);
  for (const EvaluatorProblems& problems : hello.problems)
    if (problems.condition) (void)problems.condition->evaluate(value_of);
  for (const EvaluatorParameter& parameter : hello.parameters)
    for (const std::string& value : parameter.parameter.values)
      fuzz::demand(parameter.value_of(value) != nullptr, "a value is one of its parameter");
}

}  // namespace
}  // namespace gemmtune

// A line of an evaluator: its hello, or its reply to any request.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const Json json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!is_reply(json, 1)) return 0;
  (void)error_of_reply(json);
  const auto number =
      number_of_reply(json, "sample", "microseconds", min_sample_microseconds, max_sample_microseconds);
  fuzz::demand(!number.ok() || (*number >= min_sample_microseconds && *number <= max_sample_microseconds),
               "a sample is within its bounds");
  (void)number_of_reply(json, "energy", "joules", min_sample_joules, max_sample_joules);
  if (const auto hello = parse_hello(json); hello.ok()) use(*hello);
  return 0;
}
