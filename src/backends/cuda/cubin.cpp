#include "backends/cuda/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/text.h"

namespace gemmtune::cuda {
namespace {

constexpr std::uint8_t format_sized = 4;  // two bytes of length, then the value
constexpr std::uint8_t attribute_registers = 0x2f;
constexpr std::uint8_t attribute_frame = 0x11;
/// What sm_90 and later keep for themselves; a kernel's section counts it, the limit of a block does not.
constexpr std::size_t reserved_bytes = 1024;

/// The object at `offset`; false where it does not lie in the text.
template <typename T>
bool read(std::string_view code, std::uint64_t offset, T& value) {
  if (offset > code.size() || code.size() - offset < sizeof(T)) return false;
  std::memcpy(&value, code.data() + offset, sizeof(T));
  return true;
}

std::string_view part(std::string_view code, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > code.size() || code.size() - offset < bytes) return {};
  return code.substr(offset, bytes);
}

/// Of each function {symbol, value}; the largest counts.
void read_attributes(std::string_view info, gpu::Resources& resources) {
  struct Head {
    std::uint8_t format;
    std::uint8_t attribute;
    std::uint16_t bytes;
  } head{};
  for (std::uint64_t at = 0; read(info, at, head);) {
    at += sizeof(head);
    if (head.format != format_sized) continue;  // the value stood in `bytes`
    std::uint32_t value = 0;
    if (head.bytes >= 8 && read(info, at + 4, value)) {
      if (head.attribute == attribute_registers)
        resources.registers = std::max(resources.registers, static_cast<int>(value));
      if (head.attribute == attribute_frame)
        resources.stack_bytes = std::max(resources.stack_bytes, static_cast<int>(value));
    }
    at += head.bytes;
  }
}

}  // namespace

Result<gpu::Resources> read_cubin(std::string_view code) {
  const auto refuse = [](std::string_view why) {
    return Status::internal("the compiler's machine code: {}", why);
  };
  Elf64_Ehdr header{};
  if (!read(code, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return refuse("no 64-bit ELF file");
  }
  const auto section = [&](std::uint64_t index, Elf64_Shdr& found) {
    return read(code, header.e_shoff + index * header.e_shentsize, found);
  };
  Elf64_Shdr names{};
  if (!section(header.e_shstrndx, names)) return refuse("no section names");
  const std::string_view texts = part(code, names.sh_offset, names.sh_size);
  gpu::Resources resources;
  std::size_t reserved = 0;
  for (std::uint64_t index = 0; index < header.e_shnum; ++index) {
    Elf64_Shdr one{};
    if (!section(index, one) || one.sh_name >= texts.size()) return refuse("a section lies outside of it");
    const std::string_view rest = texts.substr(one.sh_name);
    const std::string_view name = rest.substr(0, rest.find('\0'));
    if (name == ".nv.info") read_attributes(part(code, one.sh_offset, one.sh_size), resources);
    if (name == ".nv.shared.reserved.0") {
      reserved = reserved_bytes;
    } else if (name.starts_with(".nv.shared.")) {
      resources.static_shared_bytes = std::max<std::size_t>(resources.static_shared_bytes, one.sh_size);
    }
  }
  resources.static_shared_bytes -= std::min(resources.static_shared_bytes, reserved);
  if (resources.registers == 0) return refuse("no count of registers in it");
  return resources;
}

Status check_cubin(std::string_view code, std::string_view architecture) {
  constexpr int machine_cuda = 190;         // EM_CUDA
  constexpr int first_shifted_version = 8;  // of the ABI: CUDA 13 has the number one byte higher
  Elf64_Ehdr header{};
  if (!read(code, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine_cuda)
    return Status::invalid("no cubin");
  const bool shifted = header.e_ident[EI_ABIVERSION] >= first_shifted_version;
  const auto number = static_cast<int>(header.e_flags >> (shifted ? 8 : 0) & 0xff);
  const std::string_view digits =
      architecture.substr(std::min(architecture.find_first_of("0123456789"), architecture.size()));
  const auto wanted = parse_integer(digits.substr(0, digits.find_first_not_of("0123456789")));
  if (wanted == number) return {};
  return Status::invalid("a cubin for sm_{}, expected one for {}", number, architecture);
}

}  // namespace gemmtune::cuda
