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

/// Llama-like models: fused QKV, attention output, fused gate+up, down, for each token count ascending; then
/// lm_head (one token row a sequence: M = batch size). M = tokens · batch size, N = out features, K = in
/// features of one rank of tensor_parallel. calls = layers, 1 for lm_head.
///
/// head_dim and vocab_size are honoured. num_key_value_heads: as num_attention_heads where missing; fewer KV
/// heads than ranks are replicated, as vLLM does, where the ranks are a multiple of them. attention_bias (QKV
/// and output), mlp_bias and the QKV bias of qwen2 set `bias`. A model_type that is not known to be
/// Llama-like is a complaint.
///
/// Errors, each naming the field and its value: missing fields, MoE and MLA models, hybrid attention, a
/// quantized model where x_type is not given, sizes that tensor parallelism does not divide, damaged JSON
/// (file:line). `model_folder` may be the config.json itself.
Result<ShapeList> model_shapes(const std::string& model_folder, const ModelShapeOptions& options);

}  // namespace gemmtune
