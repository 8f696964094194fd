// The token counts that an LLM server runs a model with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace gemmtune {

enum class Server : std::uint8_t { vllm, sglang };

/// "vllm", "sglang".
std::optional<Server> parse_server(std::string_view word);

/// Numbers are at least 1, `drafted` at least 0.
struct ServingSettings {
  Server server = Server::vllm;
  std::int64_t sequences = 256;        // --max-num-seqs; SGLang's --cuda-graph-max-bs
  std::int64_t batched_tokens = 8192;  // --max-num-batched-tokens; SGLang's --chunked-prefill-size
  std::int64_t drafted = 0;            // tokens of speculative decoding, in front of the one that is certain
};

struct ServingSizes {
  std::vector<std::int64_t> tokens;     // M of the layers, ascending: CUDA graphs, then prompts
  std::vector<std::int64_t> sequences;  // M of lm_head
};

/// The sizes of the server's CUDA graphs by its own rule, and beyond them powers of two up to `batched_tokens`, and that. lm_head
/// runs the graphs' sizes that decoding reaches.
///
/// Sources: vLLM 0.24 and 0.32, VllmConfig._set_cudagraph_sizes (graphs up to twice the sequences, at most 512) and
/// adjust_cudagraph_sizes_for_spec_decode; SGLang 0.5, ServerArgs._generate_cuda_graph_batch_sizes.
ServingSizes serving_sizes(const ServingSettings& settings);

}  // namespace gemmtune
