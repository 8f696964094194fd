// The host defines DEPENDENT: 1: a programmatic dependent launch, which starts before the kernel in front of it has ended.
#pragma once

static __device__ inline void wait_for_the_kernel_in_front() {
#if DEPENDENT
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
