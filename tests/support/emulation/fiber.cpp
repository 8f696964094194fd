#include "support/emulation/fiber.h"

#include <cstdint>

namespace gemmtune::emulation {

#if defined(__x86_64__)

// Saves what a called function must keep, on the old stack, and takes it from the new one.
asm(R"(
.text
.globl gemmtune_emulation_switch
.type gemmtune_emulation_switch, @function
gemmtune_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gemmtune_emulation_switch, .-gemmtune_emulation_switch
)");
extern "C" void gemmtune_emulation_switch(void** from, void* to);

void Fiber::prepare(void* stack, std::size_t bytes, void (*entry)()) {
  constexpr int saved_registers = 6;
  auto top = (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t{15};
  auto* words = reinterpret_cast<void**>(top);
  *--words = nullptr;  // where a caller's address would be: aligns the stack as a call does
  *--words = reinterpret_cast<void*>(entry);
  for (int i = 0; i < saved_registers; ++i) *--words = nullptr;
  stack_pointer_ = words;
}

void Fiber::switch_to(Fiber& to) { gemmtune_emulation_switch(&stack_pointer_, to.stack_pointer_); }

#else

void Fiber::prepare(void* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

void Fiber::switch_to(Fiber& to) { swapcontext(&context_, &to.context_); }

#endif

}  // namespace gemmtune::emulation
