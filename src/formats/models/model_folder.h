// Where the config.json of a model lies: a folder, a model that comes with gemmtune, or Hugging Face's cache.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace gemmtune {

struct ModelFolders {
  std::string shipped;  // models/ of the repository or installation; empty: none
  std::string hub;      // of Hugging Face's cache: has models--ORG--NAME; empty: none
};

/// The names of the models in `folders.shipped`, sorted.
std::vector<std::string> shipped_models(const ModelFolders& folders);

/// The folder of `model`, in this order:
/// - a folder of that path;
/// - a shipped model of that name, in any case (llama-3.2-1b);
/// - the snapshot of a Hugging Face id (meta-llama/Llama-3.2-1B) in the cache: the one of refs/main, else the
///   one whose config.json was written last.
/// not_found: names the three, the cache's folder and the command that fills it.
Result<std::string> find_model_folder(const std::string& model, const ModelFolders& folders);

}  // namespace gemmtune
