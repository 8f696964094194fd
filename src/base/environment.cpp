#include "base/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

#include "base/text.h"

namespace gemmtune {
namespace {

/// The first of the names that is set and not empty.
std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  }
  return {};
}

/// AITER reads its switches as integers: anything but 0 is on. nullopt: no word of a switch.
std::optional<bool> parse_switch(const std::string& value) {
  if (const auto number = parse_integer(value)) return *number != 0;
  const std::string word = to_lower(value);
  if (word == "true" || word == "on" || word == "yes") return true;
  if (word == "false" || word == "off" || word == "no") return false;
  return std::nullopt;
}

bool is_on(const std::string& value) { return parse_switch(value).value_or(false); }

void read_capture_switch(const std::string& value, Environment& environment) {
  if (value.empty()) return;
  const auto on = parse_switch(value);
  environment.capture = on.value_or(true);
  if (!on) environment.capture_folder = value;
}

OnlineTuning online_tuning() {
  if (const auto own = first_set({"GEMMTUNE_ONLINE_TUNING"}); !own.empty()) {
    return is_on(own) ? OnlineTuning::gemmtune : OnlineTuning::off;
  }
  const std::string aiters = first_set({"HIP_ONLINE_TUNING"});
  return aiters == "1" || aiters == "true" ? OnlineTuning::aiter : OnlineTuning::off;
}

std::string default_config_folder() {
  if (const auto folder = first_set({"GEMMTUNE_CONFIG_DIR"}); !folder.empty()) return folder;
  if (const auto base = first_set({"XDG_CONFIG_HOME"}); !base.empty()) return base + "/gemmtune";
  if (const auto home = first_set({"HOME"}); !home.empty()) return home + "/.config/gemmtune";
  return ".gemmtune";
}

std::string default_kernel_cache_folder() {
  if (const auto folder = first_set({"GEMMTUNE_CACHE_DIR"}); !folder.empty()) return folder;
  if (const auto base = first_set({"XDG_CACHE_HOME"}); !base.empty()) return base + "/gemmtune/kernels";
  if (const auto home = first_set({"HOME"}); !home.empty()) return home + "/.cache/gemmtune/kernels";
  return {};
}

std::string default_runtime_folder() {
  if (const auto base = first_set({"XDG_RUNTIME_DIR"}); !base.empty()) return base + "/gemmtune";
  return "/tmp/gemmtune-" + std::to_string(geteuid());
}

TunedFileLists tuned_file_lists() {
  TunedFileLists lists;
  lists.a16w16 = first_set({"GEMMTUNE_CONFIG_A16W16", "AITER_CONFIG_GEMM_BF16"});
  lists.a8w8 = first_set({"GEMMTUNE_CONFIG_A8W8", "AITER_CONFIG_GEMM_A8W8"});
  lists.a8w8_bpreshuffle =
      first_set({"GEMMTUNE_CONFIG_A8W8_BPRESHUFFLE", "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE"});
  lists.a8w8_blockscale = first_set({"GEMMTUNE_CONFIG_A8W8_BLOCKSCALE", "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE"});
  lists.a8w8_blockscale_bpreshuffle = first_set(
      {"GEMMTUNE_CONFIG_A8W8_BLOCKSCALE_BPRESHUFFLE", "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE"});
  lists.a4w4_blockscale = first_set({"GEMMTUNE_CONFIG_A4W4_BLOCKSCALE", "AITER_CONFIG_GEMM_A4W4"});
  lists.batched_bf16 = first_set({"GEMMTUNE_CONFIG_BATCHED_BF16", "AITER_CONFIG_BF16_BATCHED_GEMM"});
  lists.batched_a8w8 = first_set({"GEMMTUNE_CONFIG_BATCHED_A8W8", "AITER_CONFIG_A8W8_BATCHED_GEMM"});
  lists.fused_moe = first_set({"GEMMTUNE_CONFIG_FUSED_MOE", "AITER_CONFIG_FMOE"});
  return lists;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.config_folder = default_config_folder();
  environment.runtime_folder = default_runtime_folder();
  environment.tuned_files = tuned_file_lists();
  environment.log_config = is_on(first_set({"GEMMTUNE_LOG_CONFIG", "AITER_LOG_TUNED_CONFIG"}));
  read_capture_switch(first_set({"GEMMTUNE_CAPTURE", "AITER_TUNE_GEMM"}), environment);
  environment.online_tuning = online_tuning();
  environment.online_budget_milliseconds = parse_integer(first_set({"GEMMTUNE_ONLINE_BUDGET_MS"}));
  if (const auto threads = parse_integer(first_set({"GEMMTUNE_NUM_THREADS"}))) {
    environment.threads = static_cast<int>(*threads);
  }
  environment.cpu_isa = first_set({"GEMMTUNE_CPU_ISA"});
  environment.model_folder = first_set({"GTUNE_MODEL"});
  environment.batch_size = parse_integer(first_set({"GTUNE_BATCH_SIZE"}));
  environment.tensor_parallel = parse_integer(first_set({"GTUNE_TP"}));
  environment.kernel_cache_folder = default_kernel_cache_folder();
  environment.rebuild_kernels = is_on(first_set({"GEMMTUNE_REBUILD"}));
  environment.module_folder = first_set({"GEMMTUNE_LIBRARY_DIR"});
  return environment;
}

}  // namespace gemmtune
