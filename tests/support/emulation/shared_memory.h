// Shared memory of the block that runs: who accessed which byte last, and how its banks are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/emulation/emulation.h"

namespace gemmtune::emulation {

/// Who accesses, and when: two threads are ordered by a barrier between them, those of a wave also by what all
/// its lanes do together.
struct Accessor {
  unsigned thread = 0;
  unsigned wave = 0;
  unsigned block_epoch = 0;  // barriers of the block so far
  unsigned wave_epoch = 0;   // collectives of the wave so far
  bool atomic = false;       // ordered with other atomic accesses
};

class SharedMemory {
 public:
  /// A new block: nobody has accessed anything.
  void begin_block(std::size_t bytes);
  /// "", or the race that this access is part of.
  std::string access(std::size_t offset, unsigned bytes, bool is_write, const Accessor& accessor);

 private:
  struct Seen {
    Accessor by;
    unsigned generation = 0;  // of the block in which it was
  };
  struct Byte {
    Seen writer;
    Seen reader;
    Seen other_reader;  // of another wave than `reader`
  };
  std::vector<Byte> bytes_;
  unsigned generation_ = 0;
};

/// Instructions of a wave that access shared memory, put together from what its lanes did between two collectives.
class BankCounter {
 public:
  void add(const void* instruction, unsigned lane, std::size_t offset, unsigned bytes, bool is_write);
  /// The wave's lanes come together: what they did is complete.
  void flush(Statistics& statistics, unsigned banks);

 private:
  struct Group {
    unsigned bytes = 0;
    bool is_write = false;
    std::vector<std::pair<unsigned, std::size_t>> lanes;  // lane, offset
  };
  std::map<std::pair<const void*, unsigned>, Group> groups_;          // by instruction and occurrence
  std::map<std::pair<const void*, unsigned>, unsigned> occurrences_;  // by instruction and lane
};

/// Cycles that the banks need for one instruction of a wave: {without conflicts, with them}. 32 banks of 4 bytes, 64 of gfx950; an
/// instruction goes in phases of as many lanes as the banks' bytes hold; of reads of 16 bytes a phase has lanes 0 to 3 and 20
/// to 23, 4 to 7 and 16 to 19, and so on; of 64 banks 0 to 3, 12 to 15, 20 to 23 and 24 to 27, then the others of 32.
std::pair<unsigned, unsigned> bank_cycles(unsigned bytes, bool is_write,
                                          const std::vector<std::pair<unsigned, std::size_t>>& lanes,
                                          unsigned banks = 32);

}  // namespace gemmtune::emulation
