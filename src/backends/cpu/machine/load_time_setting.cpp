#include "backends/cpu/machine/load_time_setting.h"

#include <link.h>

#include <cstdlib>
#include <string_view>

namespace gemmtune::cpu {
namespace {

/// Turns of libgomp's loop, about 50 microseconds: as long as workers of our own pool spin.
constexpr const char* spin_turns = "4000";

/// Of any name: wheels bring copies with a hash in it.
bool has_libgomp() {
  const auto is_libgomp = [](dl_phdr_info* library, std::size_t, void*) {
    const std::string_view path = library->dlpi_name;
    return path.substr(path.rfind('/') + 1).starts_with("libgomp") ? 1 : 0;
  };
  return dl_iterate_phdr(is_libgomp, nullptr) != 0;
}

bool user_says_how_threads_wait() {
  return std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr;
}

}  // namespace

LoadTimeSetting::LoadTimeSetting(const char* name, const char* value) {
  if (value == nullptr || std::getenv(name) != nullptr) return;
  if (::setenv(name, value, 0) == 0) name_ = name;
}

LoadTimeSetting::~LoadTimeSetting() {
  if (name_ != nullptr) ::unsetenv(name_);
}

BoundedOpenmpSpin::BoundedOpenmpSpin(bool bounded)
    : setting_("GOMP_SPINCOUNT",
               bounded && !user_says_how_threads_wait() && !has_libgomp() ? spin_turns : nullptr) {}

}  // namespace gemmtune::cpu
