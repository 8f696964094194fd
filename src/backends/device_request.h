// The device that options and the environment ask for: the one place that combines them.
#pragma once

#include <cstdint>
#include <string>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"

namespace gemmtune {

/// What a caller's options say. The rest of a DeviceRequest is the environment's.
struct DeviceChoice {
  std::string text = {};                // "cpu:0-15", "cuda:0"; empty: the backend's default
  std::int64_t threads = 0;             // 0: GEMMTUNE_NUM_THREADS, else all cores of the device
  bool pin_threads = false;             // bind threads to cores: for measuring
  Team team = Team::automatic;          // automatic: GEMMTUNE_TEAM
  Team default_team = Team::automatic;  // if that does not say one either
};

/// invalid_argument if a number of threads is negative, too large or no whole number; the error names the
/// option or GEMMTUNE_NUM_THREADS, its value and the range. The variable is only read if the option is 0. So it is of an
/// unknown word in GEMMTUNE_TEAM, which is only read for Team::automatic, and of a number in GEMMTUNE_LAST_LEVEL_CACHE_MIB.
Result<DeviceRequest> device_request(const DeviceChoice& choice, const Environment& environment);

}  // namespace gemmtune
