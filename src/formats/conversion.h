// What `gemmtune convert` passes from a format's reader to another's writer, and both functions of every format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/aiter/schema.h"
#include "formats/diagnostics.h"
#include "formats/shapes/shape_list.h"
#include "tuned/entry.h"

namespace gemmtune {

struct TritonFile;

/// A part of a file that no row holds, such as the bucket of a Triton config that has no largest M. Only a
/// writer of the same format can take it.
struct CarriedPart {
  std::string key;
  std::string text;      // as it stands in the file
  std::size_t line = 0;  // 1-based
  bool taken = false;    // by the writer
};

/// The key of a row in its own format, where the problem does not say all of it.
struct OwnKey {
  std::string text;
  std::string lost;  // what the problem lacks: "lda = 256"; empty: nothing
};

/// What a file holds, in the words that all formats share. A reader hands over everything: what it cannot
/// express as an entry goes into the entries' carried cells, into `parts`, or into `left_out`.
struct ConversionRows {
  std::string source;
  OperationForm operation = Operation::a16w16;  // of all entries
  std::vector<TunedEntry> entries;              // without a winner (libtype empty): a size
  bool has_types = true;                        // false: the format says none, and the caller did not either
  std::string missing;      // why the rows stand for no problem yet, and what to give; empty: they do
  std::string_view origin;  // name of the format that they were read from
  std::vector<CarriedPart> parts;
  std::vector<LeftOut> left_out;
  std::vector<std::string> notes;            // "file:line: …" about what was carried all the same
  std::vector<bool> gone;                    // of each entry (as far as it reaches): left out as a row
  std::vector<std::string> sources;          // where several files were read; TunedEntry::source is an index
  std::map<std::size_t, OwnKey> own_keys;    // by index of the entry; of formats that have them
  std::shared_ptr<const TritonFile> config;  // the Triton config that they were read from

  /// Leaves out the entry of that index.
  void leave_out(std::size_t entry, std::string_view why);
  /// Leaves out a line that has no entry.
  void leave_out_line(std::size_t line, std::string_view why);
  /// The same of what a reader says of single lines: "source:12: why".
  void leave_out_lines(const std::vector<std::string>& diagnostics);
  /// Calls `take(index, entry)` for each entry that is not left out; the text that it answers leaves it out, an empty one does not.
  template <typename Take>
  void take_each(const Take& take) {
    for (std::size_t index = 0; index < entries.size(); ++index) {
      if (is_gone(index)) continue;
      if (const std::string why = take(index, entries[index]); !why.empty()) leave_out(index, why);
    }
  }
  /// Adds the rows of another file. Errors name both: files of several operations or formats, and files with
  /// parts or sizes that only their own text and name hold.
  Status append(ConversionRows more);
  bool is_gone(std::size_t entry) const { return entry < gone.size() && gone[entry]; }
};

/// What a format does not say itself. The file's own words win, but for the types.
struct ConversionOptions {
  std::string gfx;
  int cu_num = 0;
  std::optional<std::int64_t> n;
  std::optional<std::int64_t> k;
  std::optional<DataType> x_type;
  std::optional<DataType> y_type;
  std::optional<OperationForm> operation;
  // Triton JSON with small_M, medium_M and large_M (true) or M_LEQ_x; nullopt: a Triton config keeps its own keys.
  std::optional<bool> thirds;
};

/// Which cells of a row a format has a place for.
struct HeldColumns {
  bool all = false;               // every column, unknown ones included
  std::span<const Column> known;  // beside the sizes and the kernel, which every format holds
  bool calls = false;             // how often a shape runs, and its layer
  bool problem = true;            // false: the file's name says which problem its rows are of
  bool sizes_only = false;        // a list of sizes: winners, times and devices are no part of it
};

struct Format {
  std::string_view name;
  std::string_view description;
  std::string_view file_names;
  HeldColumns holds;
  /// nullptr: not read, not written.
  Result<ConversionRows> (*read)(const std::string& source, std::string content,
                                 const ConversionOptions& options);
  /// Leaves out the rows that the format cannot hold (some may be gone before); an error where the options lack
  /// what it needs. Called through write_rows() only.
  Result<std::string> (*write)(ConversionRows& rows, const ConversionOptions& options);
};

// Readers and writers, in the folders of the formats.
Result<ConversionRows> read_aiter_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_aiter_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_seed_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_untuned_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_untuned_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_triton_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_triton_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_nearest_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_tune_gemm_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_tune_gemm_v2_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_tune_gemm_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_tune_gemm_sizes(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_hipblaslt_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_hipblaslt_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_tunableop_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_tunableop_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_flashinfer_rows(const std::string&, std::string, const ConversionOptions&);
Result<ConversionRows> read_bench_rows(const std::string&, std::string, const ConversionOptions&);
Result<ConversionRows> read_cutlass_rows(const std::string&, std::string, const ConversionOptions&);
Result<ConversionRows> read_aic_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_aic_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_listing(ConversionRows&, const ConversionOptions&);

ShapeListOptions list_options_of(const ConversionOptions& options);
/// The sizes of a list as rows, what the list could not read left out.
Result<ConversionRows> rows_of_list(Result<ShapeList> list, std::string_view origin);
/// An error that asks for --indtype where the types are not known.
Status require_types(const ConversionRows& rows);

}  // namespace gemmtune
