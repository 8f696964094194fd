// quantization_config of a model: which operation each of its layers becomes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/models/model_fields.h"
#include "formats/models/model_layers.h"
#include "problem/problem.h"

namespace gemmtune {

/// A regular expression after "re:" (compressed-tensors: from the beginning of the full name), a glob where
/// it has
/// '*', else a name. A glob or name that stands for a part of a module's path ("model.layers.3.self_attn",
/// "lm_head", "mlp.gate") picks all below it.
class ModulePattern {
 public:
  /// An error where the expression after "re:" is none; it names the expression.
  static Result<ModulePattern> parse(std::string_view text);

  const std::string& text() const { return text_; }
  /// The module is named without what wraps a language model: "lm_head", "layers.3.self_attn.q_proj".
  bool picks(std::string_view module) const;

 private:
  std::string text_;
  std::string name_;                              // without wrappers
  std::shared_ptr<const std::regex> expression_;  // nullptr: a glob or a name
};

/// How one layer's operands are quantized.
struct WeightFormat {
  Operation operation = Operation::a8w8;     // of a linear layer
  DataType type = DataType::f8_e4m3fn;       // of w, and of x unless the operation's w has a type of its own
  QuantType expert_quant = QuantType::none;  // of the same format in fused_moe
  std::int64_t expert_multiple = 1;          // the experts' sizes are padded to multiples of it
  bool experts = true;                       // fused_moe has such weights with such tokens
  std::int32_t group = 0;                    // of int4 weights, along K; 0: whole rows
  bool zero_points = false;                  // of int4 weights
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

/// A format and the modules that have it.
struct QuantizedGroup {
  std::vector<ModulePattern> modules = {};
  bool linear = false;   // every linear layer and the experts, unless another group names them
  bool experts = false;  // the experts
  std::optional<WeightFormat> format = {};  // nullopt: left unquantized
};

class Quantization {
 public:
  /// Of a model without one: every layer is unquantized. Errors: a quant_method that is not known (the text
  /// lists those that are), formats that no operation has, fields of a wrong type.
  static Result<Quantization> read(ModelFields& fields);

  /// Of a GEMM in one transformer layer (its index is ignored for lm_head); nullopt: unquantized. An error
  /// where the parts that engines fuse into one GEMM have different formats.
  Result<std::optional<WeightFormat>> format_of(const ModelLayer& layer, std::int64_t index) const;

 private:
  std::optional<WeightFormat> format_of_module(const ModelLayer& layer, const std::string& module) const;

  std::vector<QuantizedGroup> groups_;
  std::vector<ModulePattern> left_out_;  // never quantized
};

}  // namespace gemmtune
