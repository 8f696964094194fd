#include <array>

#include "cli/command.h"

namespace gemmtune::cli {

std::span<const Command> all_commands() {
  static constexpr std::array commands = {
      Command{"tune", "Find the fastest verified kernel for each shape and write a tuned file", declare_tune},
      Command{"worth", "What tuning can gain, before it is done: a share of the time, with an interval",
              declare_worth},
      Command{"shapes", "Shapes of a model, or of a file: list, remove duplicates, convert", declare_shapes},
      Command{"lookup", "Which row or rule a problem gets from tuned files, and why", declare_lookup},
      Command{"explain", "Which kernel families take a problem, their spaces, and why others refuse",
              declare_explain},
      Command{"bench", "Time the production operator on the shapes of a file", declare_bench},
      Command{"check", "Check every row of a tuned file, or one kernel, for correctness, without tuning",
              declare_check},
      Command{"hunt", "Look for sizes at which a vendor library's kernels are wrong or crash", declare_hunt},
      Command{"audit", "Defects of tuned files, row by row, and a clean copy", declare_audit},
      Command{"merge", "Several tuned files as one; dense tables as ranges", declare_merge},
      Command{"convert", "Tuned files and shapes from one format into another", declare_convert},
      Command{"diff", "What changed from one tuned file to another", declare_diff},
      Command{"report", "Tuned files and what is known of their tuning as one HTML page", declare_report},
      Command{"coverage", "How tuned files serve a captured workload", declare_coverage},
      Command{"devices", "Backends, devices and libraries that were found, and what is missing",
              declare_devices},
      Command{"cache", "Kernels compiled at run time and kept on disk: list, compile ahead, remove",
              declare_cache},
      Command{"journal", "The journal of measurements beside a tuned file: list, export, prune",
              declare_journal},
  };
  return commands;
}

}  // namespace gemmtune::cli
