#include "backends/hip/families/hipblaslt/handles.h"

namespace gemmtune::hip {

std::unique_ptr<LtHandles> LtHandles::open(const HipDriver& driver, const api::HipblasLt& lt) {
  driver.enter();
  api::LtHandle first = nullptr;
  if (lt.create(&first) != 0) return nullptr;
  return std::unique_ptr<LtHandles>(new LtHandles(driver, lt, first));
}

LtHandles::LtHandles(const HipDriver& driver, const api::HipblasLt& lt, api::LtHandle first)
    : driver_(driver), lt_(lt), first_(first), handles_{{driver.stream_of({}), first}} {}

LtHandles::~LtHandles() {
  driver_.enter();
  for (const auto& [stream, handle] : handles_) lt_.destroy(handle);
}

Result<api::LtHandle> LtHandles::of(api::HipStream stream) const {
  const std::lock_guard lock(lock_);
  if (const auto found = handles_.find(stream); found != handles_.end()) return found->second;
  if (driver_.captures(stream)) return first_;
  api::LtHandle handle = nullptr;
  if (const int status = lt_.create(&handle); status != 0)
    return Status::internal("hipblaslt: no handle for another stream: status {}", status);
  handles_[stream] = handle;
  return handle;
}

}  // namespace gemmtune::hip
