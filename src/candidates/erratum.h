// Erratum: for which problems and configs a library's kernels are known to be wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "candidates/config.h"
#include "candidates/integer_expression.h"
#include "problem/problem.h"

namespace gemmtune {

/// What happens without the erratum.
enum class ErratumEffect {
  wrong,  // the result
  crash,  // the process ends
};
std::string_view to_string(ErratumEffect effect);

struct Erratum {
  std::string name;    // "cublaslt-split-k-tail"; unique
  std::string family;  // whose kernels; a library of the device has the same name (in any case)
  // Versions of that library, both included, compared number by number as far as they are written: 13.1 is
  // every 13.1.x. Empty: no limit.
  std::string first_version;
  std::string last_version;
  // Versions in that range from which on their line is right: 12.9.2 is 12.9.2, 12.9.3 and so on.
  std::vector<std::string> repaired;
  std::vector<std::string> architectures;  // as in tables: sm_90, x86-amx; empty: all
  std::vector<OperationForm> operations;   // empty: all
  std::vector<std::string>
      types;  // of x, as words whose meaning the device decides (data_type_on); empty: all
  std::vector<std::string> parameters;  // keys of the family's configs that `condition` uses; absent: 0
  /// Beside `parameters` it may use erratum_sizes().
  IntegerExpression condition;
  ErratumEffect effect = ErratumEffect::wrong;
  std::string what;   // is wrong, one sentence
  std::string found;  // how, where and when
  std::string repro;  // a command line of `gemmtune check`
};

/// m, n, k, batch, bias (1 or 0), alignment (bytes): what conditions may use of a problem.
std::vector<std::string_view> erratum_sizes();

/// True if the library's version is in the erratum's range and not repaired. A version that is no dotted number is in none,
/// unless the range has no limits.
bool covers_version(const Erratum& erratum, std::string_view version);

/// True if the kernel is wrong for the problem, on a device of `architecture` and with a library that the erratum covers. A
/// condition without a value (a division by zero) does not hold.
bool holds(const Erratum& erratum, std::string_view architecture, const Problem& problem,
           const Candidate& candidate);

/// "erratum NAME: WHAT".
std::string describe(const Erratum& erratum);

}  // namespace gemmtune
