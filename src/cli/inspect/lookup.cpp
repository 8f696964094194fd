// gemmtune lookup: which row or rule a problem gets, and why.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "base/environment.h"
#include "base/path_list.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/shared/bench_report.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/output_path.h"
#include "cli/shared/report_parts.h"
#include "cli/shared/size_options.h"
#include "formats/aiter/lookup_requests.h"
#include "formats/json.h"
#include "resolve/lookup_report.h"
#include "resolve/online_rows.h"
#include "resolve/shipped_tables.h"
#include "resolve/source_use.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* lookup_footer = R"(
M is tried exactly, then by ranges, then in the buckets of Triton configs, then padded finely and coarsely; then, on a CPU,
all of that in rows of the nearest smaller number of threads (fewer_threads); then, without --table, all of that in the
shipped tables; then the fallback runs. With --gfx or --cu_num
only the table is asked, for that device, and whether its row could run here is said beside it; --runnable applies
the rule of dispatch all the same (rows that cannot run are passed over).

Exit codes: 0 answered (also where no row knew the problem), 2 usage or input.

Examples:
  gemmtune lookup tuned.csv -m 3 -n 2048 -k 2048
  gemmtune lookup tuned.csv -m 1,16,128 -n 2048 -k 2048
  gemmtune lookup -m 3 -n 2048 -k 2048 --table a.csv:b.csv --gfx gfx942 --cu_num 80 --json
  gemmtune lookup --op a8w8_blockscale -m 300 -n 2112 -k 7168 --table configs
  gemmtune lookup --requests requests.csv --json

--requests takes a CSV with the columns family (the operation), file (relative to the list) and request
(gfx=gfx950;cu_num=256;M=1;N=2048;K=3072 …, the key columns of the operation's tuned file); the tables alone are asked,
and each request has one line of answer, with --json one member of "answers". One that no problem stands for is a miss
with a reason, and the exit code is then 1.)";

struct LookupOptions {
  SizeOptions size;
  DeviceOptions device;
  std::string table;
  std::string requests;
  std::string gfx;
  std::string cu_num;
  bool runnable = false;
  bool strict = false;
  bool as_aiter = false;
  bool json = false;
};

/// One for each M. `device`: this machine's; null if it has none.
Result<std::vector<LookupRequest>> requests_of(const LookupOptions& options, const Device* device) {
  GEMMTUNE_TRY(const auto asked,
               asked_device(options.gfx, options.cu_num, device != nullptr ? &device->info() : nullptr));
  GEMMTUNE_TRY(const auto problems, problems_of(options.size, asked.gfx));
  LookupRequest request;
  request.as_aiter = options.as_aiter;
  request.runnable = options.runnable;
  request.strict_environment = options.strict;
  if (!options.gfx.empty() || !options.cu_num.empty()) {
    request.gfx = asked.gfx;
    request.cu_num = asked.cu_num;
  }
  if (!asked.note.empty()) print_note(asked.note);
  std::vector<LookupRequest> requests;
  for (const Problem& problem : problems) requests.emplace_back(request).problem = problem;
  return requests;
}

/// What a row of fused MoE has beside a plain one; null for other rows.
Json stages_json(const TunedEntry& row) {
  if (row.stages == nullptr) return {};
  const MoeStages& stages = *row.stages;
  return {{"us1", stages.us1},
          {"us2", stages.us2},
          {"err1", stages.err1},
          {"err2", stages.err2},
          {"run_1stage", stages.run_1stage},
          {"xbf16", stages.xbf16},
          {"flat", stages.flat},
          {"tag", stages.tag}};
}

Json lookup_row_json(const TunedEntry& row, const std::string& file) {
  return {{"file", file},
          {"line", row.line},
          {"gfx", row.gfx},
          {"cu_num", row.cu_num},
          {"M", row.problem.m},
          {"N", row.problem.n},
          {"K", row.problem.k},
          {"us", std::isnan(row.us) ? Json() : Json(row.us)},
          {"kernelName", row.kernel_name},
          {"libtype", row.libtype},
          {"splitK", row.split_k},
          {"solidx", row.solidx},
          {"kernelName2", row.stages != nullptr ? Json(row.stages->kernel_name2) : Json()},
          {"block_m", row.stages != nullptr ? Json(row.stages->block_m) : Json()},
          {"ksplit", row.stages != nullptr ? Json(row.split_k) : Json()},
          {"stages", stages_json(row)},
          {"err_ratio", row.err_ratio},
          {"default_us", number_or_null(row.default_us)},
          {"speedup", number_or_null(row.speedup)},
          {"verdict", to_string(row.verdict)},
          {"env", row.env},
          {"bucket", row.bucket.empty() ? Json() : Json(row.bucket)},
          {"m_from", row.m_from ? Json(*row.m_from) : Json()}};
}

