#include "cli/tables/triton_tables.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "cli/command.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/tables/table_files.h"
#include "formats/json.h"
#include "formats/triton/bucket_sets.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

/// Where each merged file goes.
Result<std::vector<std::string>> target_paths(const TritonMergeOptions& options,
                                              const MergedConfigs& merged) {
  const bool into_folder = names_folder(options.output);
  if (!into_folder && merged.files.size() > 1) {
    return Status::invalid(
        "-o {}: the inputs are {} files by their names; expected a folder (its name ends with /)",
        options.output, merged.files.size());
  }
  std::vector<std::string> paths;
  for (const TritonFile& file : merged.files) {
    const std::string name = std::filesystem::path(file.path).filename().string();
    paths.push_back(into_folder ? join_path(options.output, name) : options.output);
  }
  return paths;
}

Status write_merged(const TritonMergeOptions& options, const std::vector<TritonFile>& inputs,
                    const MergedConfigs& merged) {
  if (options.output.empty() || options.output == "-") {
    if (merged.files.size() > 1)
      return Status::invalid("the inputs are {} files by their names; give -o FOLDER/", merged.files.size());
    print_document(write_triton_json(merged.files.front()));
    return {};
  }
  GEMMTUNE_TRY(const auto paths, target_paths(options, merged));
  for (const std::string& path : paths) {
    for (const TritonFile& input : inputs) {
      if (resolve_links(input.path) == resolve_links(path))
        return Status::invalid("-o {}: is an input, which is never changed; write to another place", path);
    }
  }
  if (names_folder(options.output)) GEMMTUNE_RETURN_IF_ERROR(make_folders(options.output));
  for (const std::string& path : paths) GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", path));
  for (std::size_t index = 0; index < merged.files.size(); ++index) {
    GEMMTUNE_RETURN_IF_ERROR(
        write_file_atomically(resolve_links(paths[index]), write_triton_json(merged.files[index])));
  }
  return {};
}

std::string place(const PlacedBucket& one) { return fmt::format("{}:{}", one.file->path, one.bucket->line); }

std::string change_text(const BucketChange& change) {
  const std::string place_text = place(change.place());
  const std::string& key = change.place().bucket->key;
  const std::string kernel = describe_config(change.place().bucket->config);
  if (change.kind != ChangeKind::winner)
    return fmt::format("{}: {}: {}: {}\n", place_text, to_string(change.kind), key, kernel);
  return fmt::format("{}: winner: {}: {}, before {}\n", place_text, key, kernel,
                     describe_config(change.before.bucket->config));
}

Json side_json(const PlacedBucket& one) {
  if (one.file == nullptr) return {};
  return {{"place", place(one)}, {"kernelName", describe_config(one.bucket->config)}};
}

Json difference_json(const BucketDifference& difference) {
  Json json{{"command", "diff"}, {"equal", difference.equal}, {"changes", Json::array()}};
  for (const BucketChange& change : difference.changes) {
    json["changes"].push_back({{"kind", to_string(change.kind)},
                               {"file", change.place().file->path},
                               {"bucket", change.place().bucket->key},
                               {"before", side_json(change.before)},
                               {"after", side_json(change.after)}});
  }
  return json;
}

void print_diagnostics(const std::vector<TritonFile>& files) {
  for (const TritonFile& file : files)
    for (const std::string& diagnostic : file.diagnostics) print_note(diagnostic);
}

}  // namespace

Result<int> merge_triton(const TritonMergeOptions& options) {
  GEMMTUNE_TRY(const auto files, read_triton_files(options.files));
  const MergedConfigs merged = merge_triton_files(files);
  GEMMTUNE_RETURN_IF_ERROR(write_merged(options, files, merged));
  print_diagnostics(files);
  for (const LeftOut& item : merged.left_out)
    if (!options.quiet) print_note(describe(item.source, item));
  print_note(fmt::format("{} of {} merged into {}, {} left out as duplicates",
                         counted(merged.buckets, "bucket"), counted(files.size(), "file"),
                         merged.files.size(), merged.duplicates));
  if (options.json) {
    Json json{{"command", "merge"},
              {"output", options.output},
              {"files", merged.files.size()},
              {"buckets", merged.buckets},
              {"duplicates", merged.duplicates},
              {"left_out", left_out_json(merged.left_out)}};
    print_document(json_document(json));
  }
  return merged.left_out.empty() ? exit_done : exit_findings;
}

Result<int> diff_triton(const TritonDiffOptions& options) {
  GEMMTUNE_TRY(const auto before, read_triton_files({options.before}));
  GEMMTUNE_TRY(const auto after, read_triton_files({options.after}));
  print_diagnostics(before);
  print_diagnostics(after);
  const BucketDifference difference = compare_triton_files(before, after);
  std::string text;
  for (const BucketChange& change : difference.changes)
    if (!options.quiet) text += change_text(change);
  text += fmt::format("{}, {} as before\n", counted(difference.changes.size(), "difference"),
                      counted(difference.equal, "bucket"));
  print_answer(options.json, options.json ? json_document(difference_json(difference)) : text);
  return difference.changes.empty() ? exit_done : exit_findings;
}

}  // namespace gemmtune::cli
