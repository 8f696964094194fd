#include "base/environment.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/shared_library.h"
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

/// A folder or file that a variable names, from the root on: the process may change its working folder later.
/// Empty for an empty text.
std::string path_named(const std::string& text) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(text, error);
  return text.empty() || error ? text : absolute.lexically_normal().string();
}

void read_capture_switch(const std::string& value, Environment& environment) {
  if (value.empty()) return;
  const auto on = parse_switch(value);
  environment.capture = on.value_or(true);
  if (!on) environment.capture_folder = path_named(value);
}

std::string shipped_folder(const std::string& value) {
  const std::optional<bool> on = value.empty() ? true : parse_switch(value);
  if (!on) return path_named(value);
  return *on ? data_folder("model_configs") : std::string();
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
  if (auto home = path_named(first_set({"HOME"})); !home.empty()) return home;
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
  if (auto folder = path_named(first_set({"GEMMTUNE_CONFIG_DIR"})); !folder.empty()) return folder;
  return user_folder("XDG_CONFIG_HOME", ".config");
}

std::string default_kernel_cache_folder() {
  if (auto folder = path_named(first_set({"GEMMTUNE_CACHE_DIR"})); !folder.empty()) return folder;
  const std::string folder = user_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? folder : folder + "/kernels";
}

/// As huggingface_hub finds it (its environment variables; HUGGINGFACE_HUB_CACHE is its older name).
std::string default_hub_folder() {
  if (auto folder = path_named(first_set({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})); !folder.empty())
    return folder;
  if (const auto home = path_named(first_set({"HF_HOME"})); !home.empty()) return home + "/hub";
  if (const auto cache = path_named(first_set({"XDG_CACHE_HOME"})); !cache.empty())
    return cache + "/huggingface/hub";
  const std::string home = home_folder();
  return home.empty() ? home : fmt::format("{}/.cache/huggingface/hub", home == "/" ? "" : home);
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

/// lib/ of a Python's environment, and in its site-packages the folder in which Paddle has a libdnnl.so.3.
void add_onednn_folders(const std::filesystem::path& prefix, std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  if (!prefix.is_absolute()) return;
  const fs::path lib = prefix / "lib";
  const auto add = [&](const fs::path& folder) {
    if (std::find(folders.begin(), folders.end(), folder.string()) == folders.end())
      folders.push_back(folder.string());
  };
  add(lib);
  std::error_code error;
  std::vector<fs::path> pythons;
  for (fs::directory_iterator entry(lib, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with("python3.")) pythons.push_back(entry->path());
  std::ranges::sort(pythons);
  for (const fs::path& python : pythons) {
    const fs::path libraries = python / "site-packages" / "paddle" / "libs";
    if (fs::is_directory(libraries, error)) add(libraries);
  }
}

std::vector<std::string> onednn_folders(const std::string& python) {
  std::vector<std::string> folders;
  // PREFIX/bin/python3. A link to the system's Python is the environment's all the same.
  if (python.starts_with('/'))
    add_onednn_folders(std::filesystem::path(python).parent_path().parent_path(), folders);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = first_set({name}); !prefix.empty()) add_onednn_folders(prefix, folders);
  if (const std::string prefix = python_prefix(); !prefix.empty()) add_onednn_folders(prefix, folders);
  if (const std::string cache = user_folder("XDG_CACHE_HOME", ".cache"); !cache.empty())
    folders.push_back(cache + "/onednn/lib");
  return folders;
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
  environment.fewer_threads = parse_switch(first_set({"GEMMTUNE_FEWER_THREADS"})).value_or(true);
  environment.shipped_folder = shipped_folder(first_set({"GEMMTUNE_SHIPPED"}));
  environment.log_config = is_on(first_set({"GEMMTUNE_LOG_CONFIG", "AITER_LOG_TUNED_CONFIG"}));
  read_capture_switch(first_set({"GEMMTUNE_CAPTURE", "AITER_TUNE_GEMM"}), environment);
  environment.online_tuning = online_tuning();
  for (NumberVariable* variable :
       {&environment.online_budget_milliseconds, &environment.online_share, &environment.threads,
        &environment.last_level_cache_mib, &environment.batch_size, &environment.tensor_parallel}) {
    read_number(*variable);
  }
  environment.errata = first_set({"GEMMTUNE_ERRATA"});
  environment.invariant = first_set({"GEMMTUNE_INVARIANT"});
  environment.verify_untuned = is_on(first_set({"GEMMTUNE_VERIFY_UNTUNED"}));
  environment.team = first_set({"GEMMTUNE_TEAM"});
  environment.cpu_isa = first_set({"GEMMTUNE_CPU_ISA"});
  environment.model_folder = first_set({"GTUNE_MODEL"});
  environment.models_folder = data_folder("models");
  environment.hub_folder = default_hub_folder();
  environment.input_file = first_set({"GTUNE_INPUT"});
  environment.tuned_file = first_set({"GTUNE_TUNED"});
  environment.kernel_cache_folder = default_kernel_cache_folder();
  environment.rebuild_kernels = is_on(first_set({"GEMMTUNE_REBUILD", "AITER_REBUILD"}));
  environment.powercap_folder = path_named(first_set({"GEMMTUNE_POWERCAP_DIR"}));
  environment.scheduler_variables = scheduler_variables();
  environment.python = first_set({"GEMMTUNE_PYTHON"});
  environment.onednn_folders = onednn_folders(environment.python);
  environment.module_folder = path_named(first_set({"GEMMTUNE_LIBRARY_DIR"}));
  environment.program = path_named(first_set({"GEMMTUNE_PROGRAM"}));
  return environment;
}

}  // namespace gemmtune
