#include "support/emulation/emulation.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "support/emulation/fiber.h"
#include "support/emulation/interface.h"
#include "support/emulation/matrix.h"
#include "support/emulation/shared_memory.h"

namespace gemmtune::emulation {
namespace {

constexpr std::size_t stack_bytes = 48 * 1024;
constexpr std::size_t max_shared_bytes = 227 * 1024;
constexpr std::size_t amd_shared_bytes = 64 * 1024;      // up to gfx942
constexpr std::size_t gfx950_shared_bytes = 160 * 1024;  // of gfx950
constexpr std::size_t no_array = ~std::size_t{0};
// What a kernel compiles with takes longer than what it runs for: -O2 takes half as long again as -O1 and gains nothing.
constexpr std::string_view optimization =
    "-O1 -fno-ipa-reference -fno-tree-loop-distribute-patterns -fsanitize=thread --param "
    "tsan-instrument-func-entry-exit=0";
constexpr int poison = 0xff;  // a NaN of every type that has one

struct Buffer {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string name;
};

std::mutex buffers_lock;
std::map<std::uintptr_t, Buffer>& buffers() {
  static std::map<std::uintptr_t, Buffer> all;
  return all;
}

std::string_view name_of(Operation operation) {
  if (const MatrixInstruction* instruction = find_instruction(operation)) return instruction->name;
  switch (operation) {
    case Operation::wave_barrier:
      return "wave_barrier";
    case Operation::block_barrier:
      return "s_barrier";
    case Operation::lane_read:
      return "ds_bpermute";
    case Operation::first_lane:
      return "readfirstlane";
    case Operation::ldmatrix_x4:
      return "ldmatrix";
    default:
      return "ldmatrix.trans";
  }
}

/// A load to shared memory that has not arrived.
struct Pending {
  unsigned to = 0;
  const void* from = nullptr;  // null: zeros
  unsigned bytes = 0;
};

enum class State { ready, waiting, done };

/// One thread of the kernel.
struct Lane {
  Fiber fiber;
  State state = State::ready;
  Indices indices{};
  unsigned thread = 0;
  unsigned wave = 0;
  // The collective that it waits for:
  Operation operation{};
  const void* in = nullptr;
  unsigned in_bytes = 0;
  void* out = nullptr;
  std::vector<Pending> open;                // of the group that is not committed
  std::deque<std::vector<Pending>> groups;  // committed, in order
};

struct Wave {
  unsigned first = 0;
  unsigned lanes = 0;
  unsigned epoch = 0;
  bool at_barrier = false;
  bool done = false;
  BankCounter banks;
};

struct Image {
  std::uintptr_t lds = 0;
  std::size_t lds_bytes = 0;              // of the section, which begins there
  std::size_t static_bytes = 0;           // of arrays of fixed size
  std::size_t dynamic_offset = no_array;  // of the array that the launch sizes
  std::uintptr_t begin = 0, end = 0;      // of the shared object
  unsigned wave_lanes = 64;
  std::size_t max_block_bytes = amd_shared_bytes;
  unsigned banks = 32;  // of shared memory
  const Indices** indices = nullptr;
};

/// Sets the range of the shared object that has `address`.
void find_module(const void* address, Image& image) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return;
  image.begin = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* to) {
        Image& found = *static_cast<Image*>(to);
        if (object->dlpi_addr != found.begin) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i)
          if (object->dlpi_phdr[i].p_type == PT_LOAD)
            found.end = std::max(found.end,
                                 found.begin + object->dlpi_phdr[i].p_vaddr + object->dlpi_phdr[i].p_memsz);
        return 1;
      },
      &image);
}

/// Large: kept from launch to launch.
SharedMemory& memory_of_this_thread() {
  static thread_local SharedMemory memory;
  return memory;
}

/// One launch.
class Run {
 public:
  Run(const Image& image, void (*call)(void**), const Launch& launch, Statistics* statistics)
      : image_(image), call_(call), launch_(launch), statistics_(statistics) {}
  std::string run();

