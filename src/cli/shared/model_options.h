// --model_dir and what belongs to it: the same on tune and shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "cli/shared/size_options.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune::cli {

class CommandOptions;

/// Texts as given; empty: from the environment (GTUNE_MODEL, GTUNE_TP, GTUNE_BATCH_SIZE), else AITER's
/// defaults.
struct ModelOptions {
  std::string folder;
  std::string tensor_parallel;
  bool expert_parallel = false;
  std::string tokens;  // --nsets: comma list
  std::string batch_size;
  std::string vocab_size;
  std::string assume;
  std::string server;              // --for
  std::string sequences;           // --max-num-seqs
  std::string batched_tokens;      // --max-num-batched-tokens
  std::string speculative_tokens;  // --speculative-tokens
};

void declare_model_options(CommandOptions& app, ModelOptions& options);
/// Numbers that were given, whether a model is read or not.
Status check_words(const ModelOptions& options);
/// The numbers of --nsets; an empty text: the default ones.
Result<std::vector<std::int64_t>> token_counts(const std::string& text);
/// The folder given, else GTUNE_MODEL, else empty.
std::string model_folder(const ModelOptions& options, const Environment& environment);
/// All GEMMs of the model on a device of `architecture` (empty: of none), of the operation in `size` where one is given.
Result<ShapeList> shapes_of_model(const ModelOptions& options, const SizeOptions& size,
                                  const Environment& environment, const std::string& architecture,
                                  bool layer_names);
/// Those that are tuned, a16w16; a line on stderr counts the others. An error where there are none.
Result<ShapeList> tunable_shapes_of_model(const ModelOptions& options, const SizeOptions& size,
                                          const Environment& environment, const std::string& architecture);

}  // namespace gemmtune::cli
