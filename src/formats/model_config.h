// The GEMM shapes of a model, from its Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shape_list.h"

namespace gemmtune {

struct ModelShapeOptions {
  std::int64_t tensor_parallel = 1;
  std::vector<std::int64_t> tokens = {1, 512, 1024, 2048, 3072, 4096, 8192, 16384};  // --nsets
  std::int64_t batch_size = 1;
  std::optional<DataType> x_type;  // from the model (torch_dtype / dtype) where not given
  std::optional<DataType> y_type;
  bool lm_head = true;
  bool layer_names = false;
};

/// Llama-like models: fused QKV, attention output, fused gate+up, down, lm_head; M = tokens · batch size, N =
/// out features, K = in features; head_dim and vocab_size honoured; calls = layers. MoE and MLA models and
/// sizes that tensor parallelism does not divide are errors that name the field and the value.
Result<ShapeList> model_shapes(const std::string& model_folder, const ModelShapeOptions& options);
/// The same for the text of a config.json; `path` stands in messages.
Result<ShapeList> parse_model_config(const std::string& path, const std::string& content,
                                     const ModelShapeOptions& options);

}  // namespace gemmtune
