// The tflops and bw columns as each of AITER's tuners computes them. Never inputs: shipped files hold wrong
// ones.
#pragma once

#include "formats/aiter/schema.h"
#include "problem/problem.h"

namespace gemmtune {

/// TFLOP/s: 2·M·N·K·B / (us · 10⁶), of fused_moe (w1 and w2 of every token and expert) / (us · 10⁶); rounded
/// to 2 decimals, half to even on the binary value; 0 where the time is not valid.
double tflops_column(const Problem& problem, double us);

/// GB/s (10⁹): (M·K·a + N·K·b + M·N·c)·B / us with the bytes (a, b, c) that AITER's tuner of the operation
/// takes, whatever the types: bf16 and batched bf16 (2, 2, 2), a8w8 (1, 1, 2), a4w4 (½, ½, 2); of fused_moe
/// T·model_dim·a + experts·(w1 and w2)·b + T·model_dim·c with one byte for every type of 8 bits or less but
/// int4 (½). Scales and bias are not counted. Rounded as tflops.
double bandwidth_column(const Problem& problem, double us);

/// Whether a stored cell is what a tuner of AITER may have computed from the row's own time, up to the
/// rounding of both: for a16w16 also the bytes of the types, for batched a8w8 also the older (2, 2, 2).
/// Requires a valid time.
bool agrees_with_tflops(const Problem& problem, double us, double stored);
bool agrees_with_bandwidth(const Problem& problem, double us, double stored);

}  // namespace gemmtune
