// What `gemmtune audit` reads: tuned files, Triton configs, and files of other formats.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/triton/triton_json.h"
#include "tuned/checks.h"
#include "tuned/finding.h"

namespace gemmtune::cli {

/// Rows of a file of which no time is too short.
struct UnratedRows {
  std::size_t file = 0;  // of AuditedFiles::files
  std::size_t rows = 0;
  std::string why;
};

struct AuditedFiles {
  std::vector<TunedFile> files;           // of files that are no tables the path and what is malformed
  std::vector<std::string_view> formats;  // of each file, by name
  std::vector<TritonFile> configs;        // those of `files` that are Triton configs
  std::vector<std::size_t> config_index;  // of each of them, in `files`
  std::vector<std::string> unread;        // why, one a file that cannot be read
  std::vector<UnratedRows> unrated;

  /// nullptr: the file is none.
  const TritonFile* config_of(std::size_t file) const;
  std::size_t bucket_count() const;
};

/// The files of the words, each a path, a folder of Triton configs or a colon-separated list. A file that cannot be read
/// does not end the audit of the others.
AuditedFiles read_audited_files(const std::vector<std::string>& words,
                                std::optional<OperationForm> operation);

/// What `gemmtune audit` finds, ascending in file, line and kind; Finding::source is an index into `files`. With a device
/// also what it says of its own rows and of the kernels that Triton configs of its architecture name.
std::vector<Finding> all_findings(AuditedFiles& audited, const CheckOptions& checks, const Device* device);

/// Keys of which no row may be chosen, though a request can ask for them: AITER answers from such rows.
std::size_t withheld_keys(const AuditedFiles& audited);

}  // namespace gemmtune::cli
