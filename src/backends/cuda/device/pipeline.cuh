// A pipeline of stages that are used in turn, each with a full and an empty barrier.
#pragma once

#include "backends/cuda/device/mbarrier.cuh"

// The stage that is next, and the parity of the phase of its barrier that is waited for: consumers begin with {0, 0},
// of full barriers; producers with {0, 1}, of empty ones, for which a barrier that has no phase yet does not block.
struct PipelineState {
  int stage;
  unsigned phase;
};
static __device__ __forceinline__ void next_stage(int& stage, unsigned& phase, int num_stages) {
  if (++stage == num_stages) {
    stage = 0;
    phase ^= 1u;
  }
}
static __device__ __forceinline__ void next_stage(PipelineState& state, int num_stages) {
  next_stage(state.stage, state.phase, num_stages);
}

// `stages` further, at most num_stages.
static __device__ __forceinline__ void skip_stages(PipelineState& state, int stages, int num_stages) {
  state.stage += stages;
  if (state.stage >= num_stages) {
    state.stage -= num_stages;
    state.phase ^= 1u;
  }
}

// The barrier of a stage, of those from `first` on.
static __device__ __forceinline__ unsigned barrier_of(unsigned first, int stage) {
  return first + 8u * (unsigned)stage;
}
