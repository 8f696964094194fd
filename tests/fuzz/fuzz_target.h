// What driver.cpp runs where the compiler has no libFuzzer. Each NAME_fuzz.cpp is then a function of one program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gemmtune::fuzz {

struct Target {
  std::string_view name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};

/// Of the file that tests/fuzz/CMakeLists.txt generates.
std::span<const Target> all_targets();

}  // namespace gemmtune::fuzz
