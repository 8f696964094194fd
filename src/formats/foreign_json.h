// JSON files of other programs that hold no Triton config: named, so that nobody takes them for one.
#pragma once

#include <string_view>

namespace gemmtune {

/// What the text is, by its first keys: a cache of Kernel Tuner (whole, or not closed), a list of problems of
/// nvMatmulHeuristics, a trace of PyTorch's profiler, parquet; empty: none of these.
std::string_view foreign_json(std::string_view content);

}  // namespace gemmtune
