#include "evaluate/external/evaluator_hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "base/text.h"
#include "formats/json_text.h"

namespace gemmtune {
namespace {

constexpr std::array<std::string_view, 4> dimensions{"m", "n", "k", "batch"};
/// A text without characters is no part of a kernel name.
constexpr std::string_view empty_text = "none";

/// A member of an object with its path, for errors: "parameters[2].values".
class Member {
 public:
  Member(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_absent() const { return value_->is_null(); }
  Member at(const std::string& name) const {
    static const Json none;
    const std::string path = path_.empty() ? name : path_ + "." + name;
    if (!value_->is_object()) return {none, path};
    const auto found = value_->find(name);
    return {found == value_->end() ? none : *found, path};
  }
  /// The elements of an array; of another value (not null) that value alone.
  std::vector<Member> elements() const {
    std::vector<Member> members;
    if (is_absent()) return members;
    if (!value_->is_array()) return {*this};
    for (std::size_t i = 0; i < value_->size(); ++i)
      members.emplace_back((*value_)[i], fmt::format("{}[{}]", path_, i));
    return members;
  }

  Status wrong(std::string_view expected) const {
    return Status::invalid("{} is {}, expected {}", path_, is_absent() ? "missing" : json_line(*value_),
                           expected);
  }
  Result<std::string> text() const {
    if (!value_->is_string() || value_->get_ref<const std::string&>().empty()) return wrong("a text");
    return value_->get<std::string>();
  }
  Result<std::string> text_or(std::string absent) const {
    return is_absent() ? Result<std::string>(std::move(absent)) : text();
  }
  Result<std::int64_t> number_or(std::int64_t absent, std::int64_t min, std::int64_t max) const {
    if (is_absent()) return absent;
    if (value_->is_number_integer()) {
      const bool too_large =
          value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(max);
      if (!too_large && value_->get<std::int64_t>() >= min && value_->get<std::int64_t>() <= max)
        return value_->get<std::int64_t>();
    }
    return wrong(fmt::format("a whole number from {} to {}", min, max));
  }
  Result<bool> truth_or(bool absent) const {
    if (is_absent()) return absent;
    return value_->is_boolean() ? Result<bool>(value_->get<bool>()) : Result<bool>(wrong("true or false"));
  }

 private:
  const Json* value_;
  std::string path_;
};

constexpr std::int64_t max_int = std::numeric_limits<int>::max();
constexpr std::int64_t max_bytes = std::int64_t{1} << 50;

Result<IntegerExpression> expression(const Member& member, const std::set<std::string>& names) {
  GEMMTUNE_TRY(const std::string text, member.text());
  auto parsed = IntegerExpression::parse(text);
  if (!parsed.ok()) return Status::invalid("{}: {}", member.path(), parsed.message());
  for (const std::string& name : parsed->names()) {
    if (std::find(dimensions.begin(), dimensions.end(), name) != dimensions.end() || names.contains(name))
      continue;
    return Status::invalid("{}: '{}' is none of m, n, k, batch and the parameters with whole numbers",
                           member.path(), name);
  }
  return parsed;
}

Result<std::vector<DataType>> types(const Member& member, std::string_view architecture,
                                    std::span<const DataType> allowed) {
  std::vector<DataType> types;
  for (const Member& element : member.elements()) {
    GEMMTUNE_TRY(const std::string text, element.text());
    const auto type = data_type_on(architecture, text);
    if (!type || std::find(allowed.begin(), allowed.end(), *type) == allowed.end()) {
      const std::string known = joined(allowed, ", ", enumerator_name);
      return element.wrong(known);
    }
    types.push_back(*type);
  }
  return types;
}

Result<EvaluatorProblems> problems(const Member& member, std::string_view architecture) {
  EvaluatorProblems problems;
  GEMMTUNE_TRY(const std::string word, member.at("operation").text());
  const auto operation = parse_operation(word);
  if (!operation || traits(operation->operation).mixture)
    return member.at("operation").wrong("an operation other than fused_moe");
  problems.operation = *operation;
  const OperationTraits& of = traits(operation->operation);
  GEMMTUNE_TRY(problems.x_types, types(member.at("x_types"), architecture, of.x_types));
  GEMMTUNE_TRY(problems.w_types,
               types(member.at("w_types"), architecture, of.w_types.empty() ? of.x_types : of.w_types));
  GEMMTUNE_TRY(problems.y_types, types(member.at("y_types"), architecture, of.y_types));
  GEMMTUNE_TRY(problems.bias, member.at("bias").truth_or(false));
  if (!member.at("requires").is_absent()) {
    GEMMTUNE_TRY(problems.condition, expression(member.at("requires"), {}));
  }
  return problems;
}

/// What stands for a value in kernel names.
Result<std::string> value_text(const Member& member) {
  const Json& value = member.json();
  if (value.is_number_integer()) return json_line(value);
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty()) return std::string(empty_text);
    if (Config::is_value(text)) return text;
  }
  return member.wrong("a whole number or a text of [A-Za-z0-9.+-]");
}

std::string key_of(std::string_view name) {
  std::string key;
  for (const char letter : to_lower(name))
    if (letter >= 'a' && letter <= 'z') key += letter;
  return key;
}

Result<EvaluatorParameter> parameter(const Member& member) {
  EvaluatorParameter parameter;
  Parameter& known = parameter.parameter;
  GEMMTUNE_TRY(parameter.name, member.at("name").text());
  GEMMTUNE_TRY(known.key, member.at("key").text_or(key_of(parameter.name)));
  if (known.key.empty() || known.key != key_of(known.key))
    return member.at("key").wrong("lower-case letters");
  GEMMTUNE_TRY(known.meaning, member.at("meaning").text_or(parameter.name));
  for (const Member& value : member.at("values").elements()) {
    GEMMTUNE_TRY(std::string text, value_text(value));
    if (parameter.value_of(text) != nullptr) return value.wrong("a value that is not there before");
    known.values.push_back(std::move(text));
    parameter.values.push_back(value.json());
  }
  if (known.values.empty()) return member.at("values").wrong("at least one value");
  return parameter;
}

Result<EvaluatorRule> rule(const Member& member, const std::set<std::string>& numbers) {
  EvaluatorRule rule;
  GEMMTUNE_TRY(rule.name, member.at("name").text());
  GEMMTUNE_TRY(rule.refuses, expression(member.at("refuses"), numbers));
  GEMMTUNE_TRY(rule.reason, member.at("reason").text_or(rule.refuses.text()));
  GEMMTUNE_TRY(rule.on, member.at("on").truth_or(true));
  GEMMTUNE_TRY(const std::string kind, member.at("kind").text_or("build"));
  if (kind != "build" && kind != "search") return member.at("kind").wrong("build or search");
  rule.rule = kind == "build" ? Rule::build : Rule::search;
  return rule;
}

Result<Config> config(const Member& member, const EvaluatorHello& hello) {
  if (!member.json().is_object()) return member.wrong("an object of parameters");
  for (const auto& item : member.json().items()) {
    const std::string& name = item.key();
    if (std::ranges::none_of(hello.parameters, [&](const auto& one) { return one.name == name; }))
      return Status::invalid("{}: '{}' is no parameter", member.path(), name);
  }
  Config config;
  for (const EvaluatorParameter& parameter : hello.parameters) {
    const Member value = member.at(parameter.name);
    const auto found = std::find(parameter.values.begin(), parameter.values.end(), value.json());
    if (found == parameter.values.end()) return value.wrong("one of its values");
    config.set(parameter.parameter.key,
               parameter.parameter.values[static_cast<std::size_t>(found - parameter.values.begin())]);
  }
  return config;
}

Status read_device(const Member& member, EvaluatorHello& hello) {
  GEMMTUNE_TRY(hello.device.gfx, member.at("gfx").text());
  std::int64_t cu_num = 0;
  GEMMTUNE_TRY(cu_num, member.at("cu_num").number_or(0, 1, max_int));
  if (cu_num == 0) return member.at("cu_num").wrong("the number of compute units");
  hello.device.cu_num = static_cast<int>(cu_num);
  GEMMTUNE_TRY(hello.device.model, member.at("model").text_or(hello.device.gfx));
  GEMMTUNE_TRY(hello.device.bus_id, member.at("bus_id").text_or(""));
  std::int64_t bytes = 0;
  GEMMTUNE_TRY(bytes, member.at("cache_bytes").number_or(0, 0, max_bytes));
  hello.cache_bytes = static_cast<std::size_t>(bytes);
  GEMMTUNE_TRY(bytes, member.at("memory_bytes").number_or(std::int64_t{1} << 32, 1, max_bytes));
  hello.memory_bytes = static_cast<std::size_t>(bytes);
  return {};
}

Status read_space(const Member& reply, EvaluatorHello& hello) {
  std::set<std::string> names;
  std::set<std::string> keys;
  std::set<std::string> numbers;
  for (const Member& member : reply.at("parameters").elements()) {
    GEMMTUNE_TRY(EvaluatorParameter one, parameter(member));
    if (!names.insert(one.name).second) return member.at("name").wrong("a name that is not there before");
    if (!keys.insert(one.parameter.key).second)
      return Status::invalid("{}.key: {} is there before; give it another key", member.path(),
                             one.parameter.key);
    const bool is_number =
        std::ranges::all_of(one.values, [](const Json& value) { return value.is_number(); });
    if (is_number) numbers.insert(one.name);
    hello.parameters.push_back(std::move(one));
  }
  for (const Member& member : reply.at("rules").elements()) {
    GEMMTUNE_TRY(EvaluatorRule one, rule(member, numbers));
    hello.rules.push_back(std::move(one));
  }
  for (const Member& member : reply.at("defaults").elements()) {
    GEMMTUNE_TRY(Config one, config(member, hello));
    hello.defaults.push_back(std::move(one));
  }
  return {};
}

}  // namespace

