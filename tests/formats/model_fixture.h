// Models in tests: those under tests/data/models, and those of a text.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "formats/models/model_config.h"
#include "formats/scratch_folder.h"

namespace gemmtune {

/// Named layers of one token.
inline ModelShapeOptions one_token(std::int64_t tensor_parallel = 1) {
  ModelShapeOptions options;
  options.tokens = {1};
  options.tensor_parallel = tensor_parallel;
  options.layer_names = true;
  options.assume = "llama";  // for the configs of a text
  return options;
}

class ModelTest : public ScratchTest {
 protected:
  Result<ShapeList> shapes_of(const std::string& config,
                              const ModelShapeOptions& options = one_token()) const {
    write("config.json", config);
    return model_shapes(folder_.string(), options);
  }
  static Result<ShapeList> known(const std::string& name, const ModelShapeOptions& options) {
    return model_shapes(std::string(GEMMTUNE_TEST_DATA) + "/models/" + name, options);
  }
  /// "layer calls operation NxK" of each row, in order; "+bias" where it has one.
  static std::vector<std::string> brief(const Result<ShapeList>& list) {
    std::vector<std::string> lines;
    EXPECT_TRUE(list.ok()) << list.message();
    if (!list.ok()) return lines;
    for (const ShapeRow& row : list->rows) {
      const Problem& problem = row.problem;
      lines.push_back(fmt::format("{} {} {} {}x{}{}", row.layer, row.calls, to_string(form_of(problem)),
                                  problem.n, problem.k, problem.bias ? "+bias" : ""));
    }
    return lines;
  }
  /// The problem's text of the row of a layer.
  static std::string problem_of(const Result<ShapeList>& list, const std::string& layer) {
    if (!list.ok()) return list.message();
    for (const ShapeRow& row : list->rows) {
      if (row.layer == layer) return print(row.problem);
    }
    return "no layer " + layer;
  }
};

}  // namespace gemmtune
