#include "cli/tables/audited_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/environment.h"
#include "base/path_list.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/shared/console.h"
#include "formats/aic/aic_csv.h"
#include "formats/aiter/table_audit.h"
#include "formats/all_formats.h"
#include "formats/flashinfer/flashinfer_cache.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "formats/parquet/parquet.h"
#include "formats/shapes/shape_list.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/triton_audit.h"
#include "formats/triton/triton_folder.h"
#include "formats/tunableop/tunableop_csv.h"
#include "formats/tune_gemm/gemm_result_yaml.h"
#include "resolve/bind.h"
#include "resolve/row_audit.h"
#include "tuned/groups.h"

namespace gemmtune::cli {
namespace {

/// "file:line: what is wrong" for each part of the file that means nothing; an error where the whole means
/// nothing.
Result<std::vector<std::string>> diagnostics_of(const std::string& source, const std::string& content,
                                                const ShapeListOptions& options) {
  if (trim(content).empty()) return Status::invalid("{}: empty, expected rows or sizes", source);
  const std::string_view name = detect_format(source, content).name;
  const auto diagnostics_in = [](auto file) -> Result<std::vector<std::string>> {
    if (!file.ok()) return file.status();
    return std::move(file->diagnostics);
  };
  if (name == "hipblaslt_csv") return diagnostics_in(parse_hipblaslt_csv(source, content));
  if (name == "flashinfer") {
    GEMMTUNE_TRY(auto cache, parse_flashinfer_cache(source, content));
    std::move(cache.notes.begin(), cache.notes.end(), std::back_inserter(cache.diagnostics));
    return std::move(cache.diagnostics);
  }
  if (name == "tunableop") return diagnostics_in(parse_tunableop_csv(source, content));
  if (name == "aic") return diagnostics_in(parse_aic_csv(source, content));
  if (name == "rocblas_yaml" || name == "cutlass_csv" || name == "untuned")
    return diagnostics_in(parse_shape_list(source, content, options));
  return diagnostics_in(parse_gemm_results(source, content));
}

/// Adds a tuned file or Triton config whole; of other formats what is malformed, without rows.
Status add_file(const std::string& path, std::optional<OperationForm> operation, AuditedFiles& audited) {
  GEMMTUNE_TRY(auto content, read_text_of_table(path, {.python = read_environment().python}));
  const Format& format = detect_format(path, content);
  TunedFile file;
  file.path = path;
  if (is_tuned_format(format)) {
    GEMMTUNE_TRY(file, parse_tuned_csv(path, std::move(content), {.operation = operation}));
  } else if (format.read == read_triton_rows) {
    GEMMTUNE_TRY(auto config, parse_triton_json(path, content));
    audited.config_index.push_back(audited.files.size());
    audited.configs.push_back(std::move(config));
  } else if (format.read == read_aic_rows) {
    GEMMTUNE_TRY(auto parsed, parse_aic_csv(path, std::move(content)));
    file.entries = std::move(parsed.entries);
    file.diagnostics = std::move(parsed.diagnostics);
    for (const auto& [why, rows] : parsed.unrated)
      audited.unrated.push_back({audited.files.size(), rows, why});
  } else {
    ShapeListOptions list;
    list.operation = operation;
    GEMMTUNE_TRY(file.diagnostics, diagnostics_of(path, content, list));
  }
  audited.files.push_back(std::move(file));
  audited.formats.push_back(format.name);
  return {};
}

/// A folder as the Triton configs in it; one without any stays, and is then no file that can be read.
std::vector<std::string> with_configs_of_folders(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    auto configs = config_files_in(path);
    if (configs.empty()) configs = {path};
    std::move(configs.begin(), configs.end(), std::back_inserter(files));
  }
  return files;
}

/// What an open device says, and what could not be read beside a file.
std::vector<Finding> device_findings(const std::vector<TunedFile>& files, const Device& device) {
  std::vector<EnvironmentNotes> environments;
  Rows rows;
  for (const TunedFile& file : files) {
    auto notes = EnvironmentNotes::read(file.path);
    if (!notes.ok()) print_note(notes.message());
    environments.push_back(notes.ok() ? std::move(*notes) : EnvironmentNotes());
    for (const TunedEntry& entry : file.entries) rows.push_back(&entry);
  }
  return check_rows_on_device(rows, environments, device);
}

/// The findings of the Triton configs. With a device also the kernels of its architecture that it does not know.
void add_config_findings(const AuditedFiles& audited, const Device* device, std::vector<Finding>& findings) {
  for (Finding& finding : audit_triton_files(audited.configs)) {
    finding.source = static_cast<std::uint32_t>(audited.config_index[finding.source]);
    findings.push_back(std::move(finding));
  }
  for (std::size_t index = 0; device != nullptr && index < audited.configs.size(); ++index) {
    const TritonFile& config = audited.configs[index];
    const auto rows = rows_to_run(config);
    if (!rows.ok() || config.name.arch != device->info().gfx) continue;
    for (const TunedEntry& row : *rows) {
      // A Triton configuration names no kernel, and a name that is none of ours is found without a device.
      if (!check_has_kernel(row).ok() || !family_of_kernel_name(row.kernel_name)) continue;
      const auto status = resolve_name(*device, row.kernel_name, row.problem);
      if (status.ok()) continue;
      findings.push_back({FindingKind::unknown_kernel,
                          static_cast<std::uint32_t>(audited.config_index[index]), row.line,
                          fmt::format("{}: kernel '{}': {}", row.bucket, row.kernel_name, status.message())});
    }
  }
}

}  // namespace

const TritonFile* AuditedFiles::config_of(std::size_t file) const {
  const auto at = std::find(config_index.begin(), config_index.end(), file);
  return at == config_index.end() ? nullptr : &configs[static_cast<std::size_t>(at - config_index.begin())];
}

std::size_t AuditedFiles::bucket_count() const {
  std::size_t buckets = 0;
  for (const TritonFile& config : configs) buckets += config.buckets.size();
  return buckets;
}

AuditedFiles read_audited_files(const std::vector<std::string>& words,
                                std::optional<OperationForm> operation) {
  AuditedFiles audited;
  for (const std::string& word : words) {
    for (const std::string& path : with_configs_of_folders(path_list(word))) {
      if (const Status status = add_file(path, operation, audited); !status.ok())
        audited.unread.push_back(status.message());
    }
  }
  return audited;
}

std::vector<Finding> all_findings(AuditedFiles& audited, const CheckOptions& checks, const Device* device) {
  std::vector<Finding> findings = audit_tables(audited.files, checks);
  if (device != nullptr) {
    auto of_device = device_findings(audited.files, *device);
    std::move(of_device.begin(), of_device.end(), std::back_inserter(findings));
  }
  add_config_findings(audited, device, findings);
  std::ranges::stable_sort(findings, [](const Finding& a, const Finding& b) {
    return std::tuple(a.source, a.line, a.kind) < std::tuple(b.source, b.line, b.kind);
  });
  return findings;
}

std::size_t withheld_keys(const AuditedFiles& audited) {
  Rows rows;
  for (const TunedFile& file : audited.files) {
    for (const TunedEntry& entry : file.entries) {
      if (entry.other_key.empty() && why_unreachable(entry).empty()) rows.push_back(&entry);
    }
  }
  std::size_t keys = 0;
  for (const Rows& group : rows_by_group(rows)) {
    for (const TunedEntry* row : chosen_rows(group)) keys += may_be_chosen(*row) ? 0 : 1;
  }
  return keys;
}

}  // namespace gemmtune::cli
