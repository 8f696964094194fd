// -m -n -k and what else says which problem is meant: the same on tune, lookup and explain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune::cli {

class CommandOptions;

/// Texts as given; problem_of reads them, so that every error is worded by us, not by the option parser.
struct SizeOptions {
  std::string operation;
  std::string problem;  // as print() writes it, in place of all others
  std::string m;
  std::string n;
  std::string k;
  std::string x_type;  // --indtype
  std::string y_type;  // --outdtype
  std::string type_a;  // -dtype_a, -dtype_b, -dtype_c of tune_gemm
  std::string type_b;
  std::string type_c;
  std::string batch;    // of the batched operations
  std::string w_type;   // --q_dtype_w; --q_dtype_a is --indtype
  std::string experts;  // fused MoE, as the next six
  std::string topk;
  std::string shared_experts;
  std::string activation;
  std::string quant_type;
  std::string gated;
  std::string doweight_stage1;
  std::string x_order;  // T or N
  std::string w_order;
  std::string scale_format;  // f32 or ue8m0
  std::string group;         // of int4 weights: a number or "row"
  bool column_a = false;
  bool column_b = false;
  bool bias = false;
  bool bpreshuffle = false;
  bool scale_ab = false;
  bool zero_points = false;  // of int4 weights

  bool any() const { return !problem.empty() || !m.empty() || !n.empty() || !k.empty(); }
};

/// An error if an option is given that only -m -n -k use: a list of sizes has a column for each, and nothing else would say
/// that it was ignored. `of_model`: of a model's shapes, which --bpreshuffle is also for.
Status refuse_single_size_options(const SizeOptions& options, bool of_model = false);

/// --scale_fmt of shapes from a file or a model.
Status apply_scale_format(const SizeOptions& options, Problem& problem);

void declare_size_options(CommandOptions& app, SizeOptions& options);

/// --op of a command that reads tuned files and has no sizes.
void declare_file_operation(CommandOptions& app, std::string& operation);
/// The text of --op, parsed; nullopt where it is empty.
Result<std::optional<OperationForm>> operation_word(const std::string& text);
/// --op where given.
Result<std::optional<OperationForm>> operation_of(const SizeOptions& options);
/// Words and numbers that were given, whether something uses them or not.
Status check_words(const SizeOptions& options);
/// --indtype (or -dtype_a, -dtype_b) and --outdtype (or -dtype_c) on a device of `architecture` (data_type_on; empty: no
/// device); nullopt where not given.
Result<std::optional<DataType>> x_type_of(const SizeOptions& options, std::string_view architecture);
Result<std::optional<DataType>> y_type_of(const SizeOptions& options, std::string_view architecture);
/// -m, -n or -k; nullopt where it is empty.
Result<std::optional<std::int64_t>> dimension_word(std::string_view option, const std::string& text);
/// The problem of --problem, or of -m -n -k, on a device of `architecture`, checked. Types default to those of the operation
/// (default_problem); of a16w16 y is as x.
Result<Problem> problem_of(const SizeOptions& options, std::string_view architecture);
/// The same of a list of M ("1,16,128"), in its order.
Result<std::vector<Problem>> problems_of(const SizeOptions& options, std::string_view architecture);

}  // namespace gemmtune::cli
