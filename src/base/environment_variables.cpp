#include "base/environment_variables.h"

#include <array>

namespace gemmtune {

std::span<const EnvironmentVariable> environment_variables() {
  static constexpr auto variables = std::to_array<EnvironmentVariable>({
      {"GEMMTUNE_CONFIG_DIR", "",
       "The config folder (default: gemmtune in XDG_CONFIG_HOME, else in ~/.config)."},
      {"GEMMTUNE_CONFIG_TRITON", "",
       "Triton configs and folders of them, colon-separated, in place of those in the config folder "
       "(docs/triton_configs.md)."},
      {"GEMMTUNE_CAPTURE", "AITER_TUNE_GEMM",
       "1, or a folder: record which problems a program runs (docs/capture.md)."},
      {"GEMMTUNE_ONLINE_TUNING", "HIP_ONLINE_TUNING",
       "1: tune untuned problems while the service runs (docs/online_tuning.md). Of AITER's variable exactly "
       "1 or true."},
      {"GEMMTUNE_ONLINE_BUDGET_MS", "",
       "Milliseconds of the whole machine for each problem (default: 2000)."},
      {"GEMMTUNE_ONLINE_SHARE", "",
       "Part of the processor time of a CPU's cores for the worker of online tuning, 0 to 1 (default: 0.25); "
       "0: no worker."},
      {"GEMMTUNE_PROGRAM", "",
       "The gemmtune program that workers of a library are processes of (default: around the library)."},
      {"GEMMTUNE_LOG_CONFIG", "AITER_LOG_TUNED_CONFIG",
       "1: a line of log for each problem, without set-up (docs/in_a_program.md)."},
      {"GEMMTUNE_FEWER_THREADS", "", "0: on a CPU rows of fewer threads do not answer (docs/lookup.md)."},
      {"GEMMTUNE_SHIPPED", "",
       "0: shipped tables do not answer; or a folder of such tables (docs/lookup.md)."},
      {"GEMMTUNE_ERRATA", "",
       "A file or folder of errata beside the shipped ones; none: no errata at all (docs/errata.md)."},
      {"GEMMTUNE_VERIFY_UNTUNED", "",
       "1: verify the first run of each plan that no row answered (docs/errata.md)."},
      {"GEMMTUNE_INVARIANT", "",
       "rows: a weight without rows of a bit class is an error in place of an untuned call "
       "(docs/invariant.md)."},
      {"GEMMTUNE_NUM_THREADS", "",
       "Threads of the CPU (default: all cores of the device). A part of cu_num."},
      {"GEMMTUNE_TEAM", "", "Whose threads run a CPU's kernels: auto, own or openmp (docs/threads.md)."},
      {"GEMMTUNE_CPU_ISA", "", "Caps the instruction set: scalar, avx2, avx512, avx512bf16, amx."},
      {"GEMMTUNE_LAST_LEVEL_CACHE_MIB", "",
       "MiB of a CPU's last-level cache, in place of what the system reports and a probe of 0.3 s finds. For "
       "virtual machines that report their host's."},
      {"GEMMTUNE_CACHE_DIR", "",
       "Where compiled GPU kernels are kept (default: gemmtune/kernels in XDG_CACHE_HOME, else in "
       "~/.cache)."},
      {"GEMMTUNE_REBUILD", "AITER_REBUILD",
       "Not 0: GPU kernels are compiled once a process although the cache has them."},
      {"GEMMTUNE_PREBUILD", "PREBUILD_KERNELS",
       "Read by make install. Not 0: compile the kernels that the tuned files name (gemmtune cache warm)."},
      {"GEMMTUNE_POWERCAP_DIR", "",
       "Folder of a CPU's energy counters (default: /sys/class/powercap), for containers that see the host's "
       "elsewhere."},
      {"GEMMTUNE_PYTHON", "",
       "The Python, with pyarrow, that reads parquet files, and the PyTorch of --baseline torch (default: "
       "python3 of PATH). Its environment may have oneDNN 3 (docs/baselines.md)."},
      {"GEMMTUNE_LIBRARY_DIR", "",
       "Folder of the loadable families (default: beside the program or library), or of a libdnnl.so.3 "
       "(docs/baselines.md)."},
      {"GEMMTUNE_CUBLAS", "",
       "0: a preloaded libgemmtune_cublas.so passes every call through (docs/cublas.md)."},
      {"GEMMTUNE_CUBLAS_CONSTANT_WEIGHTS", "",
       "1: no kernel of the program writes op(a) of a call that libgemmtune_cublas.so serves "
       "(docs/cublas.md)."},
      {"GEMMTUNE_VLLM", "", "0: vLLM's layers run without gemmtune (docs/vllm.md)."},
      {"GEMMTUNE_VLLM_DEPENDENT_LAUNCHES", "",
       "1: in vLLM, rows of --pdl allow start before the kernel in front has ended (docs/vllm.md)."},
      {"TORCHINDUCTOR_ENABLE_PDL", "",
       "PyTorch's. 1: its kernels let the next ones start early, in vLLM too; 0: never (docs/vllm.md)."},
      {"GTUNE_MODEL", "", "Default of --model_dir of tune and shapes."},
      {"GTUNE_TP", "", "Default of --tp."},
      {"GTUNE_BATCH_SIZE", "", "Default of --batch_size."},
      {"GTUNE_INPUT", "",
       "Default of -i of tune. A size or a model on the command line, and GTUNE_MODEL, come before it."},
      {"GTUNE_TUNED", "", "Default of -o of tune."},
      {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
       "Where --model looks for a Hugging Face id (docs/shapes.md)."},
      {"HF_HOME", "", "The same: hub in this folder."},
      {"VIRTUAL_ENV", "", "A Python environment that may have oneDNN 3 (docs/baselines.md)."},
      {"CONDA_PREFIX", "", "The same."},
      {"XDG_CONFIG_HOME", "", "In place of ~/.config, if it is an absolute path."},
      {"XDG_CACHE_HOME", "", "In place of ~/.cache."},
      {"XDG_RUNTIME_DIR", "", "Where the locks of a machine are (default: a folder of the user in /tmp)."},
      {"HIP_VISIBLE_DEVICES", "", "-1: ROCm's runtime is not loaded, and no AMD GPU is looked for."},
      {"HOME", "", "The home folder (default: what the system's list of users says)."},
      {"PATH", "", "Where programs are looked for: Python, and those that --evaluator and --baseline name."},
      {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY",
       "If one is set, gemmtune leaves the spinning of OpenMP's threads as it is (docs/threads.md)."},
  });
  return variables;
}

}  // namespace gemmtune
