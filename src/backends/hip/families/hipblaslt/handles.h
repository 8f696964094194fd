// The library's handles. What one uses on the device belongs to one stream at a time: kernels that divide k meet in
// memory of the handle. So each stream has its own.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "backends/hip/hip_driver.h"

namespace gemmtune::hip {

/// Safe from any thread. The driver must outlive it.
class LtHandles {
 public:
  /// nullptr where the library gives no handle.
  static std::unique_ptr<LtHandles> open(const HipDriver& driver, const api::HipblasLt& lt);
  ~LtHandles();
  LtHandles(const LtHandles&) = delete;
  LtHandles& operator=(const LtHandles&) = delete;

  /// For questions, and for the driver's own stream.
  api::LtHandle first() const { return first_; }
  /// That of a stream, made in its first call. A handle cannot be made while the stream captures: the first one is used then, so
  /// that graphs captured on streams which ran nothing before must not run side by side.
  Result<api::LtHandle> of(api::HipStream stream) const;

 private:
  LtHandles(const HipDriver& driver, const api::HipblasLt& lt, api::LtHandle first);

  const HipDriver& driver_;
  const api::HipblasLt& lt_;
  api::LtHandle first_;
  mutable std::mutex lock_;
  mutable std::map<api::HipStream, api::LtHandle> handles_;  // guarded by lock_
};

}  // namespace gemmtune::hip
