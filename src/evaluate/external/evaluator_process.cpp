#include "evaluate/external/evaluator_process.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wordexp.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "evaluate/external/evaluator_reply.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace gemmtune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_reply_bytes = std::size_t{64} << 20;
constexpr std::size_t quoted_bytes = 200;  // of a line that is no reply
constexpr int tick_milliseconds = 200;     // between looks whether the process is there
constexpr double patience_seconds = 2;

/// The words of a command; freed by the destructor.
class Words {
 public:
  explicit Words(const std::string& command) : error_(wordexp(command.c_str(), &words_, WRDE_NOCMD)) {}
  ~Words() {
    if (error_ == 0) wordfree(&words_);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  Status status() const {
    switch (error_) {
      case 0:
        return words_.we_wordc > 0 ? Status() : Status::invalid("expected a command");
      case WRDE_BADCHAR:
        return Status::invalid("an operator of a shell (| & ; < > ( ) {{ }}) outside quotes, expected words");
      case WRDE_CMDSUB:
        return Status::invalid("a command substitution, expected words");
      case WRDE_SYNTAX:
        return Status::invalid("a quote is not closed");
      default:
        return Status::out_of_memory("no memory for its words");
    }
  }
  char* const* get() const { return words_.we_wordv; }

 private:
  wordexp_t words_{};
  int error_;
};

}  // namespace

Result<SharedMemory> SharedMemory::make() {
  Descriptor descriptor(memfd_create("gemmtune evaluator", MFD_CLOEXEC));
  if (descriptor.get() < 0) return Status::io("no shared memory for an evaluator: {}", std::strerror(errno));
  return SharedMemory(std::move(descriptor));
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      begin_(std::exchange(other.begin_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory::~SharedMemory() {
  if (begin_ != nullptr) munmap(begin_, bytes_);
}

std::byte* SharedMemory::at_least(std::size_t bytes) {
  if (bytes <= bytes_) return begin_;
  if (ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (begin_ != nullptr) munmap(begin_, bytes_);
  begin_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  return begin_;
}

Result<std::unique_ptr<EvaluatorProcess>> EvaluatorProcess::start(const std::string& command) {
  const Words words(command);
  if (const Status status = words.status(); !status.ok())
    return Status(status.code(), fmt::format("evaluator '{}': {}", command, status.message()));
  GEMMTUNE_TRY(auto memory, SharedMemory::make());
  GEMMTUNE_TRY(auto channel, make_socket());
  GEMMTUNE_TRY(auto errors, make_pipe());
  const Descriptor high_channel = lifted_copy(channel.theirs.get());
  const Descriptor high_errors = lifted_copy(errors.theirs.get());
  const Descriptor high_memory = lifted_copy(memory.descriptor().get());
  const std::array descriptors{high_channel.get(), high_channel.get(), high_errors.get(), high_memory.get()};
  const pid_t pid = start_program(words.get(), descriptors);
  if (pid < 0)
    return Status::not_found("evaluator '{}': {}: {}", command, words.get()[0], std::strerror(errno));
  return std::unique_ptr<EvaluatorProcess>(
      new EvaluatorProcess(command, std::move(memory), pid, std::move(channel.ours), std::move(errors.ours)));
}

EvaluatorProcess::~EvaluatorProcess() {
  shutdown(channel_.get(), SHUT_WR);
  process_.wait(patience_seconds);
}

Status EvaluatorProcess::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

Result<Json> EvaluatorProcess::ask(Json request, double seconds) {
  const std::lock_guard lock(mutex_);
  if (!fault_.ok()) return fault_;
  const std::size_t id = ++requests_;
  request["id"] = id;
  auto line = exchange(json_line(request) + "\n", seconds);
  if (line.code() == StatusCode::not_found) {
    fault_ = Status::io("evaluator '{}': no reply to \"{}\" within {:.3g} s", command_,
                        request["do"].get<std::string>(), seconds);
    return fault_;
  }
  if (!line.ok()) {
    fault_ = line.status();
    return fault_;
  }
  Json reply = parse_json(*line);
  if (!is_reply(reply, id)) {
    fault_ = Status::io(
        "evaluator '{}': its reply to \"{}\" is '{}', expected a JSON object with \"id\": {} on one "
        "line (print to stderr instead of stdout)",
        command_, request["do"].get<std::string>(), line->substr(0, quoted_bytes), id);
    return fault_;
  }
  GEMMTUNE_RETURN_IF_ERROR(error_of_reply(reply));
  return reply;
}

// `not_found` after the time without a reply. Reads while it writes: a process that waits until its output is read does not read its input.
Result<std::string> EvaluatorProcess::exchange(const std::string& line, double seconds) {
  const auto begin = Clock::now();
  std::string_view rest = line;
  std::string reply;
  while (!take_line(reply)) {
    std::array<pollfd, 2> waiting{
        {{channel_.get(), static_cast<short>(rest.empty() ? POLLIN : POLLIN | POLLOUT), 0},
         {errors_.get(), POLLIN, 0}}};
    poll(waiting.data(), waiting.size(), tick_milliseconds);
    if ((waiting[0].revents & POLLOUT) != 0) {
      const ssize_t sent = send(channel_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) rest.remove_prefix(static_cast<std::size_t>(sent));
    }
    last_errors_.read_from(errors_.get());
    // Children of the evaluator may hold its output open.
    const bool gone = process_.has_ended();
    if (!receive_some(channel_.get(), read_) || gone) {
      if (take_line(reply)) return reply;
      return ended();
    }
    if (read_.size() > max_reply_bytes)
      return Status::io("evaluator '{}': a reply of more than {} bytes", command_, max_reply_bytes);
    if (std::chrono::duration<double>(Clock::now() - begin).count() > seconds)
      return Status::not_found("no reply");
  }
  return reply;
}

bool EvaluatorProcess::take_line(std::string& line) {
  const std::size_t end = read_.find('\n');
  if (end == std::string::npos) return false;
  line = read_.substr(0, end);
  read_.erase(0, end + 1);
  return true;
}

Status EvaluatorProcess::ended() {
  // It closed its output: the end follows at once, or it is made.
  const int wait_status = process_.wait(patience_seconds);
  last_errors_.read_from(errors_.get());
  return Status::io("evaluator '{}' ended: {}", command_,
                    ending_text(process_ending(wait_status, last_errors_)));
}

}  // namespace gemmtune
