#include "backends/cpu/machine/processor_waits.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/folder.h"

namespace gemmtune::cpu {
namespace {

std::optional<std::uint64_t> nanoseconds_waited(int file) {
  char text[96];  // three numbers
  const ssize_t length = ::pread(file, text, sizeof(text) - 1, 0);
  if (length <= 0) return std::nullopt;  // the thread has ended
  text[length] = '\0';
  char* after_first = nullptr;
  std::strtoull(text, &after_first, 10);
  char* after_second = nullptr;
  const std::uint64_t waited = std::strtoull(after_first, &after_second, 10);
  if (after_second == after_first) return std::nullopt;
  return waited;
}

}  // namespace

void ProcessorWaits::begin() {
  close();
  for (const std::string& task : paths_in("/proc/self/task")) {
    const int file = ::open((task + "/schedstat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    const auto waited = nanoseconds_waited(file);
    if (waited) {
      threads_.push_back({file, *waited});
    } else {
      ::close(file);
    }
  }
}

double ProcessorWaits::since_last() {
  std::uint64_t sum = 0;
  for (Thread& thread : threads_) {
    const auto waited = nanoseconds_waited(thread.file);
    if (!waited) continue;
    sum += *waited - thread.nanoseconds;
    thread.nanoseconds = *waited;
  }
  return 1e-3 * static_cast<double>(sum);
}

void ProcessorWaits::close() {
  for (const Thread& thread : threads_) ::close(thread.file);
  threads_.clear();
}

}  // namespace gemmtune::cpu
