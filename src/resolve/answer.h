// What runs a problem: the first row of the tables that can run here, else the device's fallback. Dispatch
// makes its plans of this answer, bench times it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "resolve/bind.h"
#include "resolve/table_set.h"

namespace gemmtune {

/// The tables that are searched, in this order. All must outlive what is made of them.
struct LookupTables {
  /// Asked for where no other table answers, so that they may be read then.
  using Shipped = std::function<const TableSet*()>;

  // Implicit: a table set alone is a whole list. NOLINTNEXTLINE(google-explicit-constructor)
  LookupTables(const TableSet& tuned_files, const TableSet* online_rows = nullptr,
               Shipped shipped_tables = {})
      : tuned(&tuned_files), online(online_rows), shipped_(std::move(shipped_tables)) {}
  /// Null: none.
  const TableSet* shipped() const { return shipped_ ? shipped_() : nullptr; }

  const TableSet* tuned;
  const TableSet* online;  // null: none

 private:
  Shipped shipped_;
};

/// A row that the tables hold for the problem and that does not run it.
struct PassedRow {
  const TableSet* tables = nullptr;
  LookupHit hit;
  Refusal refusal = Refusal::unknown_kernel;
  std::string why;
};

struct Answer {
  Problem problem;
  Status status;      // not ok: neither a row nor the fallback runs
  BoundKernel bound;  // if ok
  const TableSet* tables =
      nullptr;    // that hold the row; null: the fallback, with BindRules::measured_only nothing
  LookupHit hit;  // untuned: the fallback
  std::string other_environment;  // what differs from the row's environment; empty for nothing
  std::vector<PassedRow> passed;  // better rows that do not run, in order

  /// As the row spells it, or the fallback's. Requires ok.
  std::string kernel_name() const;
  /// What decided, in words, the passed rows included. If not ok, the passed rows alone.
  std::string rule() const;
  /// Passed rows whose kernel cannot run here; rows of another environment are none of them.
  int invalid_rows() const;
};

/// Rows of this device, then those of fewer threads on a CPU, then shipped rows, then the fallback. Where rows have a bit
/// class, one of these runs or nothing does. Requires check(problem).ok(). Builds the kernel and may be slow.
Answer answer_problem(const Device& device, const LookupTables& tables, const Problem& problem,
                      BindRules rules);

/// True if the tuner kept the vendor library's default for a product that programs give to the same library: a caller's own kernel is the
/// row's.
bool keeps_callers_kernel(const Device& device, const TunedEntry& row);

/// True if the tables have a row for this problem, whether or not its kernel can run here.
bool has_row(const TableSet& tables, const Device& device, const Problem& problem);

/// "M_LEQ_16 (M = 9 to 16)", of a row that is a bucket.
std::string describe_bucket(const TunedEntry& row);
/// "exact row, M = 16, tuned.csv:12", "bucket M_LEQ_16 (M = 9 to 16), x.json:2"; "shipped exact row …".
std::string describe_hit(const TableSet& tables, const LookupHit& hit);
/// Why this fallback runs, in words.
std::string describe_fallback(const Problem& problem, const BoundKernel& fallback);
/// "; passed over exact row, M = 16, tuned.csv:12, kernel '…': why".
std::string describe_passed(const PassedRow& row);

/// The layout of the table's rows for this weight on this device (operation, N, K and types of `problem`; M,
/// bias and layout are ignored): the one that most rows and buckets whose kernel is known here read, without any
/// most rows of the nearest smaller number of threads, then shipped rows; plain if there is none.
WeightLayout tuned_weight_layout(const Device& device, const LookupTables& tables, const Problem& problem);

/// The problem as a program poses it that packed its weight in tuned_weight_layout(): a layout of `any` is
/// replaced by that one, if a row decides it.
Problem with_tuned_layout(const Device& device, const LookupTables& tables, const Problem& problem);

}  // namespace gemmtune
