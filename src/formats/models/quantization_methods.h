// The quantization_config of each known quant_method, as groups of modules and their formats.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "formats/models/model_quantization.h"

namespace gemmtune {

/// `config` is the quantization_config, an object; errors lack the file's name.
Result<std::vector<QuantizedGroup>> quantized_groups(const Json& config, const std::string& model_type);

/// A list of module names or patterns; empty where absent.
Result<std::vector<ModulePattern>> module_patterns(const Json& config, const char* key);

}  // namespace gemmtune
