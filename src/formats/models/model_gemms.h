// From a model's layers to problems: types, operation and calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/models/model_config.h"
#include "formats/models/model_layers.h"
#include "formats/models/model_quantization.h"
#include "problem/problem.h"

namespace gemmtune {

/// One GEMM of a list: all of a row but M.
struct ModelGemm {
  Problem problem;
  std::string layer;
  std::int64_t calls = 0;
  bool last_tokens_only = false;
};

/// A layer that is quantized in some transformer layers and not in others becomes a GEMM of each kind. Errors
/// lack the file's name.
Status add_gemms(const ModelLayer& layer, const Quantization& quantization, DataType dtype,
                 const ModelShapeOptions& options, std::vector<ModelGemm>& gemms);

}  // namespace gemmtune
