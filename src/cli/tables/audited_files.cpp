#include "cli/tables/audited_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "base/path_list.h"
#include "formats/all_formats.h"
#include "formats/other_diagnostics.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/triton_audit.h"
#include "formats/triton/triton_folder.h"
#include "resolve/bind.h"

namespace gemmtune::cli {
namespace {

/// A tuned file or Triton config whole; of other formats what is malformed, without rows.
Result<TunedFile> read_audited(const std::string& path, std::optional<Operation> operation,
                               std::string_view& format_name, std::optional<TritonFile>& config) {
  auto content = read_file(path);
  if (!content.ok()) return content.status();
  const Format& format = detect_format(path, *content);
  format_name = format.name;
  if (is_tuned_format(format)) return parse_tuned_csv(path, std::move(*content), {.operation = operation});
  if (format_name == "triton_json") {
    auto parsed = parse_triton_json(path, *content);
    if (!parsed.ok()) return parsed.status();
    config = std::move(*parsed);
    TunedFile file;
    file.path = path;
    return file;
  }
  ShapeListOptions list;
  list.operation = operation;
  auto diagnostics = diagnostics_of(path, *content, list);
  if (!diagnostics.ok()) return diagnostics.status();
  TunedFile file;
  file.path = path;
  file.diagnostics = std::move(*diagnostics);
  return file;
}

/// A folder as the Triton configs in it; one without any stays, and is then no file that can be read.
std::vector<std::string> with_configs_of_folders(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    auto configs = triton_files_in(path);
    if (configs.empty()) configs = {path};
    std::move(configs.begin(), configs.end(), std::back_inserter(files));
  }
  return files;
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

AuditedFiles read_audited_files(const std::vector<std::string>& words, std::optional<Operation> operation) {
  AuditedFiles audited;
  for (const std::string& word : words) {
    for (const std::string& path : with_configs_of_folders(path_list(word))) {
      std::string_view format_name;
      std::optional<TritonFile> config;
      auto file = read_audited(path, operation, format_name, config);
      if (file.ok()) {
        if (config) {
          audited.config_index.push_back(audited.files.size());
          audited.configs.push_back(std::move(*config));
        }
        audited.files.push_back(std::move(*file));
        audited.formats.push_back(format_name);
      } else {
        audited.unread.push_back(file.message());
      }
    }
  }
  return audited;
}

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

}  // namespace gemmtune::cli
