// Every environment variable that gemmtune reads, read once at context creation, here and nowhere else.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/number_text.h"

namespace gemmtune {

/// Whose name switched online tuning on, which decides its file and whether callers wait.
enum class OnlineTuning {
  off,
  gemmtune,  // GEMMTUNE_ONLINE_TUNING
  aiter,     // HIP_ONLINE_TUNING: exactly 1 or true, as AITER reads it
};

/// Values as set; an empty variable counts as unset. The gemmtune name wins over AITER's. Folders are paths
/// from the root on.
struct Environment {
  // GEMMTUNE_CONFIG_DIR, else $XDG_CONFIG_HOME/gemmtune, else ~/.config/gemmtune; empty for a user without a
  // home: HOME is not set and the system has no entry.
  std::string config_folder;
  /// GEMMTUNE_CONFIG_* and AITER_CONFIG_* by name: what is set of them. Colon-separated paths of an
  /// operation's tuned files, and of Triton configs (GEMMTUNE_CONFIG_TRITON): tuned_files_of() and triton_table_paths()
  /// in resolve/table_set.h.
  std::map<std::string, std::string, std::less<>> config_variables;
  std::string runtime_folder;  // of a machine's locks: $XDG_RUNTIME_DIR/gemmtune, else /tmp/gemmtune-<user>
  // Of kernels compiled at run time: GEMMTUNE_CACHE_DIR, else $XDG_CACHE_HOME/gemmtune/kernels, else
  // ~/.cache/gemmtune/kernels; empty where there is no home.
  std::string kernel_cache_folder;
  bool rebuild_kernels = false;  // GEMMTUNE_REBUILD, AITER_REBUILD (1 or 2): compiles them again
  std::string errata;            // GEMMTUNE_ERRATA: a file or a folder of errata, or "none"
  bool verify_untuned = false;   // GEMMTUNE_VERIFY_UNTUNED
  std::string invariant;         // GEMMTUNE_INVARIANT: rows, only rows with a bit class answer
  bool fewer_threads = true;     // GEMMTUNE_FEWER_THREADS: rows of fewer threads answer on a CPU
  // Of the tables that come with gemmtune: GEMMTUNE_SHIPPED if it names a folder, else data_folder() (base/shared_library.h);
  // empty if the variable is 0 or there is none.
  std::string shipped_folder;
  bool log_config = false;     // GEMMTUNE_LOG_CONFIG, AITER_LOG_TUNED_CONFIG
  bool capture = false;        // GEMMTUNE_CAPTURE, AITER_TUNE_GEMM: on, or a folder
  std::string capture_folder;  // that folder; empty: the config folder
  OnlineTuning online_tuning = OnlineTuning::off;
  NumberVariable online_budget_milliseconds{"GEMMTUNE_ONLINE_BUDGET_MS"};
  NumberVariable online_share{"GEMMTUNE_ONLINE_SHARE"};  // of the machine, for online tuning's worker
  std::string program;  // GEMMTUNE_PROGRAM: of a library's worker processes (default: around the library)
  NumberVariable threads{"GEMMTUNE_NUM_THREADS"};  // 0: all cores of the device
  std::string team;                                // GEMMTUNE_TEAM: auto, own or openmp (default: auto)
  std::string cpu_isa;                             // GEMMTUNE_CPU_ISA: caps the instruction-set level
  std::string model_folder;                        // GTUNE_MODEL: default of --model_dir
  std::string models_folder;                       // of the models that come with gemmtune; empty: none
  // Of Hugging Face's cache: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, else $XDG_CACHE_HOME or
  // ~/.cache and huggingface/hub; empty where there is no home.
  std::string hub_folder;
  std::string input_file;                                                // GTUNE_INPUT: default of -i
  std::string tuned_file;                                                // GTUNE_TUNED: default of -o
  NumberVariable batch_size{"GTUNE_BATCH_SIZE"};                         // default of --batch_size
  NumberVariable tensor_parallel{"GTUNE_TP"};                            // default of --tp
  NumberVariable last_level_cache_mib{"GEMMTUNE_LAST_LEVEL_CACHE_MIB"};  // of a CPU; 0: as found
  std::string
      powercap_folder;  // GEMMTUNE_POWERCAP_DIR: of a CPU's energy counters (default: /sys/class/powercap)
  /// Which process of how many this is, as schedulers say it (Slurm, Open MPI, PMI, Kubernetes): what is set of
  /// scheduler_variable_names().
  std::map<std::string, std::string, std::less<>> scheduler_variables;
  std::string python;         // GEMMTUNE_PYTHON: reads parquet files (default: python3 of PATH)
  std::string module_folder;  // GEMMTUNE_LIBRARY_DIR: folder of the loadable family modules (default: ours)
  /// Where libdnnl.so.3 is looked for: of the Pythons of GEMMTUNE_PYTHON, VIRTUAL_ENV, CONDA_PREFIX and of our own
  /// package lib/ and the folder of Paddle's copy; then what tools/install_dependencies.sh fetched into
  /// $XDG_CACHE_HOME/gemmtune/onednn or ~/.cache/gemmtune/onednn.
  std::vector<std::string> onednn_folders;
};

/// SLURM_ARRAY_TASK_ID and the others that `tune --shard auto` reads.
std::span<const char* const> scheduler_variable_names();

Environment read_environment();

}  // namespace gemmtune
