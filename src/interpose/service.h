// Answers a call from tuned files, or says why the library has to.
#pragma once

#include <cstddef>

#include "interpose/call.h"

namespace gemmtune::interpose {

/// What a call has beside its operands.
struct CallPlace {
  void* stream = nullptr;
  void* workspace = nullptr;  // the caller's
  std::size_t workspace_bytes = 0;
  const cuda::api::LtAlgorithm* algorithm = nullptr;  // that the caller chose; null: the library's choice
};

/// served, replaced: the work is done or enqueued. All else: nothing was, the library has to.
Outcome serve(const Call& call, const CallPlace& place);

/// True of the outcomes that leave nothing to do.
inline bool is_done(Outcome outcome) { return outcome == Outcome::served || outcome == Outcome::replaced; }

}  // namespace gemmtune::interpose
