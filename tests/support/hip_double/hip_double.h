// Doubles of AMD's libraries under their own names: libamdhip64, libhiprtc, libhipblaslt and libamd_smi. Device memory
// is the host's, code objects hold their source, kernels run on the emulation (support/emulation), and times are of a
// clock that each launch sets forward. README.md says what environment variables make them do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gemmtune::hip_double {

/// Of a call: hipSuccess, or what HIP_DOUBLE_FAIL says. Counts and records the call. Never returns from one that is to
/// hang, and ends the process in one that is to abort.
int enter(const char* call);
/// The number of an environment variable, or `absent`.
long number(const char* variable, long absent);
std::string text(const char* variable, const char* absent);

/// What a stream does or a graph holds: it sets the clock forward, or records an event.
struct Work {
  double microseconds = 0;
  struct EventState* event = nullptr;
};
struct EventState {
  double microseconds = -1;  // of the clock; −1: never recorded
};
struct GraphState {
  std::vector<std::shared_ptr<Work>> work;
};
struct StreamState {
  std::unique_ptr<GraphState> captured;  // while it captures
};

/// Work on a stream: done now, or kept for the graph that the stream captures. True if it was done now.
bool enqueue(void* stream, const Work& work);
bool is_capturing(void* stream);
/// Microseconds of the clock.
double now();

/// Device memory that holds all of these bytes.
bool is_device_memory(const void* begin, std::size_t bytes);

/// How a code object holds what it was compiled from: an ELF file with AMD's metadata and two sections more.
std::string make_code_object(const std::string& source, const std::vector<std::string>& options);
struct CodeObject {
  std::string source;
  std::vector<std::string> options;
};
/// False where `image` is none of make_code_object().
bool read_code_object(const void* image, CodeObject& object);

}  // namespace gemmtune::hip_double