/// Decision 18's fields: what every answer has.
Json answer_json(const LookupReport& report, std::size_t index) {
  Json json;
  json["index"] = index;
  json["level"] = to_string(report.level);
  json["hit_m"] = report.row != nullptr ? Json(report.hit_m) : Json();
  json["row"] = report.row != nullptr ? lookup_row_json(*report.row, report.file) : Json();
  json["kernelName"] = report.kernel_name;
  json["libtype"] = report.libtype;
  json["runnable"] = report.runnable;
  json["why"] = report.why;
  json["rule"] = report.rule;
  json["card"] = report.card.empty() ? Json() : Json(report.card);
  json["problem"] = print(report.problem);
  if (!report.unknown_types.empty()) json["unknown_types"] = report.unknown_types;
  json["gfx"] = report.gfx;
  json["cu_num"] = report.cu_num;
  return json;
}

Json never_chosen_json(const LookupLevel& level) {
  if (level.never_chosen == nullptr) return {};
  return lookup_row_json(*level.never_chosen, level.tables->path_of(*level.never_chosen));
}

/// Who was asked for: this device, or one that only tables know.
DeviceInfo device_asked_for(const LookupReport& report, const LookupRequest& request, const Device* device) {
  if (device != nullptr && !request.gfx && !request.cu_num) return device->info();
  DeviceInfo info;
  info.gfx = report.gfx;
  info.cu_num = report.cu_num;
  return info;
}

Json lookup_json(const LookupReport& report, std::size_t index, const LookupTables& tables,
                 const DeviceInfo& device, bool strict) {
  Json json = {{"command", "lookup"}};
  json.update(answer_json(report, index));
  json["levels"] = Json::array();
  for (const LookupLevel& level : report.levels) {
    json["levels"].push_back({{"level", to_string(level.level)},
                              {"online", level.tables == tables.online},
                              {"shipped", level.tables == tables.shipped()},
                              {"tried_m", level.tried_m},
                              {"hit_m", level.row != nullptr ? Json(level.hit_m) : Json()},
                              {"kernelName", level.row != nullptr ? Json(level.row->kernel_name) : Json()},
                              {"runnable", level.runnable},
                              {"other_environment", level.other_environment},
                              {"never_chosen", never_chosen_json(level)},
                              {"why", level.why}});
  }
  json["sources"] = Json::array();
  for (const TableSet* set : {tables.tuned, tables.online, tables.shipped()}) {
    if (set == nullptr) continue;
    const auto uses = uses_of_sources(*set, device, strict);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const TableSource& source = set->sources[i];
      json["sources"].push_back({{"path", source.path},
                                 {"rows", source.rows},
                                 {"shipped", source.shipped},
                                 {"why", source.state.message()},
                                 {"own_rows", uses[i].own},
                                 {"fewer_threads_rows", uses[i].fewer_threads},
                                 {"other_environment_rows", uses[i].other_environment},
                                 {"devices", uses[i].devices},
                                 {"unused", uses[i].unused}});
    }
  }
  return json;
}

std::string level_text(const LookupLevel& level, const LookupTables& tables) {
  const char* kind = level.tables == tables.online      ? "online "
                     : level.tables == tables.shipped() ? "shipped "
                                                        : "";
  std::string text = fmt::format("  {}{:<7} M={}: ", kind, to_string(level.level), level.tried_m);
  if (level.never_chosen != nullptr) {
    return text + fmt::format("no row but {}:{} of M={}, {}\n          {}\n",
                              level.tables->path_of(*level.never_chosen), level.never_chosen->line,
                              level.hit_m, level.never_chosen->kernel_name, level.why);
  }
  if (level.row == nullptr) return text + (level.level == Match::bucket ? "no bucket\n" : "no row\n");
  if (level.level == Match::bucket) {
    text += fmt::format("{} ({}:{}), {}", describe_bucket(*level.row), level.tables->path_of(*level.row),
                        level.row->line, level.row->kernel_name);
  } else {
    text += fmt::format("row of M={} ({}:{}), {}", level.hit_m, level.tables->path_of(*level.row),
                        level.row->line, level.row->kernel_name);
  }
  if (!level.runnable) return text + fmt::format("\n          cannot run here: {}\n", level.why);
  if (level.other_environment)
    text += fmt::format("\n          measured in another environment: {}", level.why);
  return text + "\n";
}

