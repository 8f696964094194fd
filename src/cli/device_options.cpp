#include "cli/device_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace gemmtune::cli {

void declare_device_options(CLI::App& app, DeviceOptions& options) {
  app.add_option("--backend", options.backend, "auto, cpu, cuda or hip")->capture_default_str();
  app.add_option("--device", options.device,
                 "A device of the backend: cpu, cpu:0-15 (a set of cores), cuda:0");
  app.add_option(
         "--threads", options.threads,
         "CPU threads, the first N cores of the set (default: all, or GEMMTUNE_NUM_THREADS); part of cu_num")
      ->check(CLI::PositiveNumber);
}

DeviceRequest device_request(const DeviceOptions& options, const Environment& environment) {
  DeviceRequest request;
  request.text = options.device;
  request.threads = options.threads > 0 ? options.threads : environment.threads.value_or(0);
  request.isa_cap = environment.cpu_isa;
  request.module_folder = environment.module_folder;
  return request;
}

Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options, const Environment& environment,
                                            bool pin) {
  if (options.device.find(',') != std::string::npos &&
      options.device.find(':') != options.device.rfind(':')) {
    return Status::unsupported(
        "--device {}: several devices need worker processes; this version takes one device", options.device);
  }
  DeviceRequest request = device_request(options, environment);
  request.pin_threads = pin;
  return gemmtune::open_device(options.backend, request);
}

std::string device_line(const DeviceInfo& info) {
  return fmt::format("{}, {} ({}, {} {})", info.name, info.model, info.gfx, info.cu_num,
                     info.backend == "cpu" ? (info.cu_num == 1 ? "core" : "cores") : "compute units");
}

}  // namespace gemmtune::cli
