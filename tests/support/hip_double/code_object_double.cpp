#include <elf.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/hip_double/hip_double.h"

namespace gemmtune::hip_double {
namespace {

constexpr char section_names[] = "\0.note\0.source\0.shstrtab";
constexpr std::size_t sections = 4;

/// The names of a source's kernels: extern "C" __global__ void [__launch_bounds__(…)] NAME(
std::vector<std::string> kernels_of(const std::string& source) {
  const std::string words = "extern \"C\" __global__ void ";
  const std::string bounds = "__launch_bounds__(";
  std::vector<std::string> names;
  for (auto at = source.find(words); at != std::string::npos; at = source.find(words, at)) {
    at += words.size();
    if (source.compare(at, bounds.size(), bounds) == 0) at = source.find(") ", at) + 2;
    const auto end = source.find('(', at);
    if (end != std::string::npos) names.push_back(source.substr(at, end - at));
  }
  return names;
}

/// EF_AMDGPU_MACH of the processor that the options name.
Elf64_Word processor_of(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    if (option.find("=gfx90a") != std::string::npos) return 0x3f;
    if (option.find("=gfx942") != std::string::npos) return 0x4c;
    if (option.find("=gfx950") != std::string::npos) return 0x4f;
  }
  return 0;
}

std::string note_of(const std::string& source) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const std::string& name : kernels_of(source))
    kernels.push_back({{".name", name},
                       {".vgpr_count", number("HIP_DOUBLE_REGISTERS", 64)},
                       {".private_segment_fixed_size", number("HIP_DOUBLE_SPILLED", 0)},
                       {".group_segment_fixed_size", 4096}});
  const auto packed = nlohmann::json::to_msgpack({{"amdhsa.kernels", kernels}});
  const Elf64_Nhdr head{7, static_cast<Elf64_Word>(packed.size()), 32};
  std::string note(reinterpret_cast<const char*>(&head), sizeof(head));
  note += std::string("AMDGPU\0\0", 8);
  note.append(packed.begin(), packed.end());
  note.resize((note.size() + 3) / 4 * 4);
  return note;
}

}  // namespace

std::string make_code_object(const std::string& source, const std::vector<std::string>& options) {
  const std::array<std::string, sections> contents{
      std::string(), note_of(source), nlohmann::json{{"source", source}, {"options", options}}.dump(),
      std::string(section_names, sizeof(section_names))};
  const std::array<Elf64_Word, sections> names{0, 1, 7, 15};
  const std::array<Elf64_Word, sections> types{SHT_NULL, SHT_NOTE, SHT_PROGBITS, SHT_STRTAB};
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 64;  // ELFOSABI_AMDGPU_HSA
  header.e_machine = 224;         // EM_AMDGPU
  header.e_flags = processor_of(options);
  header.e_ehsize = sizeof(header);
  header.e_shoff = sizeof(header);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = sections;
  header.e_shstrndx = sections - 1;
  std::array<Elf64_Shdr, sections> table{};
  std::string body;
  for (std::size_t i = 1; i < sections; ++i) {
    table[i].sh_name = names[i];
    table[i].sh_type = types[i];
    table[i].sh_offset = sizeof(header) + sizeof(table) + body.size();
    table[i].sh_size = contents[i].size();
    body += contents[i];
  }
  std::string code(reinterpret_cast<const char*>(&header), sizeof(header));
  code.append(reinterpret_cast<const char*>(table.data()), sizeof(table));
  return code + body;
}

bool read_code_object(const void* image, CodeObject& object) {
  Elf64_Ehdr header{};
  std::memcpy(&header, image, sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_shnum != sections) return false;
  Elf64_Shdr section{};
  const char* bytes = static_cast<const char*>(image);
  std::memcpy(&section, bytes + header.e_shoff + 2 * sizeof(section), sizeof(section));
  const auto json = nlohmann::json::parse(bytes + section.sh_offset,
                                          bytes + section.sh_offset + section.sh_size, nullptr, false);
  if (!json.is_object()) return false;
  object.source = json["source"];
  object.options = json["options"].get<std::vector<std::string>>();
  return true;
}

}  // namespace gemmtune::hip_double
