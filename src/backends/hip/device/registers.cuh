// Where the compiler keeps addresses of column-major operands, which have more lines than there are registers.
#pragma once

// Keeps a value of the whole wave in scalar registers, where the compiler would add it to addresses of lanes.
static __device__ inline long long in_scalar_registers(long long value) {
#ifndef GEMMTUNE_EMULATION
  asm volatile("" : "+s"(value));
#endif
  return value;
}

// Keeps what depends on a lane's value from being computed before the loop and held in registers.
static __device__ inline int computed_here(int value) {
#ifndef GEMMTUNE_EMULATION
  asm volatile("" : "+v"(value));
#endif
  return value;
}
