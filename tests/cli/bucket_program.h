// `tune --buckets` in tests.
#pragma once

#include <string>
#include <vector>

#include "cli/program.h"

namespace gemmtune::test {

/// Tunes with --buckets into its folder `configs`.
class BucketProgram : public SimulatedProgram {
 public:
  std::string configs() const { return file("configs"); }
  SubprocessResult tune(const std::string& shapes, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"tune",
                                      "-i",
                                      folder().write("shapes.csv", shapes),
                                      "-o",
                                      configs(),
                                      "--buckets",
                                      "--confirmations",
                                      "1",
                                      "--quiet",
                                      "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

/// M of small_M and of medium_M.
inline const std::string bf16_shapes =
    "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
    "1,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n"
    "9,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n"
    "300,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n";

}  // namespace gemmtune::test