  // Of Calls, on a fiber:
  void access(const void* address, unsigned bytes, bool is_write, const void* at, bool atomic = false);
  void collective(Operation operation, const void* in, unsigned in_bytes, void* out);
  void load_to_lds(const void* from, unsigned offset);
  void copy_async(unsigned to, const void* from, unsigned bytes);
  void commit();
  void wait(unsigned pending);
  unsigned lds_offset(const void* address);
  void fail(const std::string& message);

 private:
  static void enter();
  void run_block(unsigned x, unsigned y, unsigned z);
  /// Until each lane of the wave is at a barrier of the block, or done.
  void run_wave(Wave& wave);
  void perform(Wave& wave);
  void check_global(const void* address, unsigned bytes, bool is_write);
  bool in_shared(std::size_t offset, unsigned bytes) const;
  void check_shared(std::size_t offset, unsigned bytes, const char* what);
  void arrive(const Pending& load);
  void touch_shared(std::size_t offset, unsigned bytes, bool is_write, const void* at, bool atomic = false);

  const Image& image_;
  void (*call_)(void**);
  const Launch& launch_;
  Statistics* statistics_;
  char* stacks_ = nullptr;
  std::size_t stacks_bytes_ = 0;
  std::vector<Lane> lanes_;
  std::vector<Wave> waves_;
  unsigned epoch_ = 0;
  Fiber scheduler_;
  Lane* running_ = nullptr;
  SharedMemory& shared_ = memory_of_this_thread();
  Buffer last_;
  std::string failure_;
};

thread_local Run* current = nullptr;

void Run::enter() {
  Run* run = current;
  run->call_(run->launch_.arguments);
  Lane* lane = run->running_;
  lane->state = State::done;
  for (;;) lane->fiber.switch_to(run->scheduler_);
}

void Run::fail(const std::string& message) {
  if (failure_.empty()) {
    const Indices& at = running_->indices;
    failure_ = fmt::format("thread {} of block {},{},{}: {}", running_->thread, at.block[0], at.block[1],
                           at.block[2], message);
  }
  for (;;) running_->fiber.switch_to(scheduler_);
}

void Run::check_global(const void* address, unsigned bytes, bool is_write) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin >= last_.begin && begin + bytes <= last_.end) return;
  Buffer nearest;  // the last one that begins at or before the address
  {
    const std::lock_guard lock(buffers_lock);
    const auto after = buffers().upper_bound(begin);
    if (after != buffers().begin()) nearest = std::prev(after)->second;
  }
  if (begin + bytes <= nearest.end) {
    last_ = nearest;
    return;
  }
  if (!is_write && begin >= image_.begin && begin + bytes <= image_.end) return;  // the module's constants
  const std::string access =
      fmt::format("{} {} bytes at {}", is_write ? "writes" : "reads", bytes, fmt::ptr(address));
  if (nearest.end == 0) fail(access + ", where no buffer is");
  fail(fmt::format("{}, of which the last is {} bytes past the end of {} ({} bytes)", access,
                   begin + bytes - nearest.end, nearest.name, nearest.end - nearest.begin));
}

bool Run::in_shared(std::size_t offset, unsigned bytes) const {
  if (image_.dynamic_offset != no_array && offset >= image_.dynamic_offset &&
      offset < image_.dynamic_offset + max_shared_bytes)
    return offset + bytes <= image_.dynamic_offset + launch_.shared_bytes;
  return offset + bytes <= image_.lds_bytes;
}

void Run::check_shared(std::size_t offset, unsigned bytes, const char* what) {
  if (!in_shared(offset, bytes))
    fail(fmt::format("{} of {} bytes at {} of shared memory, which has {}", what, bytes,
                     offset - (image_.dynamic_offset == no_array ? 0 : image_.dynamic_offset),
                     image_.dynamic_offset == no_array ? image_.static_bytes : launch_.shared_bytes));
}

