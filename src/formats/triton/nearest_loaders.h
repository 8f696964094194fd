// The loaders of vLLM and SGLang that read configs by the nearest M, one row each: how the file's name is built, which words
// it may hold, what else than numbers a key may be, and what the kernel does with a block of K beyond a scale's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gemmtune {

/// What happens where BLOCK_SIZE_K is larger than the block of a scale.
enum class WideBlock { unscaled, wrong_results, clamped };

/// How one loader finds and reads files.
struct NearestLoader {
  std::string_view program;  // "vLLM", "SGLang"
  std::string_view form;     // "E=e,N=n,device_name=…", for messages
  bool mixture = false;
  bool takes_version = false;  // a key triton_version is dropped before keys become numbers
  bool takes_null = false;     // a null bucket means the program's default kernel
  WideBlock wide_block = WideBlock::unscaled;
};

/// A loader that builds this name, and what the name says.
struct NearestName {
  const NearestLoader* loader = nullptr;
  std::int64_t scale_block_k = 0;  // of block_shape; 0: none
};
/// All that look for a file of this name (without folders); none: no loader ever opens it.
std::vector<NearestName> loaders_of_name(std::string_view file_name);
/// "vLLM: E=e,N=n,…; SGLang: …": the forms that are looked for.
std::string forms_of_names();
/// vLLM's loader of mixtures looks for NVIDIA_H200 on every device of that family: the name that it looks for instead; empty
/// where the name is what it looks for.
std::string vllm_device_name(std::string_view device);

/// What Python's int() makes of a key: blanks around it, a sign, zeros in front and single underscores between digits are
/// allowed; nullopt: it raises ValueError. Larger numbers than max_nearest_key are held there.
inline constexpr std::int64_t max_nearest_key = std::int64_t{1} << 62;
std::optional<std::int64_t> python_int(std::string_view text);

}  // namespace gemmtune
