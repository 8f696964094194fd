#include "cli/shared/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "formats/models/model_config.h"
#include "formats/models/model_folder.h"
#include "formats/models/serving_sizes.h"

namespace gemmtune::cli {
namespace {

/// A whole number of at least 1: the option's, else the variable's, else 1.
Result<std::int64_t> positive(std::string_view option, const std::string& text,
                              const NumberVariable& variable) {
  if (!text.empty()) return whole_number(option, text, 1, max_dimension);
  GEMMTUNE_TRY(const auto set, variable.read(1, max_dimension));
  return set.value_or(1);
}

/// --op, of any operation: a model has rows of several, whichever of them are tuned.
Result<std::optional<OperationForm>> any_operation(const SizeOptions& size) {
  if (size.operation.empty()) return std::optional<OperationForm>();
  if (const auto operation = parse_operation(size.operation)) return operation;
  return operation_of(size);  // the error lists what is known
}

/// The sizes of --for; none without it.
Result<std::optional<ServingSizes>> served_sizes(const ModelOptions& options) {
  if (options.server.empty()) {
    for (const auto& [option, text] : {std::pair{"--max-num-seqs", options.sequences},
                                       std::pair{"--max-num-batched-tokens", options.batched_tokens},
                                       std::pair{"--speculative-tokens", options.speculative_tokens}}) {
      if (!text.empty()) return Status::invalid("{} {}: needs --for vllm or --for sglang", option, text);
    }
    return std::optional<ServingSizes>();
  }
  const auto server = parse_server(options.server);
  if (!server) return Status::invalid("--for {}: expected vllm or sglang", options.server);
  if (!options.tokens.empty() || !options.batch_size.empty()) {
    return Status::invalid("--for {}: its token counts are those of the server; not with {}", options.server,
                           options.tokens.empty() ? "--batch_size" : "--nsets");
  }
  ServingSettings settings{.server = *server};
  constexpr std::int64_t max_sequences = 65536;
  constexpr std::int64_t max_drafted = 64;
  const auto read = [](const char* option, const std::string& text, std::int64_t least, std::int64_t most,
                       std::int64_t& value) -> Status {
    if (text.empty()) return {};
    GEMMTUNE_TRY(value, whole_number(option, text, least, most));
    return {};
  };
  GEMMTUNE_RETURN_IF_ERROR(read("--max-num-seqs", options.sequences, 1, max_sequences, settings.sequences));
  GEMMTUNE_RETURN_IF_ERROR(read("--max-num-batched-tokens", options.batched_tokens, 1, max_dimension / 2,
                                settings.batched_tokens));
  GEMMTUNE_RETURN_IF_ERROR(
      read("--speculative-tokens", options.speculative_tokens, 0, max_drafted, settings.drafted));
  return std::optional<ServingSizes>(serving_sizes(settings));
}

/// The plug-in of vLLM packs dense 4-bit weights on GPUs, where packed kernels are the faster ones.
bool is_packed_in_vllm(const ModelOptions& options, OperationForm form, const std::string& architecture) {
  const bool is_gpu = architecture.starts_with("sm_") || architecture.starts_with("gfx");
  const OperationTraits& operation = traits(form.operation);
  const bool weight_alone_is_quantized = operation.own_w_type() && operation.quantization == QuantType::none;
  return is_gpu && options.server == "vllm" && weight_alone_is_quantized;
}

}  // namespace

Result<std::vector<std::int64_t>> token_counts(const std::string& text) {
  if (text.empty()) return ModelShapeOptions().tokens;
  std::vector<std::int64_t> tokens;
  for (const std::string_view part : split(text, ',')) {
    const auto value = parse_integer(trim(part));
    if (!value || *value < 1 || *value > max_dimension) {
      return Status::invalid("--nsets {}: '{}' is no whole number from 1 to {}", text, part, max_dimension);
    }
    tokens.push_back(*value);
  }
  return tokens;
}

void declare_model_options(CommandOptions& app, ModelOptions& options) {
  app.add_option(
      "--model-dir,--model", options.folder,
      "Shapes of a model: a folder with config.json, a shipped model's name, or a Hugging Face id that the "
      "cache has (default: GTUNE_MODEL)");
  app.add_option("--tp", options.tensor_parallel,
                 "Tensor parallelism of the model's shapes (GTUNE_TP, else 1)");
  app.add_flag("--expert-parallel", options.expert_parallel,
               "The ranks of --tp divide the experts, not each expert (vLLM's --enable-expert-parallel)");
  app.add_option("--nsets", options.tokens,
                 "Token counts, comma list (default 1,512,1024,2048,3072,4096,8192,16384)");
  app.add_option("--vocab-size", options.vocab_size, "Rows of lm_head's weight where config.json has none");
  app.add_option("--assume", options.assume,
                 "The architecture of a config.json whose model_type is not known: llama, gpt_neox, opt …");
  app.add_option("--batch-size", options.batch_size, "Factor of the token counts (GTUNE_BATCH_SIZE, else 1)");
  app.add_option(
      "--for", options.server,
      "Token counts of a server in place of --nsets: vllm or sglang; its CUDA graphs, and prompts up to "
      "--max-num-batched-tokens. tune --for vllm packs dense 4-bit weights on GPUs, as vLLM's plug-in does");
  app.add_option("--max-num-seqs", options.sequences,
                 "With --for: sequences that decode at once (default 256)");
  app.add_option("--max-num-batched-tokens", options.batched_tokens,
                 "With --for: tokens of a step at most (default 8192)");
  app.add_option("--speculative-tokens", options.speculative_tokens,
                 "With --for: drafted tokens of a sequence in a step of speculative decoding (default 0)");
}

Status check_words(const ModelOptions& options) {
  const NumberVariable none{};
  GEMMTUNE_RETURN_IF_ERROR(positive("--tp", options.tensor_parallel, none).status());
  GEMMTUNE_RETURN_IF_ERROR(positive("--batch_size", options.batch_size, none).status());
  GEMMTUNE_RETURN_IF_ERROR(served_sizes(options).status());
  return token_counts(options.tokens).status();
}

std::string model_folder(const ModelOptions& options, const Environment& environment) {
  return options.folder.empty() ? environment.model_folder : options.folder;
}

Result<ShapeList> shapes_of_model(const ModelOptions& options, const SizeOptions& size,
                                  const Environment& environment, const std::string& architecture,
                                  bool layer_names) {
  ModelShapeOptions shape_options;
  GEMMTUNE_TRY(shape_options.tensor_parallel,
               positive("--tp", options.tensor_parallel, environment.tensor_parallel));
  GEMMTUNE_TRY(shape_options.batch_size,
               positive("--batch_size", options.batch_size, environment.batch_size));
  GEMMTUNE_TRY(shape_options.tokens, token_counts(options.tokens));
  GEMMTUNE_TRY(const auto served, served_sizes(options));
  GEMMTUNE_TRY(shape_options.x_type, x_type_of(size, architecture));
  GEMMTUNE_TRY(shape_options.y_type, y_type_of(size, architecture));
  GEMMTUNE_TRY(shape_options.operation, any_operation(size));
  shape_options.expert_parallel = options.expert_parallel;
  if (served) {
    shape_options.served = true;
    shape_options.batch_size = 1;  // GTUNE_BATCH_SIZE is no server's
    shape_options.tokens = served->tokens;
    shape_options.lm_head_rows = served->sequences;
  }
  shape_options.bpreshuffle = size.bpreshuffle;
  shape_options.layer_names = layer_names;
  shape_options.architecture = architecture;
  shape_options.assume = options.assume;
  if (!options.vocab_size.empty()) {
    GEMMTUNE_TRY(shape_options.vocab_size,
                 whole_number("--vocab_size", options.vocab_size, 1, max_dimension));
  }
  GEMMTUNE_TRY(const auto folder,
               find_model_folder(model_folder(options, environment),
                                 {.shipped = environment.models_folder, .hub = environment.hub_folder}));
  return model_shapes(folder, shape_options);
}

Result<ShapeList> tunable_shapes_of_model(const ModelOptions& options, const SizeOptions& size,
                                          const Environment& environment, const std::string& architecture) {
  GEMMTUNE_TRY(const auto asked, operation_of(size));
  const OperationForm tuned = asked.value_or(OperationForm());
  SizeOptions laid_out = size;
  laid_out.bpreshuffle |= is_packed_in_vllm(options, tuned, architecture);
  GEMMTUNE_TRY(auto list, shapes_of_model(options, laid_out, environment, architecture, true));
  const auto others = std::stable_partition(
      list.rows.begin(), list.rows.end(), [&](const ShapeRow& row) { return form_of(row.problem) == tuned; });
  const std::string left_out = operation_counts(std::vector<ShapeRow>(others, list.rows.end()));
  list.rows.erase(others, list.rows.end());
  if (list.rows.empty()) {
    return Status::unsupported("{}: no row of {}; there are {}, tuned with --op", list.source,
                               to_string(tuned), left_out);
  }
  if (!left_out.empty()) {
    print_note(
        fmt::format("{}: left out, tuned with --op, or all with -o FOLDER/: {}", list.source, left_out));
  }
  return list;
}

}  // namespace gemmtune::cli
