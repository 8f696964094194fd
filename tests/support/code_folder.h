// Leaves what tests compile for tools/code_hashes.py, which compares the machine code of two commits.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "backends/gpu/runtime.h"
#include "base/file.h"
#include "base/hash.h"

namespace gemmtune::test {

/// What makes one program differ from another, whatever text the device files have: the names, the architecture, the defines, and the text
/// that is generated before the device files.
inline std::string code_label(const gpu::Source& source, std::string_view architecture) {
  std::string label = source.name + " " + source.kernel + " " + std::string(architecture);
  for (const std::string& define : source.defines) label += " " + define;
  const std::string generated = source.text.substr(0, source.text.find("#include"));
  return label + " generated=" + short_hash(generated, 12);
}

/// Where GEMMTUNE_CODE_FOLDER names a folder: writes `code` (an ELF file or an assembly listing) there, under a hash of its label, and
/// the text that is compiled and its defines, a line each.
inline Status leave_code(const gpu::Source& source, std::string_view architecture, const std::string& code) {
  const char* const folder = std::getenv("GEMMTUNE_CODE_FOLDER");
  if (folder == nullptr) return {};
  const std::string label = code_label(source, architecture);
  const std::string path = std::string(folder) + "/" + short_hash(label, 16);
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(path + ".label", label));
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(path + ".source", source.text));
  std::string defines;
  for (const std::string& define : source.defines) defines += define + "\n";
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(path + ".defines", defines));
  return write_file_atomically(path + ".code", code);
}

}  // namespace gemmtune::test
