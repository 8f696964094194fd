#include "support/emulation/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace gemmtune::emulation {
namespace {

constexpr unsigned max_banks = 64;
constexpr unsigned bank_bytes = 4;

bool unordered(const Accessor& one, const Accessor& other) {
  if (one.thread == other.thread || (one.atomic && other.atomic)) return false;
  if (one.wave == other.wave) return one.wave_epoch == other.wave_epoch;
  return one.block_epoch == other.block_epoch;
}

/// The phase in which a lane's access is served.
unsigned phase_of(unsigned bytes, bool is_write, unsigned lane, unsigned banks) {
  if (bytes == 16 && !is_write) {
    // Of 32 lanes, phase p has lanes 4 p to 4 p + 3 and the four at 16 + (4 p ^ 4).
    const unsigned quad = lane % 32 / 4;
    if (banks == 64) return lane / 32 * 2 + ((quad ^ quad >> 1 ^ quad >> 2) & 1);
    return lane / 32 * 4 + (quad < 4 ? quad : (quad - 4) ^ 1);
  }
  return lane / (banks * bank_bytes / std::max(bytes, bank_bytes));
}

}  // namespace

void SharedMemory::begin_block(std::size_t bytes) {
  if (bytes_.size() < bytes) bytes_.resize(bytes);
  ++generation_;
}

std::string SharedMemory::access(std::size_t offset, unsigned bytes, bool is_write,
                                 const Accessor& accessor) {
  for (std::size_t at = offset; at < offset + bytes; ++at) {
    Byte& byte = bytes_[at];
    const auto race = [&](const Seen& before, const char* what) {
      return fmt::format(
          "race in shared memory at {}: thread {} {} what thread {} {}, with no barrier between them", at,
          accessor.thread, is_write ? "writes" : "reads", before.by.thread, what);
    };
    const auto of_this_block = [&](const Seen& seen) { return seen.generation == generation_; };
    if (of_this_block(byte.writer) && unordered(byte.writer.by, accessor)) return race(byte.writer, "wrote");
    if (is_write) {
      for (const Seen* reader : {&byte.reader, &byte.other_reader})
        if (of_this_block(*reader) && unordered(reader->by, accessor)) return race(*reader, "reads");
      byte.writer = {accessor, generation_};
      byte.reader.generation = byte.other_reader.generation = 0;
    } else {
      if (of_this_block(byte.reader) && byte.reader.by.wave != accessor.wave) byte.other_reader = byte.reader;
      byte.reader = {accessor, generation_};
    }
  }
  return {};
}

std::pair<unsigned, unsigned> bank_cycles(unsigned bytes, bool is_write,
                                          const std::vector<std::pair<unsigned, std::size_t>>& lanes,
                                          unsigned banks) {
  std::map<unsigned, std::array<std::set<std::size_t>, max_banks>> phases;
  for (const auto& [lane, offset] : lanes) {
    auto& phase = phases[phase_of(bytes, is_write, lane, banks)];
    for (std::size_t word = offset / bank_bytes; word <= (offset + bytes - 1) / bank_bytes; ++word)
      phase[word % banks].insert(word);
  }
  unsigned cycles = 0;
  for (const auto& [index, phase] : phases) {
    std::size_t most = 1;
    for (const auto& words : phase) most = std::max(most, words.size());
    cycles += static_cast<unsigned>(most);
  }
  return {static_cast<unsigned>(phases.size()), cycles};
}

void BankCounter::add(const void* instruction, unsigned lane, std::size_t offset, unsigned bytes,
                      bool is_write) {
  const unsigned occurrence = occurrences_[{instruction, lane}]++;
  Group& group = groups_[{instruction, occurrence}];
  group.bytes = bytes;
  group.is_write = is_write;
  group.lanes.emplace_back(lane, offset);
}

void BankCounter::flush(Statistics& statistics, unsigned banks) {
  for (const auto& [key, group] : groups_) {
    const auto [ideal, cycles] = bank_cycles(group.bytes, group.is_write, group.lanes, banks);
    ++(group.is_write ? statistics.lds_writes : statistics.lds_reads);
    statistics.lds_bytes += group.bytes * group.lanes.size();
    statistics.lds_cycles += ideal;
    statistics.lds_conflict_cycles += cycles - ideal;
    if (!group.is_write) statistics.lds_read_conflict_cycles += cycles - ideal;
  }
  groups_.clear();
  occurrences_.clear();
}

}  // namespace gemmtune::emulation