void Run::touch_shared(std::size_t offset, unsigned bytes, bool is_write, const void* at, bool atomic) {
  const Wave& wave = waves_[running_->wave];
  const std::string race =
      shared_.access(offset, bytes, is_write, {running_->thread, running_->wave, epoch_, wave.epoch, atomic});
  if (!race.empty()) fail(race);
  if (statistics_ != nullptr && at != nullptr)
    waves_[running_->wave].banks.add(at, running_->thread - wave.first, offset, bytes, is_write);
}

void Run::access(const void* address, unsigned bytes, bool is_write, const void* at, bool atomic) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const auto stacks = reinterpret_cast<std::uintptr_t>(stacks_);
  if (place >= stacks && place < stacks + stacks_bytes_) return;
  if (place >= image_.lds && place < image_.lds + image_.lds_bytes) {
    check_shared(place - image_.lds, bytes, is_write ? "a write" : "a read");
    touch_shared(place - image_.lds, bytes, is_write, at, atomic);
    return;
  }
  check_global(address, bytes, is_write);
  if (statistics_ != nullptr)
    (is_write ? statistics_->global_write_bytes : statistics_->global_read_bytes) += bytes;
}

unsigned Run::lds_offset(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  if (place < image_.lds || place > image_.lds + image_.lds_bytes)
    fail("an address that is not in shared memory");
  return static_cast<unsigned>(place - image_.lds);
}

void Run::load_to_lds(const void* from, unsigned offset) {
  check_global(from, 4, false);
  const unsigned to = offset + 4 * (running_->thread - waves_[running_->wave].first);
  check_shared(to, 4, "a load");
  running_->groups.push_back({{to, from, 4}});
  if (statistics_ != nullptr) {
    statistics_->global_read_bytes += 4;
    if (running_->thread == waves_[running_->wave].first) ++statistics_->direct_to_lds;
  }
}

void Run::copy_async(unsigned to, const void* from, unsigned bytes) {
  if (bytes > 0) check_global(from, bytes, false);
  if (to % 16 != 0) fail(fmt::format("cp.async to {} of shared memory: no multiple of 16", to));
  check_shared(to, 16, "cp.async");
  running_->open.push_back({to, bytes > 0 ? from : nullptr, 16});
}

void Run::commit() {
  running_->groups.push_back(std::move(running_->open));
  running_->open.clear();
}

void Run::arrive(const Pending& load) {
  touch_shared(load.to, load.bytes, true, nullptr);
  auto* to = reinterpret_cast<void*>(image_.lds + load.to);
  if (load.from != nullptr) {
    std::memcpy(to, load.from, load.bytes);
  } else {
    std::memset(to, 0, load.bytes);
  }
}

void Run::wait(unsigned pending) {
  while (running_->groups.size() > pending) {
    const std::vector<Pending> group = std::move(running_->groups.front());
    running_->groups.pop_front();
    for (const Pending& load : group) arrive(load);
  }
}

void Run::collective(Operation operation, const void* in, unsigned in_bytes, void* out) {
  Lane& lane = *running_;
  lane.operation = operation;
  lane.in = in;
  lane.in_bytes = in_bytes;
  lane.out = out;
  lane.state = State::waiting;
  lane.fiber.switch_to(scheduler_);
}

