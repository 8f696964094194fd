#include "cli/inspect/checked_files.h"

#include <utility>

#include "cli/tables/table_files.h"
#include "formats/triton/bucket_rows.h"

namespace gemmtune::cli {
namespace {

/// The buckets of Triton configs.
Result<std::vector<CheckedFile>> read_bucket_files(const std::string& paths, const SizeOptions& size,
                                                   std::optional<OperationForm> operation,
                                                   const DeviceInfo& device) {
  GEMMTUNE_TRY(const auto n, dimension_word("-n", size.n));
  GEMMTUNE_TRY(const auto k, dimension_word("-k", size.k));
  GEMMTUNE_TRY(auto configs, read_triton_files({paths}));
  std::vector<CheckedFile> files;
  for (TritonFile& config : configs) {
    if (!config.name.n || !config.name.k) {
      config.name.n = n;
      config.name.k = k;
    }
    const bool own = config.name.arch.empty() || config.name.arch == device.gfx;
    // Of another device nothing runs, so that whole problems are not needed.
    auto rows = own ? rows_to_run(config, operation) : bucket_rows(config, operation);
    CheckedFile& file = files.emplace_back(CheckedFile{config.path, {}, std::move(config.diagnostics)});
    if (rows.ok()) {
      file.entries = std::move(*rows);
    } else {
      file.diagnostics.push_back(rows.message());
    }
  }
  return files;
}

}  // namespace

Result<std::vector<CheckedFile>> read_checked_files(const std::string& paths, const SizeOptions& size,
                                                    std::optional<OperationForm> operation,
                                                    const DeviceInfo& device) {
  GEMMTUNE_TRY(const auto triton, are_triton_files({paths}));
  if (triton) return read_bucket_files(paths, size, operation, device);
  if (size.any()) return Status::invalid("a file and a size: expected one of them");
  GEMMTUNE_RETURN_IF_ERROR(refuse_single_size_options(size));
  GEMMTUNE_TRY(auto tables, read_tables({paths}, operation));
  std::vector<CheckedFile> files;
  for (TunedFile& table : tables)
    files.push_back({std::move(table.path), std::move(table.entries), std::move(table.diagnostics)});
  return files;
}

}  // namespace gemmtune::cli
