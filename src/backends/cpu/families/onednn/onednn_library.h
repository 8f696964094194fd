// oneDNN as this process has it: the loaded module and what it can do here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/families/onednn/onednn_module.h"
#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/machine/isa.h"

namespace gemmtune::cpu {

/// Where oneDNN and our modules over it are looked for.
struct OnednnPlaces {
  std::string module_folder;         // GEMMTUNE_LIBRARY_DIR: of our modules, and of the first libdnnl.so.3
  std::vector<std::string> folders;  // of further ones, in this order; the loader's own follow
};

/// Immutable; safe from any thread. Never unloaded.
class OnednnLibrary {
 public:
  /// Loads the first libdnnl.so.3 of the places that can be used, by libgemmtune_onednn3.so; where there is none
  /// libgemmtune_onednn.so with the libdnnl that it was built for. Fails with what is missing and how to get it.
  /// `cap` limits oneDNN in the whole process and must come before its first use. `bounded_spin`: BoundedOpenmpSpin.
  static Result<std::shared_ptr<const OnednnLibrary>> load(const OnednnPlaces& places, std::optional<Isa> cap,
                                                           bool bounded_spin = false);

  std::string version() const { return table_->version(); }
  /// Files that are there and could not be used, each with its reason; empty: none.
  const std::string& passed_over() const { return passed_over_; }
  std::string path() const;
  const gemmtune_onednn_table& table() const { return *table_; }

  /// ok, or why oneDNN's fast code does not take these types on this CPU. Asked of oneDNN once, with a small
  /// problem.
  Status takes(DataType x_type, DataType y_type, bool bias) const;
  /// Pins the workers of the calling thread's OpenMP team; for the tuner only. See the table.
  void pin_team(const CoreList& cores) const;

 private:
  OnednnLibrary(const gemmtune_onednn_table* table, std::string passed_over);
  std::string probe(gemmtune_onednn_type x_type, gemmtune_onednn_type y_type, bool bias) const;

  static constexpr int types = 3;
  const gemmtune_onednn_table* table_;
  std::string passed_over_;
  std::string refusals_[types][types][2];  // empty: taken
};

/// The year in which the first release of that line (2.6 of "2.6.3") came out; 0: not known here.
int onednn_release_year(std::string_view version);

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
