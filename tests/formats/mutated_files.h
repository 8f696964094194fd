// Real files from a seed with changes that a reader must not trip over: input of the look-up properties.
#pragma once

#include <string>

#include "formats/triton/triton_json.h"
#include "generated_tables.h"

namespace gemmtune::test {

/// A sample of a tuned CSV's rows with other times, errors, tags, devices and sizes, with rows that are doubled or elsewhere,
/// columns that are gone, new or exchanged, and now and then bytes that are damaged.
std::string mutated_table(Generator& generator, const std::string& text);

/// The text of a Triton config whose buckets are renamed, doubled, gone, null or elsewhere, under a path that may be of another
/// family, with notes among them.
struct MutatedConfig {
  std::string path;
  std::string text;
};
MutatedConfig mutated_config(Generator& generator, TritonFile file);

}  // namespace gemmtune::test
