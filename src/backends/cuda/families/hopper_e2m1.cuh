// e2m1 to bf16, exactly: three bits of a magnitude in place of the lowest two of the exponent and the highest of the mantissa are the element times 2^-126.
// Follows hopper.cuh.
#define MAGNITUDES 0x01c001c0u
#define SIGNS 0x80008000u

// The factor 2^(e - 1) makes it the element times its scale 2^(e - 127). Above e = 128 the factor is 2^127, and what is missing is large_factor().
static __device__ __forceinline__ unsigned scale_factor(unsigned e) { return e * 0x00800080u + 0x3f003f00u; }
static __device__ __forceinline__ unsigned large_factor(unsigned e) { return e == 255u ? 0x7fc07fc0u : ((e > 128u ? e : 128u) - 1u) * 0x00800080u; }
static __device__ __forceinline__ unsigned multiply(unsigned a, unsigned b) {
  unsigned product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Of a word of a plain weight: to[j] are its elements j and j + 4, times 2^-126. A multiplication by two powers of two makes two copies of four bits: the sign of one
// and the magnitude of the other are in their places. It is of another unit than shifts and masks.
static __device__ __forceinline__ void spread_word(unsigned (&to)[4], unsigned word) {
  const unsigned right = word >> 6;
  to[0] = ((word & 0x000f000fu) * 0x1040u) & (SIGNS | MAGNITUDES);
  to[1] = ((word & 0x00f000f0u) * 0x0104u) & (SIGNS | MAGNITUDES);
  to[2] = ((right & 0x003c003cu) * 0x0410u) & (SIGNS | MAGNITUDES);
  to[3] = (word & SIGNS) | (right & MAGNITUDES);
}
