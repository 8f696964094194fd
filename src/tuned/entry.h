// TunedEntry: what was learnt about one problem on one device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rare_text.h"
#include "problem/accuracy.h"
#include "problem/problem.h"

namespace gemmtune {

/// The row's kernel against the default kernel. `win`: it beats the default, whether other kernels are as
/// fast or not (TunedEntry::ties). `only`: no family has a default. `default_wrong`: the default failed
/// verification or has an erratum, so there is no ratio. `default_untimed`: there is a default, and it could not be
/// timed. `energy`: chosen for its joules, and its time alone would not have had it chosen. keep_default prints as
/// "default".
enum class Verdict { none, win, keep_default, undecided, only, default_wrong, energy, default_untimed };
std::span<const Verdict> all_verdicts();
std::string_view to_string(Verdict verdict);
/// Sentences for people.
std::string_view describe(Verdict verdict);
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
  // Of the problem's products, the part that `us` surely holds: less where the time is that of one of several devices. 0: nothing
  // is known, so that no time is too short.
  float rated_share = 1;
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
  std::optional<double> speedup;      // paired median ratio default/us, not their quotient
  std::optional<double> speedup_low;  // 95 % interval of that ratio
  std::optional<double> speedup_high;
  Verdict verdict = Verdict::none;
  std::optional<std::int64_t> ties;  // other kernels that may be as fast
  std::optional<std::int64_t> m_from;
  std::optional<double> regret;
  std::string pdl_kernel_name;
  std::optional<double> pdl_us;
  std::optional<Accuracy> accuracy;  // the lowest class of the row's kernels
  std::string env;
  // The bit class of its kernel (verify/bit_class.h): the rows of such a group answer every M, in one class. Empty: not
  // invariant.
  RareText bits;
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
  // Of a file that holds no times at all (hip_online_tuning_res.csv): `us` is NaN, and the row answers all the same.
  bool never_timed = false;
  std::size_t line = 0;      // of the file it was read from, 1-based; 0: not from a file
  std::uint32_t source = 0;  // which file, where several were read into one table: the reader's index
};

/// A time that may be chosen: finite and above 0.
bool valid_time(double us);
/// "12.5 µs", as the file has it; "no time" for a time that is not there.
std::string row_time_text(double us);

/// The tag of rows that AITER's dispatch drops.
inline constexpr std::string_view unused_tag = "flydsl_fallback";

/// False for rows that no look-up may ever ask for: of tables that are only read, those that AITER's dispatch
/// drops (unused_tag), and M out of range. The time is not asked.
bool is_of_look_up(const TunedEntry& entry);

/// gfx942, gfx950 …: only these may be meant by a file without a gfx column.
bool amd_architecture(std::string_view gfx);
/// One of a CPU's instruction-set levels ("x86-avx2"), whose rows have the number of threads as cu_num.
bool cpu_architecture(std::string_view gfx);
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
