// Workspaces of kernels whose call brings none that is large enough.
#pragma once

#include <cstddef>

namespace gemmtune::interpose {

/// At least `bytes` in this context for kernels of this stream, which run one after another; of the thread too where
/// there is no driver. A stream that is being captured gets one of its own, because the graph may run beside
/// the stream. Kept until the process ends: a graph may use it. Null: there is no memory, or the driver cannot
/// say whether the stream is captured.
void* workspace_of(const void* context, void* stream, std::size_t bytes);

}  // namespace gemmtune::interpose
