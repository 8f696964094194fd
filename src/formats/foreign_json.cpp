#include "formats/foreign_json.h"

#include "base/text.h"

namespace gemmtune {

std::string_view foreign_json(std::string_view content) {
  constexpr std::size_t looked_at = 8192;
  const std::string_view begin = content.substr(0, looked_at);
  const auto has = [&](std::string_view word) { return begin.find(word) != std::string_view::npos; };
  if (has("\"tune_params_keys\"") && has("\"kernel_name\"")) {
    const bool closed = trim(content).ends_with("}}") || trim(content).ends_with("}\n}");
    return closed ? "a cache of Kernel Tuner"
                  : "a cache of Kernel Tuner that was not closed: its run did not end";
  }
  if (has("nvMatmulHeuristics") || has("nvmatmul_heuristics") ||
      (trim(begin).starts_with('[') && has("\"layout\"") && (has("\"dtype_a\"") || has("\"cta_tile_m\""))))
    return "a list of nvMatmulHeuristics";
  if (has("\"traceEvents\"") || (has("\"schemaVersion\"") && has("\"deviceProperties\"")))
    return "a trace of PyTorch's profiler; gemmtune shapes --from-log reads its GEMMs";
  return {};
}

}  // namespace gemmtune