/// All lanes of the wave wait: does what they wait for.
void Run::perform(Wave& wave) {
  Lane* const lanes = &lanes_[wave.first];
  running_ = lanes;
  const Operation operation = lanes[0].operation;
  for (unsigned i = 0; i < wave.lanes; ++i) {
    if (lanes[i].state == State::done || lanes[i].operation != operation) {
      failure_ = fmt::format(
          "block {},{},{}: lanes of wave {} part: thread {} is at {}, thread {} {}",
          lanes[0].indices.block[0], lanes[0].indices.block[1], lanes[0].indices.block[2], lanes[0].wave,
          lanes[0].thread, name_of(operation), lanes[i].thread,
          lanes[i].state == State::done ? "has ended" : fmt::format("at {}", name_of(lanes[i].operation)));
      return;
    }
  }
  ++wave.epoch;
  if (statistics_ != nullptr) {
    ++statistics_->collectives[std::string(name_of(operation))];
    wave.banks.flush(*statistics_, image_.banks);
  }
  if (operation == Operation::block_barrier) {
    wave.at_barrier = true;
    return;
  }
  if (const MatrixInstruction* instruction = find_instruction(operation)) {
    if (wave.lanes != static_cast<unsigned>(instruction->lanes)) {
      failure_ = fmt::format("{} in a wave of {} lanes", instruction->name, wave.lanes);
      return;
    }
    const void* in[64];
    void* out[64];
    for (unsigned i = 0; i < wave.lanes; ++i) {
      in[i] = lanes[i].in;
      out[i] = lanes[i].out;
    }
    execute(*instruction, in, out);
  } else if (operation == Operation::lane_read) {
    for (unsigned i = 0; i < wave.lanes; ++i) {
      unsigned source = 0;
      std::memcpy(&source, lanes[i].in, 4);
      if (source >= wave.lanes) {
        failure_ = fmt::format("thread {} reads lane {} of {}", lanes[i].thread, source, wave.lanes);
        return;
      }
      std::memcpy(lanes[i].out, static_cast<const char*>(lanes[source].in) + 4, 4);
    }
  } else if (operation == Operation::first_lane) {
    for (unsigned i = 0; i < wave.lanes; ++i) std::memcpy(lanes[i].out, lanes[0].in, 4);
  } else if (operation == Operation::ldmatrix_x4 || operation == Operation::ldmatrix_x4_trans) {
    // Lane l gives the address of row l % 8 of matrix l / 8; register r of lane l gets 4 bytes of row l / 4 of
    // matrix r, at 4 (l % 4); transposed: elements l / 4 of its rows 2 (l % 4) and the next.
    for (unsigned i = 0; i < wave.lanes && failure_.empty(); ++i) {
      unsigned address = 0;
      std::memcpy(&address, lanes[i].in, 4);
      running_ = &lanes[i];
      if (address % 16 != 0 || !in_shared(address, 16)) {
        failure_ = fmt::format("thread {}: ldmatrix at {} of shared memory", lanes[i].thread, address);
        return;
      }
      const std::string race =
          shared_.access(address, 16, false, {lanes[i].thread, lanes[i].wave, epoch_, wave.epoch});
      if (!race.empty()) failure_ = race;
    }
    const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
      unsigned address = 0;
      std::memcpy(&address, lanes[matrix * 8 + row].in, 4);
      std::uint16_t value = 0;
      std::memcpy(&value, reinterpret_cast<const void*>(image_.lds + address + 2 * column), 2);
      return std::uint32_t{value};
    };
    const bool transposed = operation == Operation::ldmatrix_x4_trans;
    for (unsigned i = 0; i < wave.lanes; ++i) {
      auto* out = static_cast<std::uint32_t*>(lanes[i].out);
      for (unsigned matrix = 0; matrix < 4; ++matrix) {
        const unsigned far = i / 4;
        const unsigned near = i % 4 * 2;
        out[matrix] = transposed ? element(matrix, near, far) | element(matrix, near + 1, far) << 16
                                 : element(matrix, far, near) | element(matrix, far, near + 1) << 16;
      }
    }
  }
  for (unsigned i = 0; i < wave.lanes; ++i) lanes[i].state = State::ready;
}

void Run::run_wave(Wave& wave) {
  while (failure_.empty()) {
    unsigned waiting = 0;
    unsigned done = 0;
    for (unsigned i = wave.first; i < wave.first + wave.lanes && failure_.empty(); ++i) {
      Lane& lane = lanes_[i];
      if (lane.state == State::ready) {
        running_ = &lane;
        *image_.indices = &lane.indices;
        scheduler_.switch_to(lane.fiber);
      }
      waiting += lane.state == State::waiting ? 1 : 0;
      done += lane.state == State::done ? 1 : 0;
    }
    if (!failure_.empty()) return;
    if (done == wave.lanes) {
      wave.done = true;
      if (statistics_ != nullptr) wave.banks.flush(*statistics_, image_.banks);
      return;
    }
    perform(wave);
    if (wave.at_barrier) return;
  }
}

