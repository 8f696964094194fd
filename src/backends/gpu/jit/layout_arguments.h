// GEMMTUNE_OFFSET(type, field): the offset of a field, with which headers of kernel arguments assert that the
// host's compiler and the device's lay them out alike.
#pragma once

#if defined(__CUDACC_RTC__) && !defined(__clang__)
#define GEMMTUNE_OFFSET(type, field) __INTADDR__(&(((type*)0)->field))  // NVRTC has no __builtin_offsetof
#else
#define GEMMTUNE_OFFSET(type, field) __builtin_offsetof(type, field)
#endif
