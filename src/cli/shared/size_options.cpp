#include "cli/shared/size_options.h"

#include <fmt/format.h>

#include "base/number_text.h"
#include "base/text.h"
#include "cli/shared/command_options.h"

namespace gemmtune::cli {
namespace {

Result<std::optional<DataType>> data_type_of(std::string_view option, const std::string& text,
                                             std::string_view architecture) {
  if (text.empty()) return std::optional<DataType>();
  const auto type = data_type_on(architecture, text);
  if (!type) {
    return Status::invalid("{}: unknown data type '{}' (known: f32, f16, bf16, fp8, int8 and torch's names)",
                           option, text);
  }
  return type;
}

/// Two spellings of one thing: both may be given only where they agree.
Result<std::optional<DataType>> one_of(const Result<std::optional<DataType>>& first,
                                       std::string_view first_name,
                                       const Result<std::optional<DataType>>& second,
                                       std::string_view second_name) {
  if (!first.ok()) return first.status();
  if (!second.ok()) return second.status();
  if (*first && *second && **first != **second) {
    return Status::invalid("{} {} and {} {} contradict each other", first_name, to_string(**first),
                           second_name, to_string(**second));
  }
  return *first ? *first : *second;
}

Result<std::int64_t> dimension(std::string_view option, const std::string& text) {
  return whole_number(option, text, 1, max_dimension);
}

Status parse_count(std::string_view option, const std::string& text, std::int32_t& value,
                   std::int64_t least = 1) {
  if (text.empty()) return {};
  GEMMTUNE_TRY(const auto given, whole_number(option, text, least, max_dimension));
  value = static_cast<std::int32_t>(given);  // max_dimension fits
  return {};
}

/// An option whose text `parse` understands; what `value` holds stays where it was not given.
template <typename Value>
Status word_of(std::string_view option, const std::string& text,
               std::optional<Value> (*parse)(std::string_view), std::string_view expected, Value& value) {
  if (text.empty()) return {};
  const auto given = parse(text);
  if (!given) return Status::invalid("{} {}: expected {}", option, text, expected);
  value = *given;
  return {};
}

/// DeepSeek's words: whether scales are powers of two, a byte each.
std::optional<bool> parse_scale_format(std::string_view text) {
  const std::string word = to_lower(text);
  if (word == "ue8m0" || word == "e8m0") return true;
  if (word == "f32" || word == "fp32" || word == "float32" || word == "float") return false;
  return std::nullopt;
}

/// Of int4 weights; check() refuses them elsewhere.
Status read_weight_groups(const SizeOptions& options, Problem& problem) {
  problem.zero_points = options.zero_points;
  if (options.group.empty()) {
    if (has_weight_groups(problem)) problem.w_group = default_weight_group;
    return {};
  }
  const std::string word = to_lower(options.group);
  // Of sizes that are not known yet, whole rows are a legal word.
  if ((word == "row" && problem.k == 0) || parse_group(word, problem)) return {};
  return Status::invalid("--group {}: expected {} or row", options.group, fmt::join(weight_groups, ", "));
}

/// What operations other than a16w16 have beside M, N and K.
Status read_other_sizes(const SizeOptions& options, std::string_view architecture, Problem& problem) {
  if (!options.batch.empty()) {
    GEMMTUNE_TRY(problem.batch, dimension("-b", options.batch));
  }
  GEMMTUNE_RETURN_IF_ERROR(
      word_of("--scale_fmt", options.scale_format, parse_scale_format, "f32 or ue8m0", problem.e8m0_scales));
  GEMMTUNE_TRY(const auto w_type, data_type_of("--q_dtype_w", options.w_type, architecture));
  if (w_type) {
    problem.w_type = *w_type;
    // AITER's key of a8w8 has the weight's type alone.
    const bool own_type = is_mixture(problem) || traits(problem.operation).own_w_type();
    if (options.x_type.empty() && !own_type) problem.x_type = *w_type;
  }
  MoeShape& moe = problem.moe;
  GEMMTUNE_RETURN_IF_ERROR(parse_count("--expert", options.experts, moe.experts));
  GEMMTUNE_RETURN_IF_ERROR(parse_count("--topk", options.topk, moe.topk));
  GEMMTUNE_RETURN_IF_ERROR(parse_count("--shared-experts", options.shared_experts, moe.shared_experts, 0));
  GEMMTUNE_RETURN_IF_ERROR(word_of("--act_type", options.activation, parse_activation,
                                   "Silu, Gelu, Swiglu, Situv2 or No", moe.activation));
  GEMMTUNE_RETURN_IF_ERROR(word_of("--q_type", options.quant_type, parse_quant_type,
                                   "No, per_Tensor, per_Token, per_1x32, per_1x128, per_128x128, per_1x16 or "
                                   "per_group",
                                   moe.quant_type));
  GEMMTUNE_RETURN_IF_ERROR(read_weight_groups(options, problem));
  GEMMTUNE_RETURN_IF_ERROR(word_of("--use_g1u1", options.gated, parse_bool, "1 or 0", moe.gated));
  return word_of("--doweight_stage1", options.doweight_stage1, parse_bool, "1 or 0", moe.doweight_stage1);
}

/// The order that an option names, and one that tune_gemm's flag of the operand means.
Status read_order(std::string_view option, const std::string& text, std::string_view flag,
                  std::optional<Order> flagged, Order& order) {
  GEMMTUNE_RETURN_IF_ERROR(word_of(option, text, parse_order, "T (row-major) or N (column-major)", order));
  if (!flagged) return {};
  if (!text.empty() && order != *flagged)
    return Status::invalid("{} {} and {} contradict each other", option, text, flag);
  order = *flagged;
  return {};
}

Status read_orders(const SizeOptions& options, Problem& problem) {
  const auto flagged = [](bool given, Order order) { return given ? std::optional(order) : std::nullopt; };
  GEMMTUNE_RETURN_IF_ERROR(read_order("--x_order", options.x_order, "-col_a",
                                      flagged(options.column_a, Order::column_major), problem.x_order));
  return read_order("--w_order", options.w_order, "-col_b", flagged(options.column_b, Order::row_major),
                    problem.w_order);
}

}  // namespace

Status refuse_single_size_options(const SizeOptions& options, bool of_model) {
  const SizeOptions none;
  struct One {
    const char* option;
    const char* column;
    bool is_given;
  };
  const auto given = [&](auto field) { return options.*field != none.*field; };
  for (const One& one : {One{"--bias", "bias", given(&SizeOptions::bias)},
                         {"--bpreshuffle", "bpreshuffle", !of_model && given(&SizeOptions::bpreshuffle)},
                         {"--scaleAB", "scaleAB", given(&SizeOptions::scale_ab)},
                         {"--batch_count", "B", given(&SizeOptions::batch)},
                         {"--q_dtype_w", "q_dtype_w", given(&SizeOptions::w_type)},
                         {"--expert", "expert", given(&SizeOptions::experts)},
                         {"--topk", "topk", given(&SizeOptions::topk)},
                         {"--shared_experts", "shared_experts", given(&SizeOptions::shared_experts)},
                         {"--act_type", "act_type", given(&SizeOptions::activation)},
                         {"--q_type", "q_type", given(&SizeOptions::quant_type)},
                         {"--use_g1u1", "use_g1u1", given(&SizeOptions::gated)},
                         {"--doweight_stage1", "doweight_stage1", given(&SizeOptions::doweight_stage1)},
                         {"--x_order", "rowMajorA of a YAML", given(&SizeOptions::x_order)},
                         {"--w_order", "rowMajorB of a YAML", given(&SizeOptions::w_order)},
                         {"--group", "group", given(&SizeOptions::group)},
                         {"--zero_points", "zero_points", given(&SizeOptions::zero_points)}}) {
    if (one.is_given)
      return Status::invalid("{}: of -m -n -k alone; a list of sizes has it in its column {}", one.option,
                             one.column);
  }
  return {};
}

Status apply_scale_format(const SizeOptions& options, Problem& problem) {
  if (options.scale_format.empty()) return {};
  GEMMTUNE_RETURN_IF_ERROR(
      word_of("--scale_fmt", options.scale_format, parse_scale_format, "f32 or ue8m0", problem.e8m0_scales));
  return check(problem);
}

void declare_size_options(CommandOptions& app, SizeOptions& options) {
  app.add_option(
      "--op", options.operation,
      "The operation: a16w16 (default; also bf16), a8w8, a8w8_bpreshuffle, a8w8_blockscale, "
      "a8w8_blockscale_bpreshuffle, a4w4_blockscale, batched_bf16, batched_a8w8, fused_moe, a16w4, a8w4, "
      "a16w4_nvfp4, a8w4_nvfp4, a4w4_nvfp4, a16w4_int4, a8w4_int4");
  app.add_option("-m", options.m, "Rows of x: tokens; of tune and lookup also a list, 1,16,128");
  app.add_option("-n", options.n, "Rows of w: output features");
  app.add_option("-k", options.k, "The reduction; with -m and -n a single size");
  app.add_option(
      "--indtype,--q-dtype-a", options.x_type,
      "Type of x and w: f32, f16, bf16, fp8 (the device's: e4m3fnuz on gfx94x, else e4m3fn), int8, fp4, also "
      "torch's names; default: the operation's");
  app.add_option("--outdtype", options.y_type, "Type of y; default: as x, bf16 for quantized x");
  app.add_option("--problem", options.problem, "A size as reports print it, in place of -m -n -k");
  app.add_flag("--bias", options.bias,
               "With a bias [N] of y's type, of fused_moe two for each expert (for -m -n -k)");
  app.add_flag("--bpreshuffle", options.bpreshuffle,
               "The weight was packed once (for -m -n -k and --model-dir)");
  app.add_flag("--scaleAB", options.scale_ab, "fp8 operands with one float32 scale each (for -m -n -k)");
  const char* const sizes_of = "Sizes of other operations (for -m -n -k)";
  app.add_option("-b,--batch-count", options.batch, "Batch of a batched operation (B)").group(sizes_of);
  app.add_option("--q-dtype-w", options.w_type, "Type of w where it differs from x").group(sizes_of);
  app.add_option("--expert", options.experts, "Experts; of fused_moe -n is inter_dim and -k model_dim")
      .group(sizes_of);
  app.add_option("--topk", options.topk, "Experts a token is sent to").group(sizes_of);
  app.add_option("--shared-experts", options.shared_experts,
                 "So many of --expert and --topk are shared: every token visits them (default 0)")
      .group(sizes_of);
  app.add_option("--act-type", options.activation, "Silu (default), Gelu, Swiglu, Situv2, No")
      .group(sizes_of);
  app.add_option(
         "--q-type", options.quant_type,
         "No (default), per_Tensor, per_Token, per_1x32, per_1x128; of weights alone per_1x16 (NVFP4) and "
         "per_group (int4)")
      .group(sizes_of);
  app.add_option("--use-g1u1", options.gated, "w1 has a gate and an up half: 1 (default) or 0")
      .group(sizes_of);
  app.add_option("--doweight-stage1", options.doweight_stage1,
                 "Routing weights after the first GEMM: 0 (default), 1")
      .group(sizes_of);
  app.add_option("--x-order", options.x_order,
                 "x of a16w16 in memory: T [M, K] (default), N [K, M] row by row")
      .group(sizes_of);
  app.add_option("--w-order", options.w_order,
                 "w of a16w16 in memory: T [N, K] (default), N [K, N] row by row")
      .group(sizes_of);
  app.add_option("--scale-fmt", options.scale_format,
                 "Scales of a8w8_blockscale: f32 (default) or ue8m0, powers of two in a byte each, as "
                 "DeepSeek-V3.1 has them; also of shapes from -i")
      .group(sizes_of);
  app.add_option(
         "--group", options.group,
         "Elements of k that share a scale of an int4 weight: 32, 64, 128 (default), or row for all of them")
      .group(sizes_of);
  app.add_flag("--zero-points", options.zero_points, "The int4 weight has zero points").group(sizes_of);
  app.add_option("--dtype-a", options.type_a, "tune_gemm's -dtype_a: type of x").group("tune_gemm's words");
  app.add_option("--dtype-b", options.type_b, "tune_gemm's -dtype_b: type of w").group("tune_gemm's words");
  app.add_option("--dtype-c", options.type_c, "tune_gemm's -dtype_c: type of y").group("tune_gemm's words");
  app.add_flag("--col-a", options.column_a, "tune_gemm's -col_a: x is column-major, --x-order N")
      .group("tune_gemm's words");
  app.add_flag("--col-b", options.column_b,
               "tune_gemm's -col_b: B [K, N] is column-major, which is w [N, K] row-major: gemmtune's "
               "default, --w-order T (tune_gemm's own default is --w-order N)")
      .group("tune_gemm's words");
}

void declare_file_operation(CommandOptions& app, std::string& operation) {
  app.add_option("--op", operation, "The operation, where header and file name do not say it");
}

Result<std::optional<OperationForm>> operation_word(const std::string& text) {
  if (text.empty()) return std::optional<OperationForm>();
  if (const auto operation = parse_operation(text)) return operation;
  const std::string known = joined(all_operation_forms(), ", ", enumerator_name);
  return Status::invalid("--op {}: unknown operation (known: {})", text, known);
}

Result<std::optional<OperationForm>> operation_of(const SizeOptions& options) {
  return operation_word(options.operation);
}

Result<std::optional<DataType>> x_type_of(const SizeOptions& options, std::string_view architecture) {
  const auto of_a = one_of(data_type_of("--indtype", options.x_type, architecture), "--indtype",
                           data_type_of("-dtype_a", options.type_a, architecture), "-dtype_a");
  return one_of(of_a, options.x_type.empty() ? "-dtype_a" : "--indtype",
                data_type_of("-dtype_b", options.type_b, architecture), "-dtype_b");
}

Result<std::optional<DataType>> y_type_of(const SizeOptions& options, std::string_view architecture) {
  return one_of(data_type_of("--outdtype", options.y_type, architecture), "--outdtype",
                data_type_of("-dtype_c", options.type_c, architecture), "-dtype_c");
}

Status check_words(const SizeOptions& options) {
  GEMMTUNE_TRY(const auto operation, operation_of(options));
  GEMMTUNE_RETURN_IF_ERROR(x_type_of(options, {}).status());
  GEMMTUNE_RETURN_IF_ERROR(y_type_of(options, {}).status());
  Problem problem = default_problem(operation.value_or(OperationForm()));
  GEMMTUNE_RETURN_IF_ERROR(read_orders(options, problem));
  return read_other_sizes(options, {}, problem);
}

Result<std::optional<std::int64_t>> dimension_word(std::string_view option, const std::string& text) {
  if (text.empty()) return std::optional<std::int64_t>();
  GEMMTUNE_TRY(const auto value, dimension(option, text));
  return std::optional(value);
}

/// --problem, beside which no other word says a size.
Result<Problem> parsed_problem(const SizeOptions& options, std::string_view architecture) {
  for (const auto& [name, text] :
       {std::pair("-m", &options.m), {"-n", &options.n}, {"-k", &options.k}, {"--op", &options.operation}}) {
    if (!text->empty()) return Status::invalid("--problem and {}: give one of them, not both", name);
  }
  auto problem = parse_problem(options.problem, architecture);
  if (!problem.ok()) return Status(problem.code(), fmt::format("--problem: {}", problem.message()));
  GEMMTUNE_RETURN_IF_ERROR(check(*problem));
  return problem;
}

Result<std::vector<Problem>> problems_of(const SizeOptions& options, std::string_view architecture) {
  std::vector<Problem> problems;
  SizeOptions one = options;
  const std::vector<std::string_view> ms = split(options.m, ',');
  for (const std::string_view m : ms) {
    if (ms.size() > 1) {
      one.m = trim(m);
      GEMMTUNE_RETURN_IF_ERROR(dimension("-m", one.m).status());
    }
    GEMMTUNE_TRY(auto problem, problem_of(one, architecture));
    problems.push_back(problem);
  }
  return problems;
}

Result<Problem> problem_of(const SizeOptions& options, std::string_view architecture) {
  if (!options.problem.empty()) return parsed_problem(options, architecture);
  std::string missing;
  for (const auto& [name, text] : {std::pair("-m", &options.m), {"-n", &options.n}, {"-k", &options.k}}) {
    if (text->empty()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  }
  if (!missing.empty()) return Status::invalid("a single size needs -m, -n and -k; missing: {}", missing);
  GEMMTUNE_TRY(const auto operation, operation_of(options));
  GEMMTUNE_TRY(const auto x_type, x_type_of(options, architecture));
  GEMMTUNE_TRY(const auto y_type, y_type_of(options, architecture));
  Problem problem = default_problem(operation.value_or(OperationForm()), architecture);
  GEMMTUNE_TRY(problem.m, dimension("-m", options.m));
  GEMMTUNE_TRY(problem.n, dimension("-n", options.n));
  GEMMTUNE_TRY(problem.k, dimension("-k", options.k));
  if (x_type) set_types(problem, *x_type);
  problem.y_type = y_type.value_or(default_y_type(problem.operation, problem.x_type));
  problem.bias = options.bias;
  problem.scale_ab = options.scale_ab;
  if (options.bpreshuffle) problem.weight_layout = WeightLayout::any;
  GEMMTUNE_RETURN_IF_ERROR(read_orders(options, problem));
  GEMMTUNE_RETURN_IF_ERROR(read_other_sizes(options, architecture, problem));
  GEMMTUNE_RETURN_IF_ERROR(check_form(operation.value_or(OperationForm()), problem));
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  return problem;
}

}  // namespace gemmtune::cli
