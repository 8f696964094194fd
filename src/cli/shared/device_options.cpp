#include "cli/shared/device_options.h"

#include <fmt/format.h>

#include <cctype>

#include "backends/device_request.h"
#include "backends/traits.h"
#include "base/file.h"
#include "base/number_text.h"
#include "base/shared_library.h"
#include "base/text.h"
#include "cli/shared/command_options.h"
#include "resolve/errata.h"
#include "tuned/entry.h"

namespace gemmtune::cli {

void declare_device_options(CommandOptions& app, DeviceOptions& options) {
  app.add_option("--backend", options.backend, backend_names()).capture_default_str();
  app.add_option(
      "--device", options.device,
      "A device of the backend: cpu, cpu:0-15 (a set of cores), cuda:0; for tune also several that are "
      "equal: cpu:0-7,cpu:8-15");
  app.add_option(
         "--threads", options.threads,
         "CPU threads, the first N cores of the set (default: all, or GEMMTUNE_NUM_THREADS); part of cu_num")
      .positive();
  app.add_option(
         "--evaluator", options.evaluators,
         "Kernels of another program in place of a backend's: its command, which speaks the protocol of "
         "docs/evaluators.md (\"python3 evaluate.py\"); for tune also several, one each time")
      .type_name("CMD")
      .not_empty()
      .one_at_a_time();
  app.add_option("--baseline", options.baseline,
                 "What speed-ups are against: default (what an untuned call runs), library (the vendor's, "
                 "where it takes the problem), torch (torch.nn.functional.linear of --python, on the "
                 "device's cores), or the command of an evaluator (docs/evaluators.md)")
      .capture_default_str()
      .not_empty();
  app.add_option("--python", options.python,
                 "The Python of --baseline torch (default: GEMMTUNE_PYTHON, else python3)")
      .type_name("PYTHON")
      .not_empty();
}

namespace {

constexpr std::string_view library_baseline = "library";

/// The evaluator's command; empty for the device's own baseline.
Result<std::string> opponent_command(const DeviceOptions& options, const Environment& environment) {
  const bool is_own = options.baseline == DeviceOptions().baseline;
  const bool is_library = options.baseline == library_baseline;
  const bool is_torch = options.baseline == "torch";
  if (!is_own && !options.evaluators.empty())
    return Status::invalid("--baseline {}: not with --evaluator, whose defaults are the baseline",
                           options.baseline);
  if (!is_torch && !options.python.empty()) return Status::invalid("--python: is of --baseline torch");
  if (!is_torch) return is_own || is_library ? std::string() : options.baseline;
  const std::string folder = data_folder("evaluators");
  if (folder.empty()) return Status::not_found("--baseline torch: torch_linear.py is not beside gemmtune");
  const std::string script = join_path(folder, "torch_linear.py");
  std::string python = options.python.empty() ? environment.python : options.python;
  if (python.empty()) python = "python3";
  for (const std::string_view word : {std::string_view(python), std::string_view(script)})
    if (word.find('\'') != std::string_view::npos)
      return Status::invalid("--baseline torch: {}: expected a path without a quote", word);
  return fmt::format("'{}' '{}'", python, script);
}

}  // namespace

Result<DeviceRequest> device_request(const DeviceOptions& options, const Environment& environment) {
  // This program uses no OpenMP, most programs that run kernels do.
  GEMMTUNE_TRY(auto request, gemmtune::device_request({.text = options.device,
                                                       .threads = options.threads,
                                                       .team = options.team,
                                                       .default_team = Team::openmp_or_own},
                                                      environment));
  request.compile_threads = options.compile_threads;
  request.source_folder = options.source_folder;
  GEMMTUNE_TRY(request.opponent, opponent_command(options, environment));
  request.library_baseline = options.baseline == library_baseline;
  return request;
}

std::vector<std::string> split_devices(const std::string& text) {
  std::vector<std::string> devices;
  for (const std::string_view word : split(text, ',')) {
    // A word that begins with a letter names a device; others are further cores of the one before.
    const bool names_device =
        devices.empty() || (!word.empty() && std::isalpha(static_cast<unsigned char>(word[0])));
    if (names_device) {
      devices.emplace_back(word);
    } else {
      devices.back() += "," + std::string(word);
    }
  }
  return devices.empty() ? std::vector<std::string>{text} : devices;
}

Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options, const Environment& environment,
                                            bool pin, double seconds) {
  const bool names_backend = options.backend != DeviceOptions().backend || !options.device.empty();
  if (!options.evaluators.empty() && names_backend)
    return Status::invalid("--evaluator takes the place of --backend and --device: expected one of them");
  if (options.evaluators.size() > 1)
    return Status::invalid("--evaluator: {} of them are for tune; this takes one", options.evaluators.size());
  if (split_devices(options.device).size() > 1) {
    return Status::invalid("--device {}: several devices are for tune; this takes one", options.device);
  }
  GEMMTUNE_TRY(auto request, device_request(options, environment));
  GEMMTUNE_RETURN_IF_ERROR(known_errata().status);
  request.pin_threads = pin;
  if (options.evaluators.empty()) return open_device_of(options.backend, request, seconds);
  request.text = options.evaluators.front();
  return open_device_of(std::string(external_backend), request, seconds);
}

Result<AskedDevice> asked_device(const std::string& gfx, const std::string& cu_num, const DeviceInfo* here) {
  AskedDevice asked{gfx, 0, {}};
  if (!cu_num.empty()) {
    const auto value = whole_number("--cu_num", cu_num, 1, 1'000'000);
    if (!value.ok()) return Status::invalid("--cu_num {}: expected a whole number of at least 1", cu_num);
    asked.cu_num = static_cast<int>(*value);
  } else if (here != nullptr) {
    asked.cu_num = here->cu_num;
  }
  if (gfx.empty() && here != nullptr) asked.gfx = here->gfx;
  const std::string_view of_tables = gfx_of_cu_num(asked.cu_num);
  const bool is_here = here != nullptr && asked.cu_num == here->cu_num;
  if (gfx.empty() && !is_here && !of_tables.empty()) {
    asked.gfx = of_tables;
    asked.note = fmt::format(
        "--cu_num {} without --gfx: asked for {}, the architecture of {} compute units in AITER's tables",
        cu_num, of_tables, cu_num);
  } else if (gfx.empty() && !is_here && here != nullptr) {
    asked.note = fmt::format("--cu_num {} without --gfx: asked for this machine's architecture, {}", cu_num,
                             asked.gfx);
  }
  if (asked.gfx.empty() || asked.cu_num == 0)
    return Status::invalid("no device of this backend is open here: expected --gfx and --cu_num");
  return asked;
}

std::string device_line(const DeviceInfo& info) {
  const DeviceTraits& traits = traits_of(info);
  return fmt::format("{}, {} ({}, {} {})", info.name, info.model, info.gfx, info.cu_num,
                     info.cu_num == 1 ? traits.unit : traits.units);
}

}  // namespace gemmtune::cli
