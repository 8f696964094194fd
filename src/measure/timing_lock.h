// The file that is locked while something is timed, so that processes of one machine do not time each other.
#pragma once

#include <string>

#include "backends/backend.h"

namespace gemmtune {

/// Of the device: each GPU has one, whichever process opened it and under whichever number; the partitions of
/// the machine's CPUs, which share its memory, have one together. In `runtime_folder`
/// (Environment::runtime_folder), which is made if missing: of this user, in a folder that no other user can
/// write. Empty if there is no such folder or lock, which is logged: times are then as good as the machine is
/// quiet.
std::string timing_lock_path(const std::string& runtime_folder, const DeviceInfo& device);

/// The file under which the services of a machine take turns at tuning beside their work. Empty where there
/// is no such folder.
std::string online_lock_path(const std::string& runtime_folder);

}  // namespace gemmtune
