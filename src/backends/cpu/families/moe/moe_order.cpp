#include <algorithm>

#include "backends/cpu/families/moe/moe.h"

namespace gemmtune::cpu {

std::int64_t max_blocks(std::int64_t pairs, std::int64_t experts, std::int64_t block_m) {
  return std::min(pairs, pairs / block_m + std::min(pairs, experts));
}

std::int64_t sort_tokens(const MoeShape& shape, const MixtureRoutes& routes, std::int64_t tokens,
                         std::int64_t block_m, const MoeOrder& order) {
  const std::int64_t pairs = tokens * shape.topk;
  std::fill_n(order.counts, std::int64_t{shape.experts} + 1, 0);
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    if (const std::int32_t expert = routes.expert(pair); expert != empty_slot) ++order.counts[expert + 1];
  }
  std::int64_t blocks = 0;
  for (std::int32_t expert = 0; expert < shape.experts; ++expert) {
    const std::int32_t count = order.counts[expert + 1];
    const std::int32_t first = order.counts[expert];
    for (std::int64_t at = 0; at < count; at += block_m)
      order.blocks[blocks++] = {expert, static_cast<std::int32_t>(first + at),
                                static_cast<std::int32_t>(std::min(block_m, count - at))};
    order.counts[expert + 1] = first + count;
  }
  // counts[e] is where expert e's next pair goes, the last one where that of the next empty slot does.
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const std::int32_t expert = routes.expert(pair);
    if (expert == empty_slot) {
      order.position_of[pair] = -1 - order.counts[shape.experts]++;
      continue;
    }
    const std::int32_t position = order.counts[expert]++;
    order.pair_of[position] = static_cast<std::int32_t>(pair);
    order.token_of[position] = static_cast<std::int32_t>(pair / shape.topk);
    order.position_of[pair] = position;
  }
  return blocks;
}

}  // namespace gemmtune::cpu
