// Programmatic dependent launches: a kernel starts before the one in front of it has ended.
#pragma once

// Allows the next kernel of the stream to start if it is a programmatic dependent launch.
static __device__ inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Returns when the previous kernel has ended and its writes are visible; immediately if this is no dependent launch.
static __device__ inline void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
