// libgemmtune_tuning has a log of its own; its lines go where those of libgemmtune go. Not for programs in which both are
// one.
#include <gemmtune/c.h>

#include <string>
#include <string_view>

#include "base/log.h"

namespace gemmtune {
namespace {

[[maybe_unused]] const bool joined = [] {
  set_log_sink([](LogLevel level, std::string_view line,
                  void*) { (void)gemmtune_log_line(static_cast<int>(level), std::string(line).c_str()); },
               nullptr);
  return true;
}();

}  // namespace
}  // namespace gemmtune
