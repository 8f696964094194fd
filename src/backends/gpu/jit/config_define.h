// What a kernel is compiled for, as its device source reads it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "backends/gpu/device/types_arguments.h"
#include "base/fields.h"

namespace gemmtune::gpu {

inline std::string_view device_name(Element) { return "gemmtune::gpu::Element"; }

/// The define by which `config()` of a device source returns these values: "CONFIG={/*block_m*/64,/*packed*/true}". `Config` is a struct that host and
/// device share, of numbers, bools and enumerations that have a device_name(), with a visit_fields().
template <typename Config>
std::string config_define(const Config& config) {
  std::string text;
  const auto add = [&](std::string_view name, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    text += fmt::format("{}/*{}*/", text.empty() ? "" : ",", name);
    if constexpr (std::is_enum_v<Value>) {
      text += fmt::format("{}({})", device_name(value), static_cast<int>(value));
    } else if constexpr (std::is_same_v<Value, float>) {
      text += fmt::format("{:#}f", value);
    } else {
      text += fmt::format("{}", value);
    }
  };
  visit_fields(config, add);
  return "CONFIG={" + text + "}";
}

}  // namespace gemmtune::gpu
