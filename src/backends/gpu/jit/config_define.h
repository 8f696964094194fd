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
inline std::string_view device_name(Scales) { return "gemmtune::gpu::Scales"; }

/// The define by which `config()` of a device source returns these values: "CONFIG={/*block_m*/64,/*packed*/true}". `Config` is a struct that host and
/// device share, of numbers, bools and enumerations that have a device_name(), with a visit_fields(). `name`: of the define.
template <typename Config>
std::string config_define(const Config& config, std::string_view name = "CONFIG") {
  std::string text;
  const auto add = [&](std::string_view field, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    text += fmt::format("{}/*{}*/", text.empty() ? "" : ",", field);
    if constexpr (std::is_enum_v<Value>) {
      text += fmt::format("{}({})", device_name(value), static_cast<int>(value));
    } else if constexpr (std::is_same_v<Value, float>) {
      text += fmt::format("{:#}f", value);
    } else {
      text += fmt::format("{}", value);
    }
  };
  visit_fields(config, add);
  return fmt::format("{}={{{}}}", name, text);
}

}  // namespace gemmtune::gpu
