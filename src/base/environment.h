// Every environment variable that gemmtune reads, read once at context creation, here and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gemmtune {

/// Colon-separated paths of each operation's tuned files, empty where unset: GEMMTUNE_CONFIG_A16W16, _A8W8,
/// _A8W8_BPRESHUFFLE, _A8W8_BLOCKSCALE, _A8W8_BLOCKSCALE_BPRESHUFFLE, _A4W4_BLOCKSCALE, _BATCHED_BF16,
/// _BATCHED_A8W8, _FUSED_MOE, and AITER's names.
struct TunedFileLists {
  std::string a16w16;
  std::string a8w8;
  std::string a8w8_bpreshuffle;
  std::string a8w8_blockscale;
  std::string a8w8_blockscale_bpreshuffle;
  std::string a4w4_blockscale;
  std::string batched_bf16;
  std::string batched_a8w8;
  std::string fused_moe;
};

/// Values as set; an empty variable counts as unset. The gemmtune name wins over AITER's.
struct Environment {
  std::string config_folder;  // GEMMTUNE_CONFIG_DIR, else $XDG_CONFIG_HOME/gemmtune, else ~/.config/gemmtune
  TunedFileLists tuned_files;
  std::string runtime_folder;  // of a machine's locks: $XDG_RUNTIME_DIR/gemmtune, else /tmp/gemmtune-<user>
  bool log_config = false;     // GEMMTUNE_LOG_CONFIG, AITER_LOG_TUNED_CONFIG
  bool capture = false;        // GEMMTUNE_CAPTURE, AITER_TUNE_GEMM: on, or a folder
  std::string capture_folder;  // that folder; empty: the config folder
  std::optional<int> threads;  // GEMMTUNE_NUM_THREADS
  std::string cpu_isa;         // GEMMTUNE_CPU_ISA: caps the instruction-set level
  std::string model_folder;    // GTUNE_MODEL: default of --model_dir
  std::optional<std::int64_t> batch_size;       // GTUNE_BATCH_SIZE: default of --batch_size
  std::optional<std::int64_t> tensor_parallel;  // GTUNE_TP: default of --tp
  std::string
      module_folder;  // GEMMTUNE_LIBRARY_DIR: where the loadable family modules lie (default: beside us)
};

Environment read_environment();

}  // namespace gemmtune
