// What became of the calls of this process, and the line about it at exit.
#pragma once

namespace gemmtune::interpose {

enum class Outcome {
  served,    // by the kernel of a tuned row
  replaced,  // no row, and the library's own choice has an erratum: by gemmtune's fallback
  // passed through to the library:
  no_row,
  types,
  compute_type,
  epilogue,
  alpha_beta,
  pointer_mode,
  layout,
  alignment,
  batch,
  scales,
  setting,    // the call limits the SMs, or sets what gemmtune does not know
  capturing,  // not decided yet, and the stream is being captured into a graph
  workspace,  // more of it than there is
  device,     // no context of gemmtune for the call's device
  refused,    // the kernel refused the operands
  count
};

/// The first call of a process arranges for the line at its exit.
void count(Outcome outcome);

/// Writes "gemmtune: cublas: <text>" to stderr.
void say(const char* text);

}  // namespace gemmtune::interpose
