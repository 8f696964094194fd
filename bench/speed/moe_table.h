// Mixtures of experts against separate calls of the library, expert by expert.
#pragma once

#include "speed/table.h"

namespace gemmtune::speed {

/// bf16, 128 experts, topk 8, model_dim 2048, inter_dim 768, gated; 1, 16, 128 tokens. The read is of the
/// weights of the experts that have tokens.
Status run_mixtures(Device& device, const Plan& plan, const OnRow& on_row);

}  // namespace gemmtune::speed
