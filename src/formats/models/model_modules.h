// Names of a checkpoint's modules, and the patterns with which quantization configs pick some of them.
#pragma once

#include <memory>
#include <regex>
#include <string>
#include <string_view>

#include "base/status.h"

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

}  // namespace gemmtune
