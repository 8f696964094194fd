// Names of shards' outputs, and the file beside each.
#include "formats/shards/shard_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/scratch_folder.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

class ShardFiles : public ScratchTest {};

TEST_F(ShardFiles, NamesSayWhichShard) {
  EXPECT_EQ(shard_path("tuned.csv", {3, 16}), "tuned.3of16.csv");
  EXPECT_EQ(shard_path("a.b/tuned", {3, 16}), "a.b/tuned.3of16");
  EXPECT_EQ(shard_path("a/.tuned", {1, 2}), "a/.tuned.1of2");
  for (const std::string path : {"tuned.csv", "a.b/tuned", "x.y.csv"})
    EXPECT_EQ(shard_of_path(shard_path(path, {3, 16})), (Shard{3, 16})) << path;
  for (const std::string path : {"tuned.csv", "3of16", "1of2/tuned.csv", "tuned.0of2.csv", "tuned.3of2.csv",
                                 "a.of2.csv", "tuned.1of2.old.csv"})
    EXPECT_FALSE(shard_of_path(path)) << path;
  EXPECT_EQ(parse_shard("3/16"), (Shard{3, 16}));
  for (const std::string text :
       {"", "3", "3/", "/3", "0/3", "4/3", "+1/3", "1/3 ", "1/1000001", "1/99999999999999999999"})
    EXPECT_FALSE(parse_shard(text)) << text;
}

TEST_F(ShardFiles, AreReadAsTheyWereWritten) {
  const std::string tuned = path("tuned.2of3.csv");
  EXPECT_EQ(read_shard_file(tuned).code(), StatusCode::not_found);
  ShardFile file;
  file.shard = {2, 3};
  file.list = "0123";
  file.shapes_in_list = 9;
  file.options = "search=staged";
  file.m_from = 1;
  file.m_to = 64;
  file.gfx = "sm_90";
  file.cu_num = 132;
  file.environment = "abc";
  file.state = shard_interrupted;
  Problem problem;
  problem.m = 3;
  problem.n = problem.k = 64;
  file.shapes = {{7, problem, "failed", "no \"kernel\"\n"}, {2, problem, "", ""}};
  ASSERT_TRUE(write_shard_file(tuned, file).ok());
  const auto read = read_shard_file(tuned);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(read->shard, file.shard);
  EXPECT_EQ(read->list, file.list);
  EXPECT_EQ(read->shapes_in_list, 9U);
  EXPECT_EQ(read->options, file.options);
  EXPECT_EQ(read->m_to, 64);
  EXPECT_EQ(read->gfx, "sm_90");
  EXPECT_EQ(read->cu_num, 132);
  EXPECT_EQ(read->environment, "abc");
  EXPECT_EQ(read->state, shard_interrupted);
  ASSERT_EQ(read->shapes.size(), 2U);
  EXPECT_EQ(read->shapes[0].position, 7U);
  EXPECT_EQ(read->shapes[0].problem, problem);
  EXPECT_EQ(read->shapes[0].reason, "no \"kernel\"\n");
}

TEST_F(ShardFiles, DamagedOnesAreErrorsThatNameFileAndMember) {
  const std::string tuned = path("tuned.2of3.csv");
  ShardFile file;
  file.shard = {2, 3};
  Problem problem;
  problem.m = problem.n = problem.k = 64;
  file.shapes = {{0, problem, "", ""}};
  ASSERT_TRUE(write_shard_file(tuned, file).ok());
  const std::string text = read_file(shard_file_path(tuned)).value();
  const auto expect_error = [&](const std::string& from, const std::string& to, const std::string& what) {
    std::string changed = text;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), from.size(), to);
    ASSERT_TRUE(write_file_atomically(shard_file_path(tuned), changed).ok());
    const auto read = read_shard_file(tuned);
    EXPECT_FALSE(read.ok()) << to;
    EXPECT_THAT(read.message(), HasSubstr(shard_file_path(tuned)));
    EXPECT_THAT(read.message(), HasSubstr(what));
  };
  expect_error("\"shard\": 2", "\"shard\": 4", "shard 4/3");
  expect_error("\"shard\": 2", "\"shard\": -1", "'shard' is -1");
  expect_error("\"shard\": 2", "\"shard\": \"2\"", "whole number");
  expect_error("\"list\"", "\"tsil\"", "no 'list'");
  expect_error("\"version\": 1", "\"version\": 2", "version 2");
  expect_error("m=64", "m=no", "problem 'a16w16 m=no");
  expect_error("}", "", "");
}

}  // namespace
}  // namespace gemmtune
