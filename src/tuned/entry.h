// TunedEntry: what was learnt about one problem on one device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/rare_text.h"
#include "problem/accuracy.h"
#include "problem/problem.h"

namespace gemmtune {

/// The row's kernel against the default kernel. `win`: it beats the default, whether other kernels are as
/// fast or not (TunedEntry::ties). `only`: there is no default. `default_wrong`: the default failed
/// verification or has an erratum, so there is no ratio. `energy`: chosen for its joules, and its time alone would not
/// have had it chosen. keep_default prints as "default".
enum class Verdict { none, win, keep_default, undecided, only, default_wrong, energy };
std::string_view to_string(Verdict verdict);
std::optional<Verdict> parse_verdict(std::string_view text);

/// What a fused MoE row has beside a plain one; kernel_name and err_ratio of the entry are the first stage's
/// name and the larger error.
struct MoeStages {
  std::int64_t block_m = 0;
  double us1 = 0;  // NaN: an empty cell; so are the others
  double us2 = 0;
  double err1 = 0;  // share, 0 … 1
  double err2 = 0;
  std::string kernel_name2;  // empty where one kernel does both
  bool run_1stage = false;
  bool xbf16 = false;
  std::int64_t flat = 0;  // 0, 1, or 2 for AITER's one-stage kernels
  std::string tag;        // AITER's _tag
};

/// A cell of the file that a TunedEntry has no member for, or that its member would not give back: of an
/// unknown column, of a known one with an unknown word, or a number with more digits than are written.
struct CarriedCell {
  std::string column;  // a known one under its table's name
  std::string text;    // without quotes
  friend bool operator==(const CarriedCell&, const CarriedCell&) = default;
};
using CarriedCells = std::vector<CarriedCell>;

struct TunedEntry {
  std::string gfx;  // empty: the file has no gfx column (AMD devices only)
  int cu_num = 0;
  Problem problem;  // weight_layout: `any` where bpreshuffle and read from a file (the kernel name holds it)
  std::string libtype;
  std::int64_t solidx = 0;
  std::int64_t split_k = 0;
  double us = 0;  // NaN: an empty cell
  std::string kernel_name;
  double err_ratio = 0;  // NaN: an empty cell
  // gemmtune's own columns; nullopt: an empty cell
  std::optional<double> spread;
  std::optional<double> default_us;
  std::string default_kernel;
  std::optional<double> speedup;  // paired median ratio default/us, not their quotient
  Verdict verdict = Verdict::none;
  std::optional<std::int64_t> ties;  // other kernels that may be as fast
  std::optional<std::int64_t> m_from;
  std::optional<double> regret;
  std::string pdl_kernel_name;
  std::optional<double> pdl_us;
  std::optional<Accuracy> accuracy;  // the lowest class of the row's kernels
  std::string env;
  RareText routing;                         // fused MoE only: what it was tuned on, Routing::text()
  std::shared_ptr<const MoeStages> stages;  // fused MoE only
  // Further key cells, in tables that no look-up reads (mxscale, heterogeneous and grouped MoE).
  RareText other_key;
  // Cells of the key's type columns that are no type known here: "q_dtype_w=torch.uint32". Part of the key, as
  // text; the problem has the operation's default type then, and no device of ours is asked for the row.
  std::string unknown_types;
  std::shared_ptr<const CarriedCells> carried;  // nullptr: none
  // A bucket of a Triton config: its key (M_LEQ_16, small_M …). The row answers m_from to problem.m on every device
  // of `gfx` (empty: of any) and has no time; sizes that the file's name does not say are 0. Empty: a row of a table.
  std::string bucket;
  std::size_t line = 0;      // of the file it was read from, 1-based; 0: not from a file
  std::uint32_t source = 0;  // which file, where several were read into one table: the reader's index
};

/// A time that may be chosen: finite and above 0.
bool valid_time(double us);

/// False for rows that no look-up may ever ask for: of tables that are only read, those that AITER's dispatch
/// drops (tag flydsl_fallback), and M out of range. The time is not asked.
bool is_of_look_up(const TunedEntry& entry);

/// gfx942, gfx950 …: only these may be meant by a file without a gfx column.
bool amd_architecture(std::string_view gfx);
/// The architecture that AITER takes for a row without gfx: 256 is gfx950, 80 and 304 are gfx942; else empty.
std::string_view gfx_of_cu_num(int cu_num);
/// The architecture that a row is kept under. A fused MoE row without gfx has the one of its cu_num, as in
/// AITER; other rows without gfx match every AMD architecture.
std::string_view table_gfx(const TunedEntry& entry);

/// The text of a carried cell; nullptr where the entry carries none of that column.
const std::string* find_carried(const TunedEntry& entry, std::string_view column);

/// Both rows run the same kernel in the same way: all that dispatch takes from a row.
bool same_winner(const TunedEntry& a, const TunedEntry& b);

}  // namespace gemmtune
