#include "backends/hip/code_object.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/rounding.h"

namespace gemmtune::hip {
namespace {

constexpr std::uint32_t note_metadata = 32;  // NT_AMDGPU_METADATA
constexpr std::string_view note_owner("AMDGPU\0", 7);

/// The object at `offset`; false where it does not lie in the text.
template <typename T>
bool read_at(std::string_view code, std::uint64_t offset, T& value) {
  if (offset > code.size() || code.size() - offset < sizeof(T)) return false;
  std::memcpy(&value, code.data() + offset, sizeof(T));
  return true;
}

std::string_view bytes_at(std::string_view code, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > code.size() || code.size() - offset < bytes) return {};
  return code.substr(offset, bytes);
}

/// The description of the metadata note in a section of notes; empty where there is none.
std::string_view metadata_in(std::string_view notes) {
  Elf64_Nhdr note{};
  for (std::uint64_t at = 0; read_at(notes, at, note);) {
    at += sizeof(note);
    const std::string_view owner = bytes_at(notes, at, note.n_namesz);
    at += round_up<std::uint64_t>(note.n_namesz, 4);
    const std::string_view description = bytes_at(notes, at, note.n_descsz);
    at += round_up<std::uint64_t>(note.n_descsz, 4);
    if (note.n_type == note_metadata && owner == note_owner) return description;
  }
  return {};
}

/// The metadata is a MessagePack document. Its tokens one after another are enough: in a map a number follows its key.
class MetadataReader {
 public:
  explicit MetadataReader(std::string_view text) : text_(text) {}

  /// Calls `visit(key, number)` for each number that has a key; false where the text is no MessagePack.
  template <typename Visitor>
  bool read(Visitor&& visit) {
    std::string_view key;
    while (good_ && at_ < text_.size()) {
      text_token_ = {};
      number_.reset();
      token();
      if (number_ && !key.empty()) visit(key, *number_);
      key = text_token_;
    }
    return good_;
  }

 private:
  std::uint64_t take(int bytes) {
    std::uint64_t value = 0;
    const std::string_view part = bytes_at(text_, at_, static_cast<std::uint64_t>(bytes));
    good_ = good_ && part.size() == static_cast<std::size_t>(bytes);
    for (const char byte : part) value = value << 8 | static_cast<unsigned char>(byte);
    at_ += static_cast<std::size_t>(bytes);
    return value;
  }
  void skip(std::uint64_t bytes) {
    good_ = good_ && bytes <= text_.size() - std::min(text_.size(), at_);
    at_ += good_ ? bytes : 0;
  }
  void set_number(std::uint64_t value) { number_ = value; }
  void take_text(std::uint64_t bytes) {
    text_token_ = bytes_at(text_, at_, bytes);
    skip(bytes);
  }

  void token() {
    const auto tag = static_cast<unsigned>(take(1));
    if (tag < 0x80) return set_number(tag);
    if (tag < 0xa0) return;  // a small map or array: its members follow
    if (tag < 0xc0) return take_text(tag - 0xa0);
    if (tag >= 0xe0) return;  // a negative number
    switch (tag) {
      case 0xc4:
      case 0xc5:
      case 0xc6:  // bytes
        return skip(take(1 << (tag - 0xc4)));
      case 0xca:
      case 0xcb:  // a float, a double
        return skip(4U << (tag - 0xca));
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return set_number(take(1 << (tag - 0xcc)));
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3:  // signed
        return skip(1U << (tag - 0xd0));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return take_text(take(1 << (tag - 0xd9)));
      case 0xdc:
      case 0xdd:
      case 0xde:
      case 0xdf:  // arrays and maps
        return skip(2U << (tag & 1U));
      case 0xc0:
      case 0xc2:
      case 0xc3:
        return;
      default:
        good_ = false;  // extensions: AMD's compilers write none
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool good_ = true;
  std::string_view text_token_;
  std::optional<std::uint64_t> number_;
};

/// EF_AMDGPU_MACH_AMDGCN_… of LLVM's ELF.h.
struct ProcessorNumber {
  std::string_view name;
  unsigned number;
};
constexpr std::array<ProcessorNumber, 6> processor_numbers{{{"gfx908", 0x30},
                                                            {"gfx90a", 0x3f},
                                                            {"gfx940", 0x40},
                                                            {"gfx942", 0x4c},
                                                            {"gfx950", 0x4f},
                                                            {"gfx1100", 0x41}}};

}  // namespace

Status check_code_object(std::string_view code, std::string_view architecture) {
  constexpr int machine_amdgpu = 224;  // EM_AMDGPU
  constexpr int abi_hsa = 64;          // ELFOSABI_AMDGPU_HSA
  Elf64_Ehdr header{};
  if (!read_at(code, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine_amdgpu ||
      header.e_ident[EI_OSABI] != abi_hsa)
    return Status::invalid("no code object");
  const std::string_view name = architecture.substr(0, architecture.find(':'));
  const unsigned number = header.e_flags & 0xff;
  for (const ProcessorNumber& known : processor_numbers) {
    if (known.name == name && known.number != number)
      return Status::invalid("a code object for processor {:#x}, expected {:#x} of {}", number, known.number,
                             name);
  }
  return {};
}

Result<gpu::Resources> read_code_object(std::string_view code) {
  const auto refuse = [](std::string_view why) {
    return Status::internal("the compiler's code object: {}", why);
  };
  Elf64_Ehdr header{};
  if (!read_at(code, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return refuse("no 64-bit ELF file");
  std::string_view metadata;
  for (std::uint64_t index = 0; index < header.e_shnum && metadata.empty(); ++index) {
    Elf64_Shdr section{};
    if (!read_at(code, header.e_shoff + index * header.e_shentsize, section)) return refuse("it is cut off");
    if (section.sh_type == SHT_NOTE)
      metadata = metadata_in(bytes_at(code, section.sh_offset, section.sh_size));
  }
  gpu::Resources resources;
  bool has_kernel = false;
  const bool read = MetadataReader(metadata).read([&](std::string_view key, std::uint64_t value) {
    const auto number = static_cast<int>(std::min<std::uint64_t>(value, 1U << 30));
    if (key == ".vgpr_count") {
      resources.registers = std::max(resources.registers, number);
      has_kernel = true;
    } else if (key == ".private_segment_fixed_size") {
      resources.stack_bytes = std::max(resources.stack_bytes, number);
    } else if (key == ".group_segment_fixed_size") {
      resources.static_shared_bytes =
          std::max(resources.static_shared_bytes, static_cast<std::size_t>(number));
    }
  });
  if (!read || !has_kernel) return refuse("no metadata of a kernel in it");
  return resources;
}

}  // namespace gemmtune::hip