std::string lookup_text(const LookupReport& report, const LookupTables& tables, const DeviceInfo& device,
                        bool strict) {
  std::string text = fmt::format("{}\nfor {}, cu_num {}\n", print(report.problem), report.gfx, report.cu_num);
  for (const TableSet* set : {tables.tuned, tables.online, tables.shipped()}) {
    const std::string sources = set == nullptr ? "" : set->describe(form_of(report.problem));
    for (const std::string_view line : split(sources, '\n')) {
      if (!line.empty()) text += fmt::format("from {}\n", line);
    }
  }
  for (const SourceWarning& warning : source_warnings(*tables.tuned, device, strict)) {
    if (warning.operation == form_of(report.problem)) text += fmt::format("warning: {}\n", warning.text);
  }
  for (const LookupLevel& level : report.levels) text += level_text(level, tables);
  text += fmt::format("answer: {}\n", report.rule);
  if (report.row != nullptr) {
    const std::string time = valid_time(report.row->us) ? ", " + row_time_text(report.row->us) : "";
    const std::string card = report.card.empty() ? "" : fmt::format(", measured on {}", report.card);
    text += fmt::format("  {} ({}){}{}, {}:{}\n", report.kernel_name, report.libtype, time, card, report.file,
                        report.line);
  } else if (!report.kernel_name.empty()) {
    text += fmt::format("  {} ({})\n", report.kernel_name, report.libtype);
  }
  if (!report.runnable && !report.why.empty()) text += fmt::format("  cannot run here: {}\n", report.why);
  return text;
}

std::string answer_line(const LookupReport& report) {
  const Problem& problem = report.problem;
  std::string text = fmt::format("{} on {}, {}: ", short_name(problem), report.gfx, report.cu_num);
  if (report.row == nullptr) {
    const bool exists = std::ranges::any_of(
        report.levels, [](const LookupLevel& level) { return level.never_chosen != nullptr; });
    return text + (exists ? fmt::format("untuned: {}\n", report.why) : "untuned\n");
  }
  return text + fmt::format("{} M={} {} ({}:{}){}\n", to_string(report.level), report.hit_m,
                            report.kernel_name, report.file, report.line,
                            report.runnable ? "" : ", cannot run here");
}

/// The tables of a list of requests, each read once.
class RequestedTables {
 public:
  explicit RequestedTables(const std::string& list) : folder_(std::filesystem::path(list).parent_path()) {}
  /// The error names the file.
  Result<const TableSet*> of(const TableRequest& request) {
    const OperationForm operation = form_of(request.key.problem);
    const auto [at, made] = sets_.try_emplace({operation, request.file});
    if (made) at->second = load_table_set(paths_of(operation, request.file));
    for (const TableSource& source : at->second.sources) {
      if (!source.state.ok()) return source.state;
    }
    return &at->second;
  }

 private:
  /// A colon-separated list is one table, as for --table.
  auto paths_of(OperationForm operation, const std::string& files) const
      -> decltype(table_paths_of(operation, files)) {
    std::string joined;
    for (const std::string& file : path_list(files)) {
      joined += (joined.empty() ? "" : ":") + (folder_ / file).string();
    }
    return table_paths_of(operation, joined);
  }

  std::filesystem::path folder_;
  std::map<std::pair<OperationForm, std::string>, TableSet> sets_;
};

Result<LookupReport> answer_of(const TableRequest& request, const TableSet& tables, const Device* device) {
  LookupRequest asked;
  asked.problem = request.key.problem;
  asked.gfx = request.key.gfx;
  asked.cu_num = request.key.cu_num;
  asked.unknown_types = request.key.unknown_types;
  return explain_lookup(tables, device, asked);
}

/// A request that no problem stands for misses, as in AITER, and does not end the list.
Json impossible_json(const Status& why, std::size_t index) {
  return {{"index", index}, {"level", "untuned"}, {"hit_m", Json()}, {"row", Json()}, {"why", why.message()}};
}

Result<int> run_requests(const LookupOptions& options) {
  GEMMTUNE_TRY(const auto requests, read_table_requests(options.requests));
  auto device = open_device(options.device, read_environment(), false);
  if (!device.ok() && options.device.names_device()) return device.status();
  RequestedTables tables(options.requests);
  std::string text;
  Json document = {{"command", "lookup"}, {"requests", options.requests}, {"answers", Json::array()}};
  std::size_t index = 0;
  std::size_t impossible = 0;
  for (const TableRequest& request : requests.rows) {
    Status state = request.state;
    Result<const TableSet*> set = state;
    if (state.ok()) {
      set = tables.of(request);
      if (!set.ok()) {
        return Status::invalid("{}:{}: {}", options.requests, request.line, set.message());
      }
    }
    const auto report = state.ok() ? answer_of(request, **set, device.ok() ? device->get() : nullptr)
                                   : Result<LookupReport>(state);
    Json json = report.ok() ? answer_json(*report, index) : impossible_json(report.status(), index);
    if (options.json) {
      document["answers"].push_back(std::move(json));
    } else {
      text += report.ok() ? answer_line(*report) : fmt::format("untuned: {}\n", report.message());
    }
    impossible += report.ok() ? 0 : 1;
    ++index;
  }
  print_answer(options.json, options.json ? json_document(document) : text);
  return impossible == 0 ? exit_done : exit_findings;
}

