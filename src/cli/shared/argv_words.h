// The words of a command line in one spelling. The tools that gemmtune continues write `-o2 FILE`, `-dtype_a
// fp16`,
// `--tune_file`, a bare `-k`; an ordinary option parser knows none of these.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace gemmtune::cli {

/// `words` without the program's name, the command first. In the answer
///   - `_` in names of long options is `-`:                       --tune_file=a_b -> --tune-file=a_b
///   - single-dash words are long options:                        -o2 F -> --profile-file F, -dtype_a ->
///   --dtype-a
///   - `-m`, `-n`, `-k` hold their number, sign and all:          -m -3 -> -m-3
///   - `--o` of `tune` is --output
///   - a bare `-k` of `tune` (no number after it) is --splitK
///   - options with an optional truth value always have one:      --sort -> --sort=true, --sort False ->
///   --sort=false
/// Words after `--` and words that are values stay as they are.
std::vector<std::string> argv_words(std::span<const std::string> words);

}  // namespace gemmtune::cli
