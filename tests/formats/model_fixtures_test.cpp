// The sizes that AITER tuned for these models are those of the layers here.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/text.h"
#include "formats/model_fixture.h"
#include "support/fixtures.h"

namespace gemmtune {
namespace {

using Sizes = std::set<std::pair<std::int64_t, std::int64_t>>;  // N and K

/// Columns N and K of a plain CSV.
void add_sizes(const std::string& path, Sizes& sizes) {
  const auto content = read_file(path);
  ASSERT_TRUE(content.ok()) << content.message();
  std::size_t n_at = 0;
  std::size_t k_at = 0;
  for (const std::string_view line : split(*content, '\n')) {
    const auto cells = split(line, ',');
    if (n_at == 0) {
      for (std::size_t index = 0; index < cells.size(); ++index) {
        if (trim(cells[index]) == "N") n_at = index;
        if (trim(cells[index]) == "K") k_at = index;
      }
      ASSERT_GT(n_at, 0U) << path;
      continue;
    }
    if (cells.size() <= k_at) continue;
    const auto n = parse_integer(trim(cells[n_at]));
    const auto k = parse_integer(trim(cells[k_at]));
    if (n && k) sizes.emplace(*n, *k);
  }
}

class ModelFixtures : public ModelTest {
 protected:
  struct Case {
    const char* model;
    std::vector<std::int64_t> ranks;
    std::vector<const char*> tables;
    std::set<std::string> not_in_them;
  };
  static void expect_tuned(const Case& expected, const std::string& folder) {
    Sizes sizes;
    for (const char* table : expected.tables)
      add_sizes(folder + "/aiter/configs/model_configs/" + table, sizes);
    for (const std::int64_t ranks : expected.ranks) {
      const auto list = known(expected.model, one_token(ranks));
      ASSERT_TRUE(list.ok()) << list.message();
      for (const ShapeRow& row : list->rows) {
        if (row.problem.operation == Operation::fused_moe || expected.not_in_them.contains(row.layer))
          continue;
        EXPECT_TRUE(sizes.contains({row.problem.n, row.problem.k}))
            << expected.model << " --tp " << ranks << " " << row.layer << " " << print(row.problem);
      }
    }
  }
};

TEST_F(ModelFixtures, LayersAreInAitersTables) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  expect_tuned(
      {"deepseek-v3", {1, 8}, {"dsv3_bf16_tuned_gemm.csv", "dsv3_a8w8_bpreshuffle_tuned_gemm.csv"}, {}},
      folder);
  // Only the layers of blocks were tuned at 2 and 4 ranks.
  expect_tuned({"deepseek-v3", {2, 4}, {"dsv3_a8w8_bpreshuffle_tuned_gemm.csv"}, {"lm_head"}}, folder);
  expect_tuned({"llama-3.1-405b", {2, 4, 8}, {"llama405B_untuned_gemm_bf16.csv"}, {"lm_head"}}, folder);
  // The table is of the larger model: the same attention, other routers.
  expect_tuned({"gpt-oss-20b", {1}, {"gptoss_bf16_tuned_gemm.csv"}, {"router"}}, folder);
  expect_tuned({"gpt-oss-20b", {2, 8}, {"gptoss_bf16_tuned_gemm.csv"}, {"router", "lm_head"}}, folder);
}

}  // namespace
}  // namespace gemmtune
