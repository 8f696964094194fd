// Every format that holds rows or sizes: one row each in all_formats.cpp. What `gemmtune convert` goes by.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tuned/entry.h"

namespace gemmtune {

/// What a file holds, in the words that all formats share.
struct ConversionRows {
  std::string source;
  Operation operation = Operation::a16w16;  // of all entries
  std::vector<TunedEntry> entries;          // without a winner (libtype empty): a size
  bool has_types = true;                    // false: the format says none, and the caller did not either
  std::vector<std::string> left_out;        // "file:line: why", one for each thing that could not be carried
};

/// What a format does not say itself. The file's own words win, but for the types.
struct ConversionOptions {
  std::string gfx;
  int cu_num = 0;
  std::optional<std::int64_t> n;
  std::optional<std::int64_t> k;
  std::optional<DataType> x_type;
  std::optional<DataType> y_type;
  std::optional<Operation> operation;
  bool thirds = false;  // Triton JSON with small_M, medium_M and large_M in place of M_LEQ_x
};

struct Format {
  std::string_view name;
  std::string_view description;
  std::string_view file_names;
  /// nullptr: not read, not written.
  Result<ConversionRows> (*read)(const std::string& source, std::string content,
                                 const ConversionOptions& options);
  /// Adds to rows.left_out what the format cannot hold; an error where the options lack what it needs.
  Result<std::string> (*write)(ConversionRows& rows, const ConversionOptions& options);
};

std::span<const Format> all_formats();
/// By name; an error lists the names.
Result<const Format*> find_format(std::string_view name);
/// From the extension, and from what the content begins with.
Result<const Format*> detect_format(const std::string& source, std::string_view content);

// Readers and writers, in convert_*.cpp.
Result<ConversionRows> read_aiter_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_aiter_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_seed_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_untuned_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_untuned_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_triton_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_triton_rows(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_tune_gemm_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_tune_gemm_v2_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_tune_gemm_rows(ConversionRows&, const ConversionOptions&);
Result<std::string> write_tune_gemm_sizes(ConversionRows&, const ConversionOptions&);
Result<ConversionRows> read_hipblaslt_rows(const std::string&, std::string, const ConversionOptions&);
Result<std::string> write_hipblaslt_rows(ConversionRows&, const ConversionOptions&);

/// "file:line: why" of an entry that the format to be written cannot hold.
void leave_out(ConversionRows& rows, const TunedEntry& entry, std::string_view why);
/// An error that asks for --indtype where the types are not known.
Status require_types(const ConversionRows& rows);

}  // namespace gemmtune
