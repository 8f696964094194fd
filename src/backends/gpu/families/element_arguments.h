// GEMMTUNE_ELEMENT and GEMMTUNE_OUTPUT: what pointers to elements of x and w, and of y and bias, point to.
// The device has a type for them, which a problem's defines choose (numbers.cuh); the host has void.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#ifndef element  // of random_fill.cu the host defines it
#include "backends/gpu/device/numbers.cuh"
#endif
#define GEMMTUNE_ELEMENT element
#define GEMMTUNE_OUTPUT output
#else
#define GEMMTUNE_ELEMENT void
#define GEMMTUNE_OUTPUT void
#endif
