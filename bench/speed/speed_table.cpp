// speed_table: our fastest CPU kernel of each operation against the bandwidth's roofline, oneDNN with packed
// weights and our own bf16, side by side in interleaved rounds of one process, weights cold.
// bench/results/README.md says how its figures are read.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/text.h"
#include "measure/statistics.h"
#include "speed/moe_table.h"
#include "speed/table.h"

namespace {

using namespace gemmtune;
using namespace gemmtune::speed;

constexpr Size all_sizes[] = {{1536, 1536}, {4096, 4096}, {6144, 4096}, {1024, 8192}};

struct Options {
  std::string operations;
  std::vector<std::int64_t> ms{1, 2, 4, 8, 16};
  std::vector<int> threads{1, 2};
  int sizes = 4;
  int rounds = 15;
  int tries = 12;
  double milliseconds = 2;
  bool quick = false;
  bool json = false;
  bool csv = false;
};

// Columns of the CSV: bench/results/README.md.
constexpr const char* csv_header = "threads,operation,M,N_K,compared_with,ratio,half_width,us,kernel";

/// A line for each thing that the kernel is compared with.
void print_csv(const Row& row) {
  const std::string size = row.size.n > 0 ? fmt::format("{}x{}", row.size.n, row.size.k) : std::string();
  const std::string line = row.size.n > 0 ? row.line : std::string("fused_moe");
  const auto print = [&](const char* compared_with, const Ratio& ratio) {
    fmt::print("{},{},{},{},{},{:.3f},{:.3f},{:.1f},{}\n", row.threads, line, row.m, size, compared_with,
               ratio.median, ratio.spread, row.microseconds, row.kernel);
  };
  print("read", row.share);
  for (const Comparison& one : row.comparisons) print(one.opponent->csv, one.ratio);
  std::fflush(stdout);
}

void print_row(const Row& row) {
  const std::string shape =
      row.size.n > 0 ? fmt::format("M={:<5} {:>5}x{:<5} {:9.1f} us  {:5.1f} GB/s", row.m, row.size.n,
                                   row.size.k, row.microseconds, row.gigabytes_per_second)
                     : fmt::format("tokens={:<4} {:9.1f} us", row.m, row.microseconds);
  fmt::print("{:<10} T={} {}  roofline {:.3f} ±{:.3f}", row.line, row.threads, shape, row.share.median,
             row.share.spread);
  for (const Comparison& one : row.comparisons)
    fmt::print("  {} {:.3f} ±{:.3f}", one.opponent->text, one.ratio.median, one.ratio.spread);
  fmt::print("  {}\n", row.kernel);
  std::fflush(stdout);
}

nlohmann::json json_row(const Row& row) {
  nlohmann::json out{{"op", row.line},
                     {"threads", row.threads},
                     {"us", row.microseconds},
                     {"kernel", row.kernel},
                     {"read_us", row.read_microseconds},
                     {"roofline_share", row.share.median},
                     {"roofline_share_spread", row.share.spread}};
  if (row.size.n > 0) {
    out["m"] = row.m;
    out["n"] = row.size.n;
    out["k"] = row.size.k;
    out["read_gbps"] = row.gigabytes_per_second;
  } else {
    out["tokens"] = row.m;
  }
  for (const Comparison& one : row.comparisons) {
    const std::string key = one.opponent->json;
    out[key] = one.ratio.median;
    out[key + "_spread"] = one.ratio.spread;
    if (one.opponent == &packed_library) out["library"] = one.kernel;
  }
  return out;
}

const char* range_of(std::int64_t m) {
  if (m <= 16) return "M<=16";
  return m <= 128 ? "M=32-128" : "M>=512";
}

/// Of the dense rows: by line, threads and range of M, in the order of the columns.
void print_means(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<std::pair<std::string, std::vector<double>>>> all;
  for (const Row& row : rows) {
    if (row.size.n == 0) continue;
    auto& columns = all[fmt::format("{} T={} {}", row.line, row.threads, range_of(row.m))];
    const auto add = [&](const char* name, const Ratio& ratio) {
      auto known = std::find_if(columns.begin(), columns.end(), [&](auto& one) { return one.first == name; });
      if (known == columns.end()) known = columns.emplace(columns.end(), name, std::vector<double>());
      known->second.push_back(ratio.median);
    };
    add("roofline", row.share);
    for (const Comparison& one : row.comparisons) add(one.opponent->text, one.ratio);
  }
  if (!all.empty()) fmt::print("\ngeometric means\n");
  for (const auto& [name, columns] : all) {
    fmt::print("{:<26}", name);
    const char* gap = " ";
    for (const auto& [column, ratios] : columns) {
      fmt::print("{}{} {:.3f}", gap, column, geometric_mean(ratios));
      gap = "  ";
    }
    fmt::print("\n");
  }
}

Plan plan_of(const Options& options, int threads) {
  Plan plan;
  plan.ms = options.quick ? std::vector<std::int64_t>{1, 16} : options.ms;
  plan.sizes.assign(all_sizes, all_sizes + (options.quick ? 1 : options.sizes));
  plan.threads = threads;
  plan.rounds = options.quick ? 7 : options.rounds;
  plan.tries = options.quick ? 4 : options.tries;
  plan.policy.sample_microseconds = options.milliseconds * 1e3;
  return plan;
}

/// The words of --ops: the dense operations (none where only mixtures are asked for) and whether mixtures
/// are.
struct Asked {
  std::vector<Line> lines;
  bool mixtures = false;
};

Result<Asked> asked_of(const std::string& operations) {
  Asked asked{{}, operations.empty()};
  std::string dense;
  for (const std::string_view word : split(operations, ',')) {
    if (word == "moe") {
      asked.mixtures = true;
      continue;
    }
    if (!dense.empty()) dense += ',';
    dense += word;
  }
  if (asked.mixtures && dense.empty() && !operations.empty()) return asked;
  auto lines = lines_named(dense);
  if (!lines.ok()) return lines.status();
  asked.lines = std::move(*lines);
  return asked;
}

/// All rows; printed as they come, but for JSON.
Result<std::vector<Row>> run(const Options& options) {
  const auto asked = asked_of(options.operations);
  if (!asked.ok()) return asked.status();
  std::vector<Row> rows;
  const auto on_row = [&](const Row& row) {
    rows.push_back(row);
    if (options.csv) print_csv(row);
    if (!options.json && !options.csv) print_row(row);
  };
  for (const int threads : options.threads) {
    DeviceRequest request;
    request.onednn_folders = read_environment().onednn_folders;
    request.text = "cpu";
    request.threads = threads;
    request.pin_threads = true;
    auto device = open_device("cpu", request);
    if (!device.ok()) return device.status();
    Plan plan = plan_of(options, threads);
    plan.lines = asked->lines;
    if (asked->mixtures) GEMMTUNE_RETURN_IF_ERROR(run_mixtures(**device, plan, on_row));
    GEMMTUNE_RETURN_IF_ERROR(run_plan(**device, plan, on_row));
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures our fastest CPU kernels against the bandwidth's roofline, oneDNN with packed weights and our "
      "own "
      "bf16, side by side, with cold weights.");
  Options options;
  app.add_option("--ops", options.operations,
                 "bf16, f32, int8, fp8, blockscale, mxfp4, moe, separated by commas (default: all of these)");
  app.add_option("--m", options.ms, "rows of x, separated by commas")->delimiter(',')->capture_default_str();
  app.add_option("--threads", options.threads, "numbers of threads, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--sizes", options.sizes, "how many of 1536x1536, 4096x4096, 6144x4096, 1024x8192 (N x K)")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "interleaved rounds of a case")
      ->check(CLI::Range(3, 1000))
      ->capture_default_str();
  app.add_option("--tries", options.tries, "configs of a family that are looked at for the fastest")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--ms", options.milliseconds, "length of a sample, milliseconds")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
  app.add_flag("--quick", options.quick, "one size, M = 1 and 16, few rounds: two minutes");
  CLI::Option* json = app.add_flag("--json", options.json, "one JSON document instead of lines");
  app.add_flag("--csv", options.csv, "a table with the columns of bench/results/README.md")->excludes(json);
  CLI11_PARSE(app, argc, argv);
  if (options.csv) fmt::print("{}\n", csv_header);
  const auto rows = run(options);
  if (!rows.ok()) {
    fmt::print(stderr, "speed_table: {}\n", rows.message());
    return 1;
  }
  if (!options.json && !options.csv) print_means(*rows);
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Row& row : *rows) all.push_back(json_row(row));
    fmt::print("{}\n", all.dump(1));
  }
  return 0;
}