void Run::run_block(unsigned x, unsigned y, unsigned z) {
  auto* const lds = reinterpret_cast<unsigned char*>(image_.lds);
  if (image_.dynamic_offset == no_array) {
    std::memset(lds, poison, image_.lds_bytes);
  } else {
    std::memset(lds + image_.dynamic_offset, poison, launch_.shared_bytes);
  }
  shared_.begin_block(image_.lds_bytes);
  epoch_ = 0;
  const unsigned threads = static_cast<unsigned>(lanes_.size());
  waves_.clear();
  for (unsigned first = 0; first < threads; first += image_.wave_lanes) {
    waves_.emplace_back();
    waves_.back().first = first;
    waves_.back().lanes = std::min(image_.wave_lanes, threads - first);
  }
  for (unsigned i = 0; i < threads; ++i) {
    Lane& lane = lanes_[i];
    lane.state = State::ready;
    lane.thread = i;
    lane.wave = i / image_.wave_lanes;
    lane.open.clear();
    lane.groups.clear();
    Indices& at = lane.indices;
    at.thread[0] = i % launch_.block[0];
    at.thread[1] = i / launch_.block[0] % launch_.block[1];
    at.thread[2] = i / launch_.block[0] / launch_.block[1];
    at.block[0] = x;
    at.block[1] = y;
    at.block[2] = z;
    std::copy_n(launch_.block, 3, at.block_dim);
    std::copy_n(launch_.grid, 3, at.grid_dim);
    lane.fiber.prepare(stacks_ + i * stack_bytes, stack_bytes, &Run::enter);
  }
  while (failure_.empty()) {
    unsigned done = 0;
    for (Wave& wave : waves_) {
      if (!wave.done) run_wave(wave);
      if (!failure_.empty()) return;
      done += wave.done ? 1 : 0;
    }
    if (done == waves_.size()) return;
    if (done > 0) {
      failure_ = fmt::format("block {},{},{}: {} of {} waves have ended, the others are at a barrier", x, y,
                             z, done, waves_.size());
      return;
    }
    ++epoch_;
    for (Wave& wave : waves_) {
      wave.at_barrier = false;
      for (unsigned i = wave.first; i < wave.first + wave.lanes; ++i) lanes_[i].state = State::ready;
    }
  }
}

