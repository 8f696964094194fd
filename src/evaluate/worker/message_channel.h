// Messages over a connected socket: a length of four bytes (little end first), then the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gemmtune {

/// Owns the descriptor. One thread at a time.
class MessageChannel {
 public:
  explicit MessageChannel(int descriptor) : descriptor_(descriptor) {}
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  int descriptor() const { return descriptor_; }
  /// Waits until the whole message is with the operating system. An error: the other side is gone.
  Status send(std::string_view text);
  /// Reads what is there without waiting; true while the other side is connected.
  bool read_some();
  /// The next whole message of what was read. An error: what came is no message.
  Result<std::optional<std::string>> next();
  /// Waits for a message; nullopt where the other side is gone or what came is no message.
  std::optional<std::string> receive();

 private:
  int descriptor_ = -1;
  std::string read_;  // not yet taken
};

}  // namespace gemmtune
