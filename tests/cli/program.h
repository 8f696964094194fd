// The gemmtune program in tests: a folder of its own as config folder, few threads, small problems.
#pragma once

#include <string>
#include <vector>

#include "support/subprocess.h"

namespace gemmtune::test {

class Program {
 public:
  const TemporaryFolder& folder() const { return folder_; }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string config_folder() const { return folder_.file("config"); }

  SubprocessOptions options() const {
    SubprocessOptions options;
    options.environment = {{"GEMMTUNE_CONFIG_DIR", config_folder()},
                           {"GEMMTUNE_CONFIG_A16W16", ""},
                           {"AITER_CONFIG_GEMM_BF16", ""},
                           {"GTUNE_MODEL", ""},
                           {"LC_ALL", "C"}};
    options.working_folder = folder_.path();
    return options;
  }
  static std::vector<std::string> words(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), GEMMTUNE_PROGRAM);
    return arguments;
  }
  SubprocessResult run(std::vector<std::string> arguments) const {
    return run(std::move(arguments), options());
  }
  SubprocessResult run(std::vector<std::string> arguments, const SubprocessOptions& options) const {
    return run_program(words(std::move(arguments)), options);
  }
  /// A tuning that takes a moment: one small shape, our own families, few calls.
  std::vector<std::string> quick_tune(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"tune", "-m",      "3",         "-n",           "64",
                                          "-k",   "64",      "--libtype", "tiled,skinny", "--budget",
                                          "1",    "--iters", "5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace gemmtune::test
