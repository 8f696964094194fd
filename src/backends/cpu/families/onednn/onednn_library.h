// oneDNN as this process has it: the loaded module and what it can do here.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/backend.h"
#include "backends/cpu/families/onednn/onednn_module.h"
#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/machine/isa.h"

namespace gemmtune::cpu {

/// Immutable; safe from any thread. Never unloaded.
class OnednnLibrary {
 public:
  /// Loads libgemmtune_onednn.so and with it libdnnl. Fails with what is missing and how to get it. `cap`
  /// limits oneDNN in the whole process and must come before its first use.
  static Result<std::shared_ptr<const OnednnLibrary>> load(const std::string& module_folder,
                                                           std::optional<Isa> cap);

  std::string version() const { return table_->version(); }
  std::string path() const;
  const gemmtune_onednn_table& table() const { return *table_; }

  /// ok, or why oneDNN's fast code does not take these types on this CPU. Asked of oneDNN once, with a small
  /// problem.
  Status takes(DataType x_type, DataType y_type, bool bias) const;
  /// Pins the workers of the calling thread's OpenMP team; for the tuner only. See the table.
  void pin_team(const CoreList& cores) const;

 private:
  explicit OnednnLibrary(const gemmtune_onednn_table* table);
  std::string probe(gemmtune_onednn_type x_type, gemmtune_onednn_type y_type, bool bias) const;

  static constexpr int types = 3;
  const gemmtune_onednn_table* table_;
  std::string refusals_[types][types][2];  // empty: taken
};

/// nullopt where oneDNN's matmul on floats has no such type.
std::optional<gemmtune_onednn_type> onednn_type(DataType type);

/// Calls a function of the table that takes a gemmtune_onednn_why as its last argument: `unsupported`, or
/// `out_of_memory`, which says nothing of the problem.
template <typename Function, typename... Arguments>
Status call_onednn(Function function, Arguments... arguments) {
  char text[256] = "";
  const int code = function(arguments..., gemmtune_onednn_why{text, sizeof text});
  if (code == gemmtune_onednn_done) return {};
  return code == gemmtune_onednn_no_memory ? Status::out_of_memory("{}", text)
                                           : Status::unsupported("{}", text);
}

}  // namespace gemmtune::cpu
