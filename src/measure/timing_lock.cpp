#include "measure/timing_lock.h"

#include <sys/stat.h>
#include <unistd.h>

namespace gemmtune {

std::string timing_lock_path(const std::string& runtime_folder, const DeviceInfo& device) {
  mkdir(runtime_folder.c_str(), S_IRWXU);
  struct stat status {};
  if (lstat(runtime_folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid())
    return {};
  return runtime_folder + (device.bus_id.empty() ? "/timing.lock" : "/timing-" + device.bus_id + ".lock");
}

}  // namespace gemmtune
