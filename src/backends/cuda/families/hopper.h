// What the Hopper families share on the host: device code, alignment of operands, parameters.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/hopper_arguments.h"

namespace gemmtune::cuda {

/// Whether the device and its driver have what these kernels need.
inline bool is_hopper(const CudaDriver& driver) {
  return driver.compute_capability() == 90 && driver.functions().tensor_map != nullptr;
}
/// The limits of the runtime's device, with the counts of clusters that the driver knows.
inline HopperLimits hopper_limits(const gpu::Runtime& runtime, const CudaDriver& driver) {
  return {runtime.limits(), driver.clusters()};
}

/// The family whose default kernel an untuned product of few rows and plain 16-bit weights runs in place of cublasLt: "wgmma" or
/// "skinny" where bench/results/h100/few_rows.csv has it ahead at each (N, K) of that kind; empty elsewhere.
std::string_view leads_few_rows(const Problem& problem, std::string_view architecture);

/// Numbers of a launch as kernels and cost models take them.
inline int as_int(std::int64_t value) { return static_cast<int>(value); }
inline double as_real(std::int64_t value) { return static_cast<double>(value); }

/// `unsupported` for column-major operands whose elements are not of two bytes.
Status accepts_transposing(const Problem& problem);
/// `unsupported` if rows (columns of a column-major operand) or pointers are not aligned to 16 bytes, as TMA
/// requires.
Status accepts_alignment(const Problem& problem);
/// `unsupported` if pointers are not aligned to 16 bytes.
Status accepts_addresses(const Problem& problem);
/// The same of pointers, and of rows of both weights of a mixture.
Status accepts_weight_rows(const Problem& problem);
/// accepts_alignment() of a call's operands: `x` with rows of `x_row_bytes`, weights and scales.
Status check_alignment(const void* x, std::int64_t x_row_bytes, std::initializer_list<const void*> others);

PackedWeight packed_weight(const Problem& problem, const void* data);

/// Words in memory of a barrier of all blocks of a cooperative launch (grid_barrier.cuh).
inline std::int64_t grid_barrier_words(std::int64_t blocks) { return 32 + 2 * ((blocks + 31) / 32 * 32); }

/// Bytes of k in a row of a 128-byte swizzle atom. BLOCK_K is a multiple of it.
inline constexpr std::int64_t atom_bytes = 128;
inline constexpr std::int64_t max_cluster = 8;        // thread blocks; the portable maximum
inline constexpr std::int64_t shared_reserve = 2048;  // bytes: alignment of the pipeline, and barriers

/// `bk`: elements of k in a stage, one value for each number of swizzle atoms; the first is the default.
Parameter block_k_parameter(DataType element, std::initializer_list<std::int64_t> atoms);
/// Swizzle atoms along k in a stage, at least 1, and the value of `bk` that means so many.
std::int64_t k_atoms_of(const Config& config, DataType element);
std::int64_t block_k_of(DataType element, std::int64_t atoms);
/// Empty, or why `bk` cannot be built.
std::string refuse_block_k(const Config& config, DataType element);

/// `csk`: blocks of a cluster that divide k, 1 to max_cluster.
Parameter cluster_split_parameter();
/// `smem`: KiB of shared memory that the stages of a pipeline fill: one of `values`, or any from `least` to 227.
Parameter pipeline_parameter(std::vector<std::string> values, std::string absent, std::int64_t least);
/// `pdl`: is_dependent().
Parameter dependent_parameter();

/// Whether Hopper's tensor core keeps fewer than float32's bits of a sum of such products: of fp8 about 13 below
/// the largest addend of an instruction.
bool accumulates_fewer_bits(DataType element);
/// `prom`: sets of partial sums of 128 elements of k that are added to float32 registers, 0 or one of
/// the given ones; 0, the value of names without the key: the tensor core accumulates over all of k. No choice for
/// types that it accumulates in float32.
Parameter promotion_parameter(DataType element, std::initializer_list<std::int64_t> sets);
/// KernelFamily::accuracy() of families with that parameter.
Accuracy hopper_accuracy(const Problem& problem, const Config& config);

/// Where the splits of split-K end, in swizzle atoms, "16, 32, 48, 64": `k_tiles` stages of `k_atoms` atoms each are divided, the first splits
/// having a stage more than the others. `atoms`: how many hold elements of k; a split without any is left out.
std::string ends_of_splits(std::int64_t atoms, std::int64_t k_tiles, std::int64_t k_atoms,
                           std::int64_t split_k);
/// KernelFamily::sum_order() of kernels that pass such stages to wgmma in the order of k, an instruction for each 32 bytes, and add partial sums
/// in the order of the splits. An instruction's width, and which operand it has first, change no sum; neither do tiles, clusters, schedules
/// and the number of stages.
std::string hopper_sum_order(const Problem& problem, std::int64_t k_tiles, std::int64_t k_atoms,
                             std::int64_t split_k, std::int64_t promotion);

}  // namespace gemmtune::cuda
