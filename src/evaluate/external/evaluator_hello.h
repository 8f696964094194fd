// What an external evaluator says of itself: its device, the problems that it takes, its parameters and rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "candidates/integer_expression.h"
#include "candidates/space.h"
#include "formats/json.h"

namespace gemmtune {

/// One of the problems that it takes.
struct EvaluatorProblems {
  OperationForm operation = Operation::a16w16;
  std::vector<DataType> x_types;  // empty: all of the operation
  std::vector<DataType> w_types;
  std::vector<DataType> y_types;
  bool bias = false;                           // with and without, else without
  std::optional<IntegerExpression> condition;  // of m, n, k and batch
};

/// A parameter: its values as the evaluator has them, and their texts in kernel names.
struct EvaluatorParameter {
  std::string name;          // BLOCK_SIZE_M
  Parameter parameter;       // with a key for kernel names
  std::vector<Json> values;  // numbers and texts, one for each of parameter.values

  /// Null where the value is not among them.
  const Json* value_of(std::string_view text) const;
  /// Of a whole number.
  std::optional<std::int64_t> number_of(std::string_view text) const;
};

struct EvaluatorRule {
  std::string name;
  IntegerExpression refuses;  // of names of parameters and of m, n, k and batch
  std::string reason;
  Rule rule = Rule::build;
  bool on = true;
};

struct EvaluatorHello {
  std::string family;
  int revision = 1;
  std::string identity;
  Accuracy accuracy = Accuracy::fp32;
  bool compiles_ahead = false;
  bool counts_energy = false;
  DeviceInfo device;  // without backend and name
  std::size_t cache_bytes = 0;
  std::size_t memory_bytes = 0;
  std::vector<EvaluatorProblems> problems;
  std::vector<EvaluatorParameter> parameters;
  std::vector<EvaluatorRule> rules;
  std::vector<Config> defaults;  // the first that is allowed is the default; may be empty
  std::int64_t probe_m = 16;
  std::int64_t probe_n = 128;
  std::int64_t probe_k = 128;

  /// The config as the evaluator has it: {"BLOCK_SIZE_M": 64, …}.
  Json settings(const Config& config) const;
};

/// The only version of the protocol.
inline constexpr int evaluator_protocol = 1;

/// Errors name the member, its value and what was expected.
Result<EvaluatorHello> parse_hello(const Json& reply);

/// m, n, k and batch; nullopt for other names.
std::optional<std::int64_t> dimension(const Problem& problem, std::string_view name);

}  // namespace gemmtune
