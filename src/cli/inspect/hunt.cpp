// gemmtune hunt: at which sizes is what a library runs wrong?
#include "tuning/hunt.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/environment.h"
#include "base/interrupt.h"
#include "cli/command.h"
#include "cli/inspect/invariant_report.h"
#include "cli/shared/bench_report.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/family_names.h"
#include "cli/shared/report_parts.h"
#include "cli/shared/size_options.h"
#include "cli/shared/worker_evaluator.h"
#include "formats/errata/erratum_file.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* hunt_footer = R"(
Random sizes (awkward and deep K, few rows, odd sizes, weak alignment; past 2^31 elements where memory allows) run in
a worker process: what runs without tuning, and every proposal of the vendor libraries. What is wrong or crashes is
reduced to a small size and printed with a command that repeats it and an erratum: saved as a file and named in
GEMMTUNE_ERRATA, it keeps gemmtune from running the kernel. Kernels that have an erratum are left out.

With --invariant the question is another one: does what runs without tuning give a row of y the same bits at every M? A few
weights are tried, at six M each.

Exit codes: 0 nothing is wrong, 1 something is, 2 usage or input.

Examples:
  gemmtune hunt --budget 60
  gemmtune hunt --op a16w16 --libtype onednn --seed 7 --json)";

struct HuntOptions {
  DeviceOptions device;
  std::string operation;
  std::string libtypes;
  double budget_seconds = 60;
  std::uint64_t seed = 1;
  double max_gflop = 0;
  bool known = false;
  bool invariant = false;
  double max_err_ratio = 0.05;
  bool quiet = false;
  bool json = false;
};

std::string finding_text(const HuntFinding& finding) {
  std::string text =
      fmt::format("{} {}{}: {}: {}\n", short_name(finding.problem), finding.candidate.kernel_name(),
                  finding.untuned ? " (runs without tuning)" : "", to_string(finding.outcome.kind),
                  finding.outcome.reason);
  text += fmt::format("  first at {}", short_name(finding.first));
  if (finding.more > 0) text += fmt::format("; {} more fail alike", finding.more);
  return text + fmt::format("\n  {}\n{}", finding.erratum.repro, print_erratum(finding.erratum));
}

Json finding_json(const HuntFinding& finding) {
  return {{"problem", print(finding.problem)},
          {"first", print(finding.first)},
          {"kernelName", finding.candidate.kernel_name()},
          {"untuned", finding.untuned},
          {"outcome", to_string(finding.outcome.kind)},
          {"reason", finding.outcome.reason},
          {"more", finding.more},
          {"repro", finding.erratum.repro},
          {"erratum", parse_json(print_erratum(finding.erratum))}};
}

std::string counts_text(const HuntSummary& summary) {
  std::string text =
      fmt::format("{}, {} in {}: {}", counted(summary.problems, "size"), counted(summary.kernels, "kernel"),
                  duration(summary.seconds),
                  summary.findings.empty() ? "nothing is wrong" : counted(summary.findings.size(), "fault"));
  if (summary.left_out > 0)
    text += fmt::format("; {} left out by an erratum", counted(summary.left_out, "kernel"));
  if (summary.unverified > 0)
    text += fmt::format("; {} could not be verified", counted(summary.unverified, "size"));
  return text + "\n";
}

std::string progress_text(const HuntSummary& summary, double budget_seconds) {
  const double rate = summary.seconds > 0 ? static_cast<double>(summary.kernels) / summary.seconds : 0;
  return fmt::format("{}, {}, {:.1f} kernels/s, {}, ETA {}", counted(summary.problems, "size"),
                     counted(summary.kernels, "kernel"), rate, counted(summary.findings.size(), "fault"),
                     duration(std::max(0.0, budget_seconds - summary.seconds)));
}

std::string summary_json(const HuntSummary& summary, const HuntOptions& options, const DeviceInfo& device) {
  Json json = {{"command", "hunt"},
               {"device", device_json(device)},
               {"seed", options.seed},
               {"sizes", summary.problems},
               {"kernels", summary.kernels},
               {"left_out", summary.left_out},
               {"unverified", summary.unverified},
               {"seconds", summary.seconds},
               {"findings", Json::array()}};
  for (const HuntFinding& finding : summary.findings) json["findings"].push_back(finding_json(finding));
  return json_document(json);
}

Result<int> run_hunt(const HuntOptions& options) {
  const Environment environment = read_environment();
  HuntRequest request;
  GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
  if (operation) request.operations = {*operation};
  GEMMTUNE_TRY(auto device, open_device(options.device, environment, false));
  if (!options.libtypes.empty()) {
    GEMMTUNE_TRY(request.libtypes, resolve_families(options.libtypes, *device));
  }
  if (options.invariant) {
    constexpr int weights = 6;
    Console lines(options.quiet);
    return report_invariant(
        {"hunt", "", options.device, options.max_err_ratio, options.budget_seconds, options.json}, *device,
        untuned_kernels(*device, operation.value_or(OperationForm()), options.seed, weights), lines);
  }
  request.budget_seconds = options.budget_seconds;
  request.seed = options.seed;
  request.max_flops = 1e9 * options.max_gflop;
  request.with_known = options.known;
  request.stop = interrupted;
  watch_for_interrupts();
  Console console(options.quiet);
  const auto evaluator = make_verifying_worker(*device, options.device, environment, options.max_err_ratio);
  const auto summary =
      hunt(*device, *evaluator, request, [&](const HuntSummary& so_far, const HuntFinding* found) {
        if (found != nullptr && !options.json) {
          console.clear_live_line();
          print_text(finding_text(*found));
          std::fflush(stdout);
        }
        console.live_line(progress_text(so_far, options.budget_seconds));
      });
  console.clear_live_line();
  if (!summary.ok()) return summary.status();
  print_answer(options.json,
               options.json ? summary_json(*summary, options, device->info()) : counts_text(*summary));
  if (interrupted()) return exit_interrupted;
  return summary->findings.empty() ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_hunt(CommandOptions& app) {
  auto options = std::make_shared<HuntOptions>();
  app.add_option("--op", options->operation, "Only this operation");
  app.add_option("--libtype", options->libtypes, "Families, with commas, instead of the vendor libraries");
  app.add_option("--budget", options->budget_seconds, "Seconds; what is found is reduced beyond them")
      .capture_default_str()
      .number_range(0.001, 1e7);
  app.add_option("--seed", options->seed, "Other seeds give other sizes")
      .capture_default_str()
      .not_negative();
  app.add_option("--max-gflop", options->max_gflop,
                 "Largest size, in GFLOP (default: 0.4 on a CPU, 400 on a GPU)")
      .number_range(0, 1e6);
  app.add_flag("--invariant", options->invariant,
               "Whether what runs without tuning gives a row of y the same bits at every M");
  app.add_flag("--known", options->known, "Kernels that have an erratum run too");
  app.add_option("--errRatio", options->max_err_ratio, "Share of elements that may be outside tolerance")
      .capture_default_str()
      .number_range(0, 1);
  declare_device_options(app, options->device);
  app.add_flag("-q,--quiet", options->quiet, "No progress");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(hunt_footer);
  return [options] { return run_hunt(*options); };
}

}  // namespace gemmtune::cli
