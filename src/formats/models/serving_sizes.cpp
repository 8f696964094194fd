#include "formats/models/serving_sizes.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <set>

namespace gemmtune {
namespace {

struct Steps {
  std::int64_t first;
  std::int64_t last;
  std::int64_t step;
};

std::set<std::int64_t> sizes_of(std::initializer_list<Steps> list, std::int64_t largest) {
  std::set<std::int64_t> sizes;
  for (const Steps& steps : list) {
    for (std::int64_t size = steps.first; size <= std::min(steps.last, largest); size += steps.step)
      sizes.insert(size);
  }
  return sizes;
}

std::set<std::int64_t> graph_sizes(const ServingSettings& settings) {
  const std::int64_t tokens = 1 + settings.drafted;  // of a sequence in a step of decoding
  if (settings.server == Server::sglang) {
    const std::int64_t most = settings.sequences;
    const auto batches =
        settings.drafted == 0
            ? sizes_of({{1, 2, 1}, {4, 12, 4}, {16, 256, 8}, {272, 511, 16}, {512, most, 32}}, most)
            : sizes_of({{1, 8, 1}, {10, 32, 2}, {40, 64, 4}, {72, 256, 8}, {272, most, 16}}, most);
    std::set<std::int64_t> sizes;
    for (const std::int64_t batch : batches) sizes.insert(batch * tokens);
    return sizes;
  }
  constexpr std::int64_t max_graph = 512;
  const std::int64_t largest =
      std::min({settings.sequences * tokens * 2, max_graph, settings.batched_tokens});
  std::set<std::int64_t> sizes;
  for (const std::int64_t size : sizes_of({{1, 2, 1}, {4, 4, 1}, {8, 255, 8}, {256, max_graph, 16}}, largest))
    sizes.insert((size + tokens - 1) / tokens * tokens);
  return sizes;
}

}  // namespace

std::optional<Server> parse_server(std::string_view word) {
  if (word == "vllm") return Server::vllm;
  if (word == "sglang") return Server::sglang;
  return std::nullopt;
}

ServingSizes serving_sizes(const ServingSettings& settings) {
  std::set<std::int64_t> sizes = graph_sizes(settings);
  const std::int64_t decoding = settings.sequences * (1 + settings.drafted);
  ServingSizes found;
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(found.sequences),
               [&](std::int64_t size) { return size <= decoding; });
  const std::int64_t max_graph = sizes.empty() ? 0 : *sizes.rbegin();
  for (std::int64_t size = 1; size < settings.batched_tokens; size *= 2) {
    if (size > max_graph) sizes.insert(size);
  }
  if (settings.batched_tokens > max_graph) sizes.insert(settings.batched_tokens);
  found.tokens.assign(sizes.begin(), sizes.end());
  if (found.sequences.empty()) found.sequences.push_back(1);
  return found;
}

}  // namespace gemmtune
