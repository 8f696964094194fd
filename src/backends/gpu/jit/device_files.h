// Device code as files that include each other: the build embeds them (embed.cmake), run-time compilers get those that a source includes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gemmtune::gpu {

/// A device file: .cu, .cuh, or a header of kernel arguments. C strings, because compilers take these.
struct DeviceFile {
  const char* path;  // as #include names it: "backends/cuda/device/tma.cuh"
  const char* text;
};

/// All embedded files, by path.
std::span<const DeviceFile> device_files();

/// The line that includes a device file: the text of a source after what its family generates.
std::string include_line(std::string_view path);

/// The files of `all` that `text` includes, directly or not, each once, in the order in which a compiler first reaches them. A compiler
/// refuses what is not in `all`.
std::vector<DeviceFile> included_files(std::string_view text,
                                       std::span<const DeviceFile> all = device_files());

/// `text` with the files that it includes in place of their first #include: one file that needs no others. Includes of device files are
/// under no condition that one kernel meets in one place and not in another.
std::string resolved_text(std::string_view text, std::span<const DeviceFile> all = device_files());

/// 12 digits of resolved_text(): what the identity of a family says of its device code.
std::string text_hash(std::string_view text, std::span<const DeviceFile> all = device_files());

}  // namespace gemmtune::gpu
