// speed_table: our fastest CPU kernel of each operation against the bandwidth's roofline, oneDNN with packed
// weights and our own bf16, side by side in interleaved rounds of one process, weights cold.
// bench/results/README.md says how its figures are read.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/text.h"
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

void print_csv_line(const std::string& beginning, const char* compared_with, double ratio, double half_width,
                    double microseconds, const std::string& kernel) {
  std::printf("%s,%s,%.3f,%.3f,%.1f,%s\n", beginning.c_str(), compared_with, ratio, half_width, microseconds,
              kernel.c_str());
}

/// A line for each thing that the kernel is compared with.
void print_csv(const Row& row) {
  const std::string beginning =
      fmt::format("{},{},{},{}x{}", row.threads, row.line, row.m, row.size.n, row.size.k);
  const auto print = [&](const char* compared_with, double ratio, double half_width) {
    print_csv_line(beginning, compared_with, ratio, half_width, row.microseconds, row.kernel);
  };
  print("read", row.share, row.share_spread);
  if (row.over_library) print("onednn_packed", *row.over_library, row.library_spread);
  if (row.over_blas) print("openblas_plain", *row.over_blas, row.blas_spread);
  if (row.over_bf16) print("own_bf16", *row.over_bf16, row.bf16_spread);
  std::fflush(stdout);
}

void print_csv(const MoeRow& row) {
  const std::string beginning = fmt::format("{},fused_moe,{},", row.threads, row.tokens);
  print_csv_line(beginning, "read", row.share, row.share_spread, row.microseconds, row.kernel);
  if (row.over_library)
    print_csv_line(beginning, "separate_calls", *row.over_library, row.library_spread, row.microseconds,
                   row.kernel);
  std::fflush(stdout);
}

void print_row(const Row& row) {
  std::printf("%-10s T=%d M=%-5ld %5ldx%-5ld %9.1f us  %5.1f GB/s  roofline %.3f ±%.3f", row.line.c_str(),
              row.threads, static_cast<long>(row.m), static_cast<long>(row.size.n),
              static_cast<long>(row.size.k), row.microseconds, row.gigabytes_per_second, row.share,
              row.share_spread);
  if (row.over_library) std::printf("  library %.3f ±%.3f", *row.over_library, row.library_spread);
  if (row.over_blas) std::printf("  openblas %.3f ±%.3f", *row.over_blas, row.blas_spread);
  if (row.over_bf16) std::printf("  bf16 %.3f ±%.3f", *row.over_bf16, row.bf16_spread);
  std::printf("  %s\n", row.kernel.c_str());
  std::fflush(stdout);
}

nlohmann::json json_row(const Row& row) {
  nlohmann::json out{{"op", row.line},
                     {"threads", row.threads},
                     {"m", row.m},
                     {"n", row.size.n},
                     {"k", row.size.k},
                     {"us", row.microseconds},
                     {"kernel", row.kernel},
                     {"read_us", row.read_microseconds},
                     {"read_gbps", row.gigabytes_per_second},
                     {"roofline_share", row.share},
                     {"roofline_share_spread", row.share_spread}};
  if (row.over_library) {
    out["library"] = row.library;
    out["over_library"] = *row.over_library;
    out["over_library_spread"] = row.library_spread;
  }
  if (row.over_blas) {
    out["over_openblas"] = *row.over_blas;
    out["over_openblas_spread"] = row.blas_spread;
  }
  if (row.over_bf16) {
    out["over_bf16"] = *row.over_bf16;
    out["over_bf16_spread"] = row.bf16_spread;
  }
  return out;
}

class GeometricMean {
 public:
  void add(double value) {
    logarithms_ += std::log(value);
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  double value() const { return std::exp(logarithms_ / count_); }

 private:
  double logarithms_ = 0;
  int count_ = 0;
};

struct Means {
  GeometricMean share;
  GeometricMean library;
  GeometricMean blas;
  GeometricMean bf16;
};

const char* range_of(std::int64_t m) {
  if (m <= 16) return "M<=16";
  return m <= 128 ? "M=32-128" : "M>=512";
}

void print_means(const std::vector<Row>& rows) {
  std::map<std::string, Means> all;
  for (const Row& row : rows) {
    Means& means = all[row.line + " T=" + std::to_string(row.threads) + " " + range_of(row.m)];
    means.share.add(row.share);
    if (row.over_library) means.library.add(*row.over_library);
    if (row.over_blas) means.blas.add(*row.over_blas);
    if (row.over_bf16) means.bf16.add(*row.over_bf16);
  }
  std::printf("\ngeometric means\n");
  for (const auto& [name, means] : all) {
    std::printf("%-26s roofline %.3f", name.c_str(), means.share.value());
    if (!means.library.empty()) std::printf("  library %.3f", means.library.value());
    if (!means.blas.empty()) std::printf("  openblas %.3f", means.blas.value());
    if (!means.bf16.empty()) std::printf("  bf16 %.3f", means.bf16.value());
    std::printf("\n");
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

/// The rows of the dense operations in `rows`, those of mixtures are printed as they come.
Status run(const Options& options, std::vector<Row>& rows, nlohmann::json& mixtures) {
  const auto asked = asked_of(options.operations);
  if (!asked.ok()) return asked.status();
  for (const int threads : options.threads) {
    DeviceRequest request;
    request.text = "cpu";
    request.threads = threads;
    request.pin_threads = true;
    auto device = open_device("cpu", request);
    if (!device.ok()) return device.status();
    Plan plan = plan_of(options, threads);
    plan.lines = asked->lines;
    if (asked->mixtures) {
      GEMMTUNE_RETURN_IF_ERROR(run_mixtures(**device, plan, [&](const MoeRow& row) {
        if (options.json) {
          mixtures.push_back(json_row(row));
        } else if (options.csv) {
          print_csv(row);
        } else {
          print_row(row);
        }
      }));
    }
    GEMMTUNE_RETURN_IF_ERROR(run_plan(**device, plan, [&](const Row& row) {
      rows.push_back(row);
      if (options.csv) print_csv(row);
      if (!options.json && !options.csv) print_row(row);
    }));
  }
  return {};
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
  if (options.csv) std::printf("%s\n", csv_header);
  std::vector<Row> rows;
  nlohmann::json mixtures = nlohmann::json::array();
  if (const Status status = run(options, rows, mixtures); !status.ok()) {
    std::fprintf(stderr, "speed_table: %s\n", status.message().c_str());
    return 1;
  }
  if (!options.json) {
    if (!rows.empty() && !options.csv) print_means(rows);
    return 0;
  }
  nlohmann::json all = mixtures;
  for (const Row& row : rows) all.push_back(json_row(row));
  std::printf("%s\n", all.dump(1).c_str());
  return 0;
}
