#include "base/environment.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

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

/// A folder that a variable names, from the root on: the process may change its working folder later. Empty
/// for an empty text.
std::string folder_named(const std::string& text) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(text, error);
  return text.empty() || error ? text : absolute.lexically_normal().string();
}

void read_capture_switch(const std::string& value, Environment& environment) {
  if (value.empty()) return;
  const auto on = parse_switch(value);
  environment.capture = on.value_or(true);
  if (!on) environment.capture_folder = folder_named(value);
}

OnlineTuning online_tuning() {
  if (const auto own = first_set({"GEMMTUNE_ONLINE_TUNING"}); !own.empty()) {
    return is_on(own) ? OnlineTuning::gemmtune : OnlineTuning::off;
  }
  const std::string aiters = first_set({"HIP_ONLINE_TUNING"});
  return aiters == "1" || aiters == "true" ? OnlineTuning::aiter : OnlineTuning::off;
}

/// HOME, else what the system's list of users says; empty for a user without either.
std::string home_folder() {
  if (auto home = folder_named(first_set({"HOME"})); !home.empty()) return home;
  std::vector<char> space(std::size_t{1} << 14);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, space.data(), space.size(), &found) != 0 || found == nullptr) return {};
  return found->pw_dir != nullptr && found->pw_dir[0] == '/' ? found->pw_dir : std::string();
}

/// $<variable>/gemmtune, else <home>/<below>/gemmtune; empty where there is no home. XDG's rule: a relative
/// path in a variable counts as none.
std::string user_folder(const char* variable, std::string_view below) {
  if (const auto base = first_set({variable}); base.starts_with('/')) return base + "/gemmtune";
  const std::string home = home_folder();
  return home.empty() ? home : fmt::format("{}/{}/gemmtune", home == "/" ? "" : home, below);
}

std::string default_config_folder() {
  if (auto folder = folder_named(first_set({"GEMMTUNE_CONFIG_DIR"})); !folder.empty()) return folder;
  return user_folder("XDG_CONFIG_HOME", ".config");
}

std::string default_kernel_cache_folder() {
  if (auto folder = folder_named(first_set({"GEMMTUNE_CACHE_DIR"})); !folder.empty()) return folder;
  const std::string folder = user_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? folder : folder + "/kernels";
}

std::string default_runtime_folder() {
  if (const auto base = first_set({"XDG_RUNTIME_DIR"}); base.starts_with('/')) return base + "/gemmtune";
  return "/tmp/gemmtune-" + std::to_string(geteuid());
}

std::map<std::string, std::string, std::less<>> config_variables() {
  std::map<std::string, std::string, std::less<>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || equals + 1 == text.size()) continue;
    const std::string_view name = text.substr(0, equals);
    if (!name.starts_with("GEMMTUNE_CONFIG_") && !name.starts_with("AITER_CONFIG_")) continue;
    variables.emplace(name, text.substr(equals + 1));
  }
  return variables;
}

std::map<std::string, std::string, std::less<>> scheduler_variables() {
  std::map<std::string, std::string, std::less<>> variables;
  for (const char* name : scheduler_variable_names()) {
    if (std::string value = first_set({name}); !value.empty()) variables.emplace(name, std::move(value));
  }
  return variables;
}

void read_number(NumberVariable& variable) {
  variable.text = first_set({std::string(variable.name).c_str()});
}

}  // namespace

std::span<const char* const> scheduler_variable_names() {
  static constexpr std::array names = {"SLURM_ARRAY_TASK_ID",
                                       "SLURM_ARRAY_TASK_COUNT",
                                       "SLURM_ARRAY_TASK_MIN",
                                       "SLURM_ARRAY_TASK_MAX",
                                       "SLURM_ARRAY_TASK_STEP",
                                       "SLURM_PROCID",
                                       "SLURM_NTASKS",
                                       "SLURM_STEP_NUM_TASKS",
                                       "OMPI_COMM_WORLD_RANK",
                                       "OMPI_COMM_WORLD_SIZE",
                                       "PMI_RANK",
                                       "PMI_SIZE",
                                       "JOB_COMPLETION_INDEX",
                                       "JOB_COMPLETIONS"};
  return names;
}

Environment read_environment() {
  Environment environment;
  environment.config_folder = default_config_folder();
  environment.runtime_folder = default_runtime_folder();
  environment.config_variables = config_variables();
  environment.log_config = is_on(first_set({"GEMMTUNE_LOG_CONFIG", "AITER_LOG_TUNED_CONFIG"}));
  read_capture_switch(first_set({"GEMMTUNE_CAPTURE", "AITER_TUNE_GEMM"}), environment);
  environment.online_tuning = online_tuning();
  for (NumberVariable* variable : {&environment.online_budget_milliseconds, &environment.threads,
                                   &environment.batch_size, &environment.tensor_parallel}) {
    read_number(*variable);
  }
  environment.errata = first_set({"GEMMTUNE_ERRATA"});
  environment.verify_untuned = is_on(first_set({"GEMMTUNE_VERIFY_UNTUNED"}));
  environment.cpu_isa = first_set({"GEMMTUNE_CPU_ISA"});
  environment.model_folder = first_set({"GTUNE_MODEL"});
  environment.kernel_cache_folder = default_kernel_cache_folder();
  environment.rebuild_kernels = is_on(first_set({"GEMMTUNE_REBUILD", "AITER_REBUILD"}));
  environment.powercap_folder = folder_named(first_set({"GEMMTUNE_POWERCAP_DIR"}));
  environment.scheduler_variables = scheduler_variables();
  environment.module_folder = folder_named(first_set({"GEMMTUNE_LIBRARY_DIR"}));
  return environment;
}

}  // namespace gemmtune
