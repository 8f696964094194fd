// The gemmtune program in tests: a folder of its own as config folder, small problems.
#pragma once

#include <string>
#include <vector>

#include "support/subprocess.h"

namespace gemmtune::test {

class Program {
 public:
  explicit Program(std::string path = GEMMTUNE_PROGRAM) : path_(std::move(path)) {}

  const TemporaryFolder& folder() const { return folder_; }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string config_folder() const { return folder_.file("config"); }

  SubprocessOptions options() const {
    SubprocessOptions options;
    options.environment = {{"GEMMTUNE_CONFIG_DIR", config_folder()},
                           {"GEMMTUNE_CONFIG_A16W16", ""},
                           {"AITER_CONFIG_GEMM_BF16", ""},
                           {"GTUNE_MODEL", ""},
                           {"GTUNE_INPUT", ""},
                           {"GTUNE_TUNED", ""},
                           {"XDG_RUNTIME_DIR", folder_.path()},
                           {"GEMMTUNE_SHIPPED", "0"},
                           {"LC_ALL", "C"}};
    options.working_folder = folder_.path();
    return options;
  }
  std::vector<std::string> words(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), path_);
    return arguments;
  }
  SubprocessResult run(std::vector<std::string> arguments) const {
    return run(std::move(arguments), options());
  }
  SubprocessResult run(std::vector<std::string> arguments, const SubprocessOptions& options) const {
    return run_program(words(std::move(arguments)), options);
  }
  /// A tuning that takes a moment: one small shape, our own families, few calls. The budget, as in other tests that are not
  /// about budgets, is one that only a very busy machine meets.
  std::vector<std::string> quick_tune(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"tune", "-m",      "3",         "-n",           "64",
                                          "-k",   "64",      "--libtype", "tiled,skinny", "--budget",
                                          "60",   "--iters", "5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

 private:
  std::string path_;
  TemporaryFolder folder_;
};

/// On a CPU whose clock is simulated (support/simulated_cpu.cpp): it needs no machine for itself, and two runs agree.
class SimulatedProgram : public Program {
 public:
  SimulatedProgram() : Program(GEMMTUNE_SIMULATED_PROGRAM) {}
};

}  // namespace gemmtune::test