Result<int> run_lookup(const LookupOptions& options) {
  if (!options.requests.empty()) {
    if (options.size.any() || !options.table.empty() || !options.gfx.empty() || !options.cu_num.empty()) {
      return Status::invalid(
          "--requests: the list says sizes, tables and devices; drop -m -n -k --table --gfx --cu_num");
    }
    return run_requests(options);
  }
  const Environment environment = read_environment();
  auto device = open_device(options.device, environment, false);
  const bool asks_table_alone = !options.gfx.empty() || !options.cu_num.empty();
  const bool needs_device = !asks_table_alone || options.runnable || options.device.names_device();
  if (!device.ok() && needs_device) return device.status();
  GEMMTUNE_TRY(const auto requests, requests_of(options, device.ok() ? device->get() : nullptr));
  const LookupRequest& first = requests.front();
  TableSet tables = options.table.empty()
                        ? production_tables(environment)
                        : load_table_set(table_paths_of(form_of(first.problem), options.table));
  tables.fewer_threads = environment.fewer_threads;
  Status fault = tables.first_fault();
  // A path that was named must be there; the default ones may be missing.
  for (const TableSource& source : tables.sources) {
    if (fault.ok() && !options.table.empty()) fault = source.state;
  }
  if (!fault.ok()) return fault;
  std::shared_ptr<const TableSet> online;
  if (options.table.empty() && device.ok()) online = production_online_rows(environment, **device);
  std::shared_ptr<const TableSet> shipped;
  if (options.table.empty()) {
    const bool here = !first.gfx && !first.cu_num;
    shipped = production_shipped_tables(environment, here || options.runnable ? &(*device)->info() : nullptr);
  }
  const LookupTables asked(tables, online.get(), [shipped] { return shipped.get(); });
  const Device* const here = device.ok() ? device->get() : nullptr;
  Json answers = Json::array();
  std::string text;
  for (const LookupRequest& request : requests) {
    GEMMTUNE_TRY(const auto report, explain_lookup(asked, here, request));
    const DeviceInfo asked_for = device_asked_for(report, request, here);
    if (options.json) {
      answers.push_back(lookup_json(report, answers.size(), asked, asked_for, options.strict));
    } else {
      text += (text.empty() ? "" : "\n") + lookup_text(report, asked, asked_for, options.strict);
    }
  }
  if (!options.json) {
    print_text(text);
  } else if (answers.size() == 1) {
    print_document(json_document(answers.front()));
  } else {
    print_document(json_document(Json{{"command", "lookup"}, {"answers", std::move(answers)}}));
  }
  return exit_done;
}

}  // namespace

std::function<Result<int>()> declare_lookup(CommandOptions& app) {
  auto options = std::make_shared<LookupOptions>();
  declare_size_options(app, options->size);
  app.add_option("tables,--table", options->table,
                 "Tuned files of the operation, Triton configs (JSON) and folders of these, colon-separated, "
                 "merged (default: GEMMTUNE_CONFIG_<operation> and GEMMTUNE_CONFIG_TRITON, else the config "
                 "folder's)");
  app.add_option("--requests", options->requests, "Answer every row of a CSV (family, file, request)");
  app.add_option("--gfx", options->gfx, "Ask the table for this architecture: gfx942, x86-avx2, sm_90 …");
  app.add_option("--cu-num", options->cu_num,
                 "Ask the table for this number of compute units; without --gfx this machine's architecture "
                 "if it has so "
                 "many, else that of AITER's tables (80 and 304: gfx942, 256: gfx950), else this machine's");
  app.add_flag("--runnable", options->runnable, "Pass over rows that cannot run here, as dispatch does");
  app.add_flag("--strict", options->strict, "Rows of another environment do not answer");
  declare_device_options(app, options->device);
  app.add_flag("--as-aiter", options->as_aiter,
               "Rows that gemmtune never chooses (no time, an impossible one, an error above the limit) "
               "answer, as in AITER");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(lookup_footer);
  return [options] { return run_lookup(*options); };
}

}  // namespace gemmtune::cli
