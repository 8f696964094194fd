// What families of fused_moe share on GPUs: the tokens sorted by expert on the device, the workspace between the stages,
// and the sum over each token's experts. All of it is enqueued on one stream: a layer can be captured into a graph.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/moe/moe_route_arguments.h"
#include "backends/gpu/runtime.h"
#include "problem/problem.h"

namespace gemmtune::gpu {

/// What the stages of a family keep in the workspace.
struct MoeBuffers {
  std::int64_t block_m = 16;            // positions of a tile
  std::int64_t hidden_bytes = 0;        // of a pair
  std::int64_t hidden_scale_bytes = 0;  // of a pair
  bool rounded_partials = false;        // y's type instead of float32, for each expert's result
  // With it the sort and the sum start before the kernel in front of them has ended, and wait for it before they read
  // or write (griddepcontrol); the stages must do so too. Null: plain launches.
  const LaunchExtension* dependent = nullptr;
};

/// Tokens that go through the layer together. Operands begin at the first of them; of a workspace buffer without content
/// the pointer is not null.
struct MoeRound {
  Operands operands;
  std::int64_t tokens = 0;
  std::int64_t pairs = 0;
  std::int64_t max_tiles = 0;
  int* pair_of = nullptr;
  int* position_of = nullptr;
  MoeTile* tiles = nullptr;
  int* tile_count = nullptr;  // of the round, on the device
  int* tiles_of = nullptr;
  int* chunk_counts = nullptr;
  void* hidden = nullptr;
  void* hidden_scales = nullptr;
  void* partials = nullptr;              // [pairs, model_dim] by position
  const float* given_weights = nullptr;  // the caller's; `operands` have one for every pair
  float* weights = nullptr;              // with shared experts: those of `operands`, which the sort writes
};

/// Immutable. A call goes through rounds of tokens, so that the workspace stays bounded: route(), the family's stages, which fill
/// the partial results, combine().
class MoeLayer {
 public:
  /// Compiles the kernels around the stages.
  static Result<MoeLayer> make(Runtime& runtime, const Problem& problem, const MoeBuffers& buffers);

  std::size_t workspace_bytes() const { return static_cast<std::size_t>(workspace_bytes_); }
  /// At most as many tiles are in a round.
  std::int64_t max_tiles() const { return max_tiles_; }
  /// Tokens of each round but the last.
  std::int64_t round_tokens() const { return tokens_; }
  MoeRound round(const Operands& operands, void* workspace, std::int64_t first_token) const;
  /// Enqueues the sort.
  Status route(const MoeRound& round, Stream stream) const;
  /// Enqueues the sum.
  Status combine(const MoeRound& round, Stream stream) const;

 private:
  MoeLayer() = default;

  Problem problem_;
  MoeBuffers buffers_;
  std::shared_ptr<Program> route_;  // null of many pairs
  std::shared_ptr<Program> count_;
  std::shared_ptr<Program> place_;
  std::shared_ptr<Program> combine_;
  std::int64_t tokens_ = 0;  // of a round
  std::int64_t max_tiles_ = 0;
  std::int64_t pair_of_at_ = 0;
  std::int64_t position_of_at_ = 0;
  std::int64_t tiles_at_ = 0;
  std::int64_t tiles_of_at_ = 0;
  std::int64_t tile_count_at_ = 0;
  std::int64_t chunk_counts_at_ = 0;
  std::int64_t hidden_at_ = 0;
  std::int64_t hidden_scales_at_ = 0;
  std::int64_t partials_at_ = 0;
  std::int64_t weights_at_ = 0;  // with shared experts
  std::int64_t workspace_bytes_ = 0;
};

/// What layers compile beside their stages: the sort of few pairs by one kernel, of many by two, and the sum.
std::array<Source, 4> moe_layer_sources(const Problem& problem, const MoeBuffers& buffers);
/// What all of them are made of, for the identity of a family.
std::string moe_layer_text();

/// Quantizations that a family takes: AITER's, or also the formats of weights alone (per_1x16, per_group).
enum class MoeQuantizations { aiters, all };

/// ok for a mixture with weights in a layout that the family takes (plain, or shuffled_too: aiter16x16 of both weights) and of
/// these quantizations, whose sizes the sort takes, and with an activation that its w1 serves.
Status accepts_mixture(const Problem& problem, Weights weights = Weights::plain,
                       MoeQuantizations quantizations = MoeQuantizations::aiters);

/// At most so many tiles have `pairs` pairs.
std::int64_t max_moe_tiles(std::int64_t pairs, std::int64_t experts, std::int64_t block_m);

/// Experts that have tokens, and tiles of block_m, where tokens choose experts at random.
struct ExpectedTiles {
  double experts = 0;
  double tiles = 0;
};
ExpectedTiles expected_moe_tiles(const Problem& problem, std::int64_t block_m);

/// How kernels name activations (ACTIVATION): 0 none, 1 silu, 2 gelu, 3 swiglu.
int activation_code(Activation activation);
/// Empty, or why blocks of so many threads cannot sort the pairs in `scratch_bytes` of shared memory.
std::string refuse_sort(const Problem& problem, std::int64_t threads, std::int64_t scratch_bytes);
/// Whether blocks of tiles at a fixed stride sort by default; of more pairs tiles that blocks take as they become free are faster (docs/lab/mxfp4_stream.md).
bool sorts_in_blocks(const Problem& problem);

}  // namespace gemmtune::gpu
