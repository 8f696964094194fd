// libamd_smi: clocks, a temperature, and a counter of energy that the double's clock drives.
#include "backends/hip/hip_api.h"
#include "support/hip_double/hip_double.h"

using namespace gemmtune::hip_double;
using namespace gemmtune::hip::api;

extern "C" {

int amdsmi_init(std::uint64_t flags) {
  return flags == smi_gpus ? static_cast<int>(number("HIP_DOUBLE_SMI_INIT", 0)) : 1;
}

int amdsmi_get_processor_handle_from_bdf(std::uint64_t bdf, SmiProcessor* processor) {
  *processor = (bdf >> 8 & 0xff) >= 0xc1 ? reinterpret_cast<void*>(bdf) : nullptr;
  return *processor != nullptr ? 0 : 2;
}

int amdsmi_get_clock_info(SmiProcessor, int clock, SmiClock* info) {
  info->mhz = clock == smi_clock_gfx ? 2100 : 1300;
  return 0;
}

int amdsmi_get_temp_metric(SmiProcessor, int, int, std::int64_t* celsius) {
  *celsius = 47;
  return 0;
}

int amdsmi_get_energy_count(SmiProcessor, std::uint64_t* count, float* unit, std::uint64_t* time) {
  *count = static_cast<std::uint64_t>(now());
  *unit = 15.3F;
  *time = 0;
  return 0;
}

}  // extern "C"