std::string Run::run() {
  const std::size_t threads = std::size_t{launch_.block[0]} * launch_.block[1] * launch_.block[2];
  if (threads == 0 || threads > 1024) return fmt::format("blocks of {} threads", threads);
  if (launch_.grid[0] == 0 || launch_.grid[1] == 0 || launch_.grid[2] == 0) return "a grid without blocks";
  stacks_bytes_ = threads * stack_bytes;
  void* const memory = mmap(nullptr, stacks_bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return "no memory for the threads' stacks";
  stacks_ = static_cast<char*>(memory);
  const std::size_t used_bytes = image_.static_bytes + launch_.shared_bytes;
  if (used_bytes > image_.max_block_bytes)
    return fmt::format("{} bytes of shared memory, a block has {}", used_bytes, image_.max_block_bytes);
  lanes_ = std::vector<Lane>(threads);
  Run* const outer = std::exchange(current, this);
  for (unsigned z = 0; z < launch_.grid[2] && failure_.empty(); ++z)
    for (unsigned y = 0; y < launch_.grid[1] && failure_.empty(); ++y)
      for (unsigned x = 0; x < launch_.grid[0] && failure_.empty(); ++x) run_block(x, y, z);
  current = outer;
  munmap(memory, stacks_bytes_);
  return failure_;
}

const Calls calls{
    [](const void* address, unsigned bytes, bool is_write, const void* at) {
      if (current != nullptr) current->access(address, bytes, is_write, at);
    },
    [](Operation operation, const void* in, unsigned in_bytes, void* out, unsigned) {
      current->collective(operation, in, in_bytes, out);
    },
    [](const void* from, unsigned offset) { current->load_to_lds(from, offset); },
    [](unsigned to, const void* from, unsigned bytes) { current->copy_async(to, from, bytes); },
    [] { current->commit(); },
    [](unsigned pending) { current->wait(pending); },
    [](const void* address) { return current->lds_offset(address); },
    [](const char* message) { current->fail(message); },
    [](int* address, int value, const void* at) {
      current->access(address, sizeof value, true, at, true);
      return std::exchange(*address, *address + value);
    },
};

/// What runs in a shell, with its output.
int run_command(const std::string& command, std::string& output) {
  std::FILE* pipe = popen(("(" + command + ") 2>&1").c_str(), "r");
  if (pipe == nullptr) return -1;
  char piece[4096];
  for (std::size_t got = 0; (got = std::fread(piece, 1, sizeof piece, pipe)) > 0;) output.append(piece, got);
  return pclose(pipe);
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string cache_folder() {
  const char* given = std::getenv("GEMMTUNE_EMULATION_CACHE");
  return given != nullptr ? given : GEMMTUNE_EMULATION_FOLDER "/cache";
}

/// The compiler's words for an architecture and for defines; empty for options of other kinds.
struct Words {
  std::string defines;
  unsigned wave_lanes = 64;
  std::size_t max_block_bytes = amd_shared_bytes;
  unsigned banks = 32;
};
Words words_of(const std::vector<std::string>& options) {
  Words words;
  const auto quoted = [](const std::string& text) {
    std::string all = " '";
    for (const char c : text) all += c == '\'' ? "'\\''" : std::string(1, c);
    return all + "'";
  };
  for (const std::string& option : options) {
    constexpr std::string_view amd = "--offload-arch=";
    constexpr std::string_view nvidia = "--gpu-architecture=";
    constexpr std::string_view define = "--define-macro=";
    if (option.rfind(amd, 0) == 0) {
      // "gfx942:sramecc+" is __gfx942__.
      const std::string name = option.substr(amd.size(), option.find(':') - amd.size());
      words.defines += quoted("-D__" + name + "__=1");
      if (name == "gfx950") {
        words.max_block_bytes = gfx950_shared_bytes;
        words.banks = 64;
      }
    } else if (option.rfind(nvidia, 0) == 0) {
      words.wave_lanes = 32;
      words.max_block_bytes = max_shared_bytes;
    } else if (option.rfind("-D", 0) == 0) {
      words.defines += quoted(option);
    } else if (option.rfind(define, 0) == 0) {
      words.defines += quoted("-D" + option.substr(define.size()));
    }
  }
  words.defines += fmt::format(" -DGEMMTUNE_WAVE_LANES={}", words.wave_lanes);
  return words;
}

bool is_of_a_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Without white space at the end.
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

/// The word that `text` ends with; taken off it, as is white space behind it.
std::string_view take_last_word(std::string_view& text) {
  text = trimmed(text);
  std::size_t begin = text.size();
  while (begin > 0 && is_of_a_word(text[begin - 1])) --begin;
  const std::string_view word = text.substr(begin);
  text = text.substr(0, begin);
  return word;
}

bool take_last(std::string_view& text, char c) {
  text = trimmed(text);
  if (!text.ends_with(c)) return false;
  text.remove_suffix(1);
  return true;
}

/// `extern __shared__ T name[]` is an array of the translation unit here. `arrays`: name and T.
std::string with_dynamic_shared(const std::string& source, std::map<std::string, std::string>& arrays) {
  constexpr std::string_view words = "extern __shared__ ";
  constexpr std::string_view align = "__align__(";
  std::string text;
  std::size_t from = 0;
  for (std::size_t at = source.find(words); at != std::string::npos; at = source.find(words, at)) {
    const std::size_t begin = at + words.size();
    const std::size_t end = std::min(source.find(';', begin), source.size());
    std::string_view declared = std::string_view(source).substr(begin, end - begin);
    at = end;
    if (!take_last(declared, ']') || !take_last(declared, '[')) continue;  // of fixed size
    const std::string name(take_last_word(declared));
    std::string type(declared);
    text.append(source, from, begin - words.size() - from);
    text += "extern " + type + name + "[]";
    from = end;
    if (const auto aligned = type.find(align); aligned != std::string::npos)
      type.erase(aligned, type.find(')', aligned) + 1 - aligned);
    arrays[name] = type;
  }
  return text.append(source, from);
}

/// Takes the mark before each kernel of an expanded source away. The kernels' names.
std::set<std::string> take_kernels(std::string& expanded) {
  constexpr std::string_view mark = "gemmtune_emulated_kernel";
  std::set<std::string> names;
  for (std::size_t at = expanded.find(mark); at != std::string::npos; at = expanded.find(mark, at)) {
    expanded.replace(at, mark.size(), "__attribute__((noinline))");
    at += std::string_view("__attribute__((noinline))").size();
    const std::size_t end = expanded.find_first_of("(;{", at);
    if (end == std::string::npos || expanded[end] != '(') continue;
    std::string_view declared = std::string_view(expanded).substr(at, end - at);
    names.insert(std::string(take_last_word(declared)));
  }
  return names;
}

}  // namespace

void register_buffer(const void* begin, std::size_t bytes, std::string name) {
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::lock_guard lock(buffers_lock);
  buffers()[at] = {at, at + bytes, std::move(name)};
}

void unregister_buffer(const void* begin) {
  const std::lock_guard lock(buffers_lock);
  buffers().erase(reinterpret_cast<std::uintptr_t>(begin));
}

struct Module::Loaded {
  void* library = nullptr;
  std::map<std::string, void (*)(void**)> kernels;
  Image image;
  mutable std::mutex running;

  ~Loaded() {
    if (library != nullptr) dlclose(library);
  }
};

Module::Module(std::unique_ptr<Loaded> loaded) : loaded_(std::move(loaded)) {}
Module::~Module() = default;

std::shared_ptr<Module> Module::compile(const std::string& source, const std::vector<std::string>& options,
                                        std::string* log) {
  const std::string folder = GEMMTUNE_EMULATION_SOURCES;
  const std::string compiler = GEMMTUNE_EMULATION_COMPILER;
  const auto refuse = [&](const std::string& why) {
    if (log != nullptr) *log = why;
    return std::shared_ptr<Module>();
  };
  const Words words = words_of(options);
  std::string key_text = source + words.defines + compiler + std::string(optimization);
  for (const char* header : {"device.h", "ptx.h", "interface.h"}) key_text += read_all(folder + "/" + header);
  const std::string key = short_hash(key_text, 16);
  static std::mutex lock;
  static std::map<std::string, std::weak_ptr<Module>> modules;
  {
    const std::lock_guard locked(lock);
    if (auto module = modules[key].lock()) return module;
  }
  const std::string cache = cache_folder();
  std::error_code ignored;
  std::filesystem::create_directories(cache, ignored);
  const std::string object = cache + "/" + key + ".so";
  if (!std::filesystem::exists(object)) {
    static std::atomic<int> counter{0};
    const std::string base = fmt::format("{}/{}.{}.{}", cache, key, getpid(), counter++);
    std::map<std::string, std::string> dynamic;
    const std::string text = with_dynamic_shared(source, dynamic);
    std::ofstream(base + ".cpp") << "#include \"device.h\"\n#line 1 \"kernel\"\n" << text;
    std::string output;
    const std::string flags =
        fmt::format("-std=c++17 -fPIC -w -ffp-contract=off -fno-strict-aliasing {}", words.defines);
    if (run_command(
            fmt::format("{} -E -P -x c++ -I'{}' {} '{}.cpp' -o '{}.ii'", compiler, folder, flags, base, base),
            output) != 0)
      return refuse(output);
    std::string expanded = read_all(base + ".ii");
    const std::set<std::string> names = take_kernels(expanded);
    if (dynamic.size() > 1) return refuse("several arrays of shared memory without a size");
    for (const auto& [name, type] : dynamic)
      expanded += fmt::format(
          "\n__attribute__((section(\"emulated_lds\"), aligned(1024))) {2} {0}[{1} / sizeof({2})];\nextern "
          "\"C\" "
          "void* const gemmtune_dynamic_lds;\nvoid* const gemmtune_dynamic_lds = {0};\n",
          name, max_shared_bytes, type);
    for (const std::string& name : names)
      expanded += fmt::format(
          "\nextern \"C\" __attribute__((no_sanitize(\"thread\"))) void gemmtune_kernel_{0}(void** "
          "arguments) {{ gemmtune::emulation::call(&{0}, "
          "arguments); }}\n",
          name);
    std::string list;
    for (const std::string& name : names) list += name + " ";
    expanded += fmt::format(
        "\nextern \"C\" const char gemmtune_kernels[];\nconst char gemmtune_kernels[] = \"{}\";\n", list);
    std::ofstream(base + ".ii") << expanded;
    const int compiled = run_command(
        fmt::format("{0} -x c++ {1} {3} -c '{2}.ii' -o '{2}.o' && {0} -shared '{2}.o' -o '{2}.so'", compiler,
                    flags, base, optimization),
        output);
    for (const char* suffix : {".cpp", ".ii", ".o"}) std::filesystem::remove(base + suffix, ignored);
    if (compiled != 0) return refuse(output);
    std::filesystem::rename(base + ".so", object, ignored);
    if (log != nullptr) *log = output;
  }
  auto loaded = std::make_unique<Loaded>();
  loaded->library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded->library == nullptr) return refuse(dlerror());
  const auto symbol = [&](const std::string& name) { return dlsym(loaded->library, name.c_str()); };
  *static_cast<Calls*>(symbol("gemmtune_emulation_calls")) = calls;
  auto** lds = static_cast<void**>(symbol("gemmtune_emulation_lds"));
  loaded->image.lds = reinterpret_cast<std::uintptr_t>(lds[0]);
  loaded->image.lds_bytes = static_cast<std::size_t>(static_cast<char*>(lds[1]) - static_cast<char*>(lds[0]));
  loaded->image.static_bytes = loaded->image.lds_bytes;
  if (auto** dynamic = static_cast<char**>(symbol("gemmtune_dynamic_lds")); dynamic != nullptr) {
    loaded->image.dynamic_offset = static_cast<std::size_t>(*dynamic - static_cast<char*>(lds[0]));
    loaded->image.static_bytes -=
        std::min(loaded->image.static_bytes, max_shared_bytes + 1024);  // and its alignment
  }
  find_module(lds, loaded->image);
  loaded->image.wave_lanes = words.wave_lanes;
  loaded->image.max_block_bytes = words.max_block_bytes;
  loaded->image.banks = words.banks;
  loaded->image.indices = static_cast<const Indices**>(symbol("gemmtune_emulation_indices"));
  std::istringstream names(static_cast<const char*>(symbol("gemmtune_kernels")));
  for (std::string name; names >> name;)
    loaded->kernels[name] = reinterpret_cast<void (*)(void**)>(symbol("gemmtune_kernel_" + name));
  auto module = std::make_shared<Module>(std::move(loaded));
  const std::lock_guard locked(lock);
  modules[key] = module;
  return module;
}

bool Module::has(const std::string& kernel) const { return loaded_->kernels.count(kernel) > 0; }

std::string Module::launch(const std::string& kernel, const Launch& launch, Statistics* statistics) const {
  const auto found = loaded_->kernels.find(kernel);
  if (found == loaded_->kernels.end()) return "no kernel " + kernel;
  const std::lock_guard lock(loaded_->running);
  return Run(loaded_->image, found->second, launch, statistics).run();
}

}  // namespace gemmtune::emulation
