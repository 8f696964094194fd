// The formats of 4-bit weights that kernels are compiled for. The host includes this file too.
#pragma once

namespace gemmtune::cuda {

/// mxfp4: e2m1 with a scale of e8m0 for 32 elements. nvfp4: e2m1 with one of e4m3 for 16, and one float32 for all. int4: two's complement with one of
/// y's type, and perhaps a zero point, for a group of elements or for a row.
enum class WeightFormat { mxfp4, nvfp4, int4 };

}  // namespace gemmtune::cuda
