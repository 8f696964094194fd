#include "evaluate/worker/message_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/child_process.h"

namespace gemmtune {
namespace {

constexpr std::size_t header_bytes = 4;
constexpr std::size_t max_message_bytes = std::size_t{64} << 20;

std::string header_of(std::size_t length) {
  std::string header;
  for (std::size_t i = 0; i < header_bytes; ++i) header += static_cast<char>((length >> (8 * i)) & 0xff);
  return header;
}

std::size_t length_in(std::string_view header) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < header_bytes; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(header[i])) << (8 * i);
  return length;
}

}  // namespace

MessageChannel::~MessageChannel() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status MessageChannel::send(std::string_view text) {
  if (text.size() > max_message_bytes)
    return Status::internal("a message of {} bytes, at most {} are allowed", text.size(), max_message_bytes);
  const std::string message = header_of(text.size()) + std::string(text);
  std::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t sent = ::send(descriptor_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EINTR) {
      return Status::io("the other side of the channel is gone: {}", std::strerror(errno));
    }
  }
  return {};
}

bool MessageChannel::read_some() { return receive_some(descriptor_, read_); }

Result<std::optional<std::string>> MessageChannel::next() {
  if (read_.size() < header_bytes) return std::optional<std::string>();
  const std::size_t length = length_in(read_);
  if (length > max_message_bytes) return Status::io("a message of {} bytes was announced", length);
  if (read_.size() < header_bytes + length) return std::optional<std::string>();
  std::string message = read_.substr(header_bytes, length);
  read_.erase(0, header_bytes + length);
  return std::optional<std::string>(std::move(message));
}

std::optional<std::string> MessageChannel::receive() {
  for (bool connected = true;;) {
    auto message = next();
    if (!message.ok()) return std::nullopt;
    if (message->has_value() || !connected) return std::move(*message);
    pollfd waiting{descriptor_, POLLIN, 0};
    if (poll(&waiting, 1, -1) < 0 && errno != EINTR) return std::nullopt;
    connected = read_some();
  }
}

}  // namespace gemmtune
