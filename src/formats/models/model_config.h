// The GEMM shapes of a model, from its Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune {

struct ModelShapeOptions {
  std::int64_t tensor_parallel = 1;
  bool expert_parallel = false;  // the ranks divide the experts, not each expert's hidden size
  std::vector<std::int64_t> tokens = {1, 512, 1024, 2048, 3072, 4096, 8192, 16384};  // --nsets
  std::int64_t batch_size = 1;
  std::vector<std::int64_t> lm_head_rows;  // M of lm_head; empty: batch_size
  // Instead of the model's, of the layers whose operands have as many bits (16 and 32 count as one kind).
  std::optional<DataType> x_type;
  std::optional<DataType> y_type;  // instead of torch_dtype / dtype
  std::string architecture;        // of the device that runs the model: fp8 layers have its fp8 (device_fp8)
  std::optional<OperationForm> operation;  // rows of this one only
  bool bpreshuffle = false;  // weights packed once: the pre-shuffled a8w8 operations; a16w16 so marked
  bool served = false;       // experts as vLLM and SGLang hold them, where that differs from AITER's tables
  bool lm_head = true;
  std::optional<std::int64_t> vocab_size;  // where the config says none
  std::string assume;                      // model_type of architectures.h for a config whose own has no row
  bool layer_names = false;
};

/// The GEMMs of one rank, as vLLM and SGLang run the language model with tensor parallelism: attention
/// (grouped queries or latent), dense feed-forward layers, router, shared experts, experts (fused_moe),
/// lm_head; see docs/shapes.md for each one's N, K and calls. M = tokens · batch size (lm_head: batch size, or lm_head_rows);
/// rows of several operations where the model is quantized or has experts. Rows of one problem are one, their
/// calls added up, unless layers are named. Vision and audio parts and layers for speculative decoding are
/// not made.
///
/// Errors name file, field and value: sizes that tensor parallelism does not divide, fields missing or out of
/// range, quantization that no operation has.
Result<ShapeList> model_shapes(const std::string& model_folder, const ModelShapeOptions& options);
/// The same for the text of a config.json; `path` stands in messages.
Result<ShapeList> parse_model_config(const std::string& path, const std::string& content,
                                     const ModelShapeOptions& options);

/// "3 rows of a16w16, 2 of fused_moe", in the order of the enumeration.
std::string operation_counts(const std::vector<ShapeRow>& rows);

}  // namespace gemmtune
