// GEMMTUNE_OFFSET(type, field): the offset of a field, with which headers of kernel arguments assert that the
// host's compiler and the device's lay them out alike. Its text is the first of every kernel source
// (source_text).
//
// GEMMTUNE_ELEMENT and GEMMTUNE_OUTPUT: what pointers to elements of x and w, and of y and bias, point to.
// The device has a type for them, which a problem's defines choose; the host has void.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define GEMMTUNE_ELEMENT element
#define GEMMTUNE_OUTPUT output
#else
#define GEMMTUNE_ELEMENT void
#define GEMMTUNE_OUTPUT void
#endif

#ifdef __CUDACC_RTC__
#define GEMMTUNE_OFFSET(type, field) __INTADDR__(&(((type*)0)->field))  // NVRTC has no __builtin_offsetof
#else
#define GEMMTUNE_OFFSET(type, field) __builtin_offsetof(type, field)
#endif
