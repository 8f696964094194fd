// The types of a kernel's operands, from what the host defines: ELEMENT, OUTPUT, SCALES, E8M0, W_ELEMENT, W_SCALES, W_GROUP,
// ZERO_POINTS, BATCHED (OperandTypes); what it does not define is 0, or as of x.
#pragma once

#include "backends/gpu/device/types_arguments.h"

#ifndef ELEMENT
#define ELEMENT 0
#endif
#ifndef OUTPUT
#define OUTPUT 0
#endif
#ifndef SCALES
#define SCALES 0
#endif
#ifndef E8M0
#define E8M0 0
#endif
#ifndef W_ELEMENT
#define W_ELEMENT ELEMENT
#endif
#ifndef W_SCALES
#define W_SCALES SCALES
#endif
#ifndef W_GROUP
#define W_GROUP 0
#endif
#ifndef ZERO_POINTS
#define ZERO_POINTS 0
#endif
#ifndef BATCHED
#define BATCHED 0
#endif

using gemmtune::gpu::Element;
using gemmtune::gpu::Scales;

// A function, because NVRTC gives each constexpr object a place in the memory of every module; so constants are
// enumerators.
static __device__ constexpr gemmtune::gpu::OperandTypes types() {
  return {Element(ELEMENT), Element(OUTPUT), Scales(SCALES),   E8M0 != 0,   Element(W_ELEMENT),
          Scales(W_SCALES), W_GROUP,         ZERO_POINTS != 0, BATCHED != 0};
}
