// The option table's section of tune_gemm.
#include "cli/tune/option_table.h"

namespace gemmtune::cli {
namespace {

Status apply_init_type(const TuneOptions& options, TuneRequest& request) {
  const auto type = parse_init_type(options.init_type);
  if (!type)
    return Status::invalid("--init_type {}: expected randn, hpl, trig_float or zeros", options.init_type);
  request.policy.init = *type;
  return {};
}

Status apply_no_warmup(const TuneOptions& options, TuneRequest& request) {
  if (!options.no_warmup) return {};
  if (options.request.policy.warmup != Policy().warmup) {
    return Status::invalid("--no_warmup and --warmup {}: give one of them, not both",
                           options.request.policy.warmup);
  }
  request.policy.warmup = 0;
  return {};
}

Status apply_rotating_tensor(const TuneOptions& options, TuneRequest& request) {
  if (options.request.policy.rotating_mb == 0 || request.policy.cache != CacheMode::warm) return {};
  return Status::invalid(
      "--rotating_tensor {} and --cache warm: one tensor does not rotate; give one of them",
      options.request.policy.rotating_mb);
}

constexpr int max_rotating_mb = 1 << 20;  // a tebibyte
constexpr OptionSection tune_gemm_section = OptionSection::tune_gemm;

}  // namespace

std::vector<TuneOption> tune_gemm_option_rows() {
  return {
      {tune_gemm_section, "--compare-wo-tuning", &TuneOptions::compare_wo_tuning,
       "Tune nothing: verify each row of the results in --gemm_size_file (YAML or tuned CSV)"},
      {tune_gemm_section, "--benchmark", &TuneOptions::benchmark,
       "Tune nothing: time each row of the results in --gemm_size_file; the table trans,M,N,K,TFLOPS,us goes "
       "to --o (default: benchmarking_results.csv in this folder)"},
      {tune_gemm_section, "--keep", &TuneOptions::keep,
       "Leave sources of GPU kernels, a log and the times of all candidates in the folder OUTPUT_keep "
       "(without OUTPUT's ending)"},
      {tune_gemm_section, "--time-breakdown", &TuneOptions::time_breakdown,
       "Print where the run's time went: reading, searching, finals, checks"},
      {tune_gemm_section,
       "--ngpus",
       &TuneOptions::gpus,
       "The first N GPUs (as --gpu_ids 0,…,N-1)",
       {.value_name = "N", .bounds = {.min = 0}}},
      {tune_gemm_section,
       "--gpu-ids",
       &TuneOptions::gpu_ids,
       "These GPUs, as --device cuda:0,cuda:1",
       {.value_name = "0,1"}},
      {tune_gemm_section,
       "--num-threads",
       &DeviceOptions::compile_threads,
       "Threads that compile GPU kernels ahead (default: 0, all cores but one)",
       {.bounds = {.min = 0}}},
      {tune_gemm_section,
       "--jobs",
       &TuneOptions::jobs,
       "Accepted: one worker a device measures, however many jobs",
       {.bounds = {.min = 1}}},
      {tune_gemm_section,
       "--init-type",
       &TuneOptions::init_type,
       "What x and w hold: randn, hpl (uniform, -0.5 to 0.5), trig_float (sines) or zeros, whose results are "
       "not written. Finalists are verified on random numbers in any case",
       {.effect = OptionEffect::measuring, .shows_default = true, .apply = apply_init_type}},
      {tune_gemm_section,
       "--rotating-tensor",
       &Policy::rotating_mb,
       "MiB of weights (with --cache cold of x and y too) that calls rotate over (default: 0, twice the "
       "last-level cache)",
       {.effect = OptionEffect::measuring,
        .value_name = "MB",
        .bounds = {.min = 0, .max = max_rotating_mb},
        .apply = apply_rotating_tensor}},
      {tune_gemm_section,
       "--no-warmup",
       &TuneOptions::no_warmup,
       "No warm-up calls (--warmup 0)",
       {.effect = OptionEffect::measuring, .apply = apply_no_warmup}},
      {tune_gemm_section, "--bias-vector", &TuneOptions::bias_vector,
       "Every size with a bias, [N] (tune_gemm's is [M]); --bias is the same for -m -n -k"},
      {tune_gemm_section, "--icache-flush", &TuneOptions::icache_flush,
       "Accepted: no device here can empty its instruction cache"},
      {tune_gemm_section, "--hack-triton-compiler", &TuneOptions::hack_triton_compiler,
       "Accepted: no Triton compiler is involved"},
  };
}

}  // namespace gemmtune::cli
