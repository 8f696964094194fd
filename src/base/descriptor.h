// A file descriptor with an owner.
#pragma once

#include <utility>

namespace gemmtune {

/// A file descriptor that is closed unless it was taken; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.take()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(-1); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return value_; }
  bool ok() const { return value_ >= 0; }
  int take() { return std::exchange(value_, -1); }
  void reset(int value);

 private:
  int value_;
};

}  // namespace gemmtune
