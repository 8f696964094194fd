// Traits of the kinds of devices: what callers decide by, instead of the backend's name.
#pragma once

#include <string>
#include <string_view>

#include "backends/family_info.h"
#include "verify/output_check.h"

namespace gemmtune {

struct DeviceInfo;

/// How long a sample lasts by default: on a CPU neighbours take the memory for milliseconds; times of a GPU
/// differ by less than 1 %.
inline constexpr double cpu_sample_microseconds = 3000;
inline constexpr double gpu_sample_microseconds = 500;

/// The defaults are those of a GPU.
struct DeviceTraits {
  bool runs_on_host = false;       // kernels run on info().cu_num cores of the machine itself
  bool compiles_ahead = true;      // Device::compile_ahead() does something
  bool dependent_launches = true;  // kernels may start before the one in front of them has ended
  /// Sums are tensor cores': of fp8 products with fewer bits than float32 has, of others truncated to float32.
  bool tensor_core_sums = true;
  double sample_microseconds = gpu_sample_microseconds;
  int confirmation_passes = 1;  // by default
  /// Within which the ratio of two kernels stays from one pass to the next, seven times of eight, beyond what its rounds
  /// show: docs/lab/measuring.md, "Repeatability".
  double pass_factor = 1;
  std::string_view unit = "compute units";  // what cu_num counts: of one, of several
  std::string_view units = "compute units";
  FamilyInfos families;  // all that the backend knows, in the order of their ranks
};

/// What --backend takes: "auto" and the name of every backend.
std::string backend_names();

/// Of a backend by its name, DeviceInfo::backend; the defaults where no backend of this build has it.
const DeviceTraits& traits_of(std::string_view backend);
const DeviceTraits& traits_of(const DeviceInfo& device);

}  // namespace gemmtune
