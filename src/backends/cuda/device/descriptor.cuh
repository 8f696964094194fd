// How wgmma finds its operands in shared memory: 128-byte swizzle atoms and their descriptors.
#pragma once

#include "backends/gpu/device/numbers.cuh"

// Operands lie in shared memory in 128-byte swizzle atoms. K-major: rows of 128 bytes of k. MN-major, of column-major
// operands of two bytes: rows of 64 elements along M or N, one for each k.
#define ATOM_BYTES 128
#define ATOM_ELEMENTS (ATOM_BYTES / (int)sizeof(element))

// The fields of a descriptor of an operand in shared memory, as PTX names them; lengths in units of 16 bytes.
struct Descriptor {
  unsigned start_address;        // bits 0 to 13
  unsigned leading_byte_offset;  // 16 to 29
  unsigned stride_byte_offset;   // 32 to 45
};
enum SwizzleMode { swizzle_128_bytes = 1 };  // bits 62 and 63
static __device__ constexpr unsigned long long encode(const Descriptor& fields) {
  return (unsigned long long)fields.start_address | (unsigned long long)fields.leading_byte_offset << 16 |
         (unsigned long long)fields.stride_byte_offset << 32 | (unsigned long long)swizzle_128_bytes << 62;
}
static __device__ inline unsigned encoded_address(unsigned address) { return (address & 0x3ffffu) >> 4; }

// Of a K-major operand: a stride of 1024 bytes between groups of 8 rows. The leading dimension is not used, as long as
// there is one atom along k.
static __device__ inline unsigned long long matrix_descriptor(unsigned address) {
  return encode({encoded_address(address), 1, 1024 / 16});
}
// Its lower half, and its upper half, which is the same of all addresses.
static __device__ __forceinline__ unsigned descriptor_word(unsigned address) {
  return (unsigned)matrix_descriptor(address);
}
#define DESCRIPTOR_UPPER_WORD ((unsigned)(encode({0, 1, 1024 / 16}) >> 32))

// Of an MN-major operand: groups of 64 elements along M or N, of 64 k each (8192 bytes from group to group, the leading
// dimension); 1024 bytes between groups of 8 k. An instruction reads 16 k: 2048 bytes to the next one.
#define MN_GROUP 64
#define MN_GROUP_BYTES (ATOM_ELEMENTS * ATOM_BYTES)
static __device__ inline unsigned long long mn_major_descriptor(unsigned address) {
  return encode({encoded_address(address), MN_GROUP_BYTES / 16, 1024 / 16});
}
