#include "base/descriptor.h"

#include <unistd.h>

namespace gemmtune {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) reset(other.take());
  return *this;
}

void Descriptor::reset(int value) {
  if (value_ >= 0) close(value_);
  value_ = value;
}

}  // namespace gemmtune