const Json* EvaluatorParameter::value_of(std::string_view text) const {
  const auto found = std::find(parameter.values.begin(), parameter.values.end(), text);
  return found == parameter.values.end()
             ? nullptr
             : &values[static_cast<std::size_t>(found - parameter.values.begin())];
}

std::optional<std::int64_t> EvaluatorParameter::number_of(std::string_view text) const {
  const Json* value = value_of(text);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<std::int64_t>();
}

Json EvaluatorHello::settings(const Config& config) const {
  Json settings = Json::object();
  for (const EvaluatorParameter& one : parameters)
    if (const Json* value = one.value_of(config.word(one.parameter.key))) settings[one.name] = *value;
  return settings;
}

std::optional<std::int64_t> dimension(const Problem& problem, std::string_view name) {
  if (name == "m") return problem.m;
  if (name == "n") return problem.n;
  if (name == "k") return problem.k;
  if (name == "batch") return problem.batch;
  return std::nullopt;
}

Result<EvaluatorHello> parse_hello(const Json& json) {
  const Member reply(json, "");
  std::int64_t number = 0;
  GEMMTUNE_TRY(number, reply.at("protocol").number_or(0, 0, max_int));
  if (number != evaluator_protocol) return reply.at("protocol").wrong(fmt::format("{}", evaluator_protocol));
  EvaluatorHello hello;
  GEMMTUNE_TRY(hello.family, reply.at("family").text());
  const auto named = family_of_kernel_name(Candidate{hello.family, 1, {}}.kernel_name());
  if (named != hello.family)
    return reply.at("family").wrong("a name as of a kernel family, without _r and a number");
  GEMMTUNE_TRY(number, reply.at("revision").number_or(1, 1, 999'999));
  hello.revision = static_cast<int>(number);
  GEMMTUNE_TRY(hello.identity,
               reply.at("identity").text_or(fmt::format("{} r{}", hello.family, hello.revision)));
  GEMMTUNE_TRY(const std::string accuracy,
               reply.at("accuracy").text_or(std::string(to_string(Accuracy::fp32))));
  const auto known = parse_accuracy(accuracy);
  if (!known) return reply.at("accuracy").wrong("fp32 or tensor_core");
  hello.accuracy = *known;
  GEMMTUNE_TRY(hello.compiles_ahead, reply.at("compiles_ahead").truth_or(false));
  GEMMTUNE_TRY(hello.counts_energy, reply.at("energy").truth_or(false));
  GEMMTUNE_RETURN_IF_ERROR(read_device(reply.at("device"), hello));
  for (const Member& member : reply.at("libraries").elements()) {
    Library library;
    GEMMTUNE_TRY(library.name, member.at("name").text());
    GEMMTUNE_TRY(library.version, member.at("version").text());
    hello.device.libraries.push_back(std::move(library));
  }
  for (const Member& member : reply.at("problems").elements()) {
    GEMMTUNE_TRY(EvaluatorProblems one, problems(member, hello.device.gfx));
    hello.problems.push_back(std::move(one));
  }
  if (hello.problems.empty()) return reply.at("problems").wrong("at least one operation");
  GEMMTUNE_RETURN_IF_ERROR(read_space(reply, hello));
  const Member probe = reply.at("probe");
  GEMMTUNE_TRY(hello.probe_m, probe.at("m").number_or(hello.probe_m, 1, max_dimension));
  GEMMTUNE_TRY(hello.probe_n, probe.at("n").number_or(hello.probe_n, 1, max_dimension));
  GEMMTUNE_TRY(hello.probe_k, probe.at("k").number_or(hello.probe_k, 1, max_dimension));
  return hello;
}

#undef GEMMTUNE_READ

}  // namespace gemmtune
