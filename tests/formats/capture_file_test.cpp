// What capture keeps on disk: lines for new problems, every other byte as it was, calls beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file_lock.h"
#include "formats/aiter/schema.h"
#include "scratch_folder.h"
#include "support/captures.h"

namespace gemmtune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* bf16_header = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";

Problem problem(std::int64_t m, OperationForm operation = Operation::a16w16) {
  Problem one = default_problem(operation);
  one.m = m;
  one.n = 256;
  one.k = 512;
  if (operation == Operation::fused_moe) {
    one.moe.experts = 8;
    one.moe.topk = 2;
  }
  return one;
}

CapturedProblem seen(const Problem& asked, std::uint64_t calls = 1, Match match = Match::untuned) {
  CapturedProblem one;
  one.problem = problem_of_row(asked);
  one.calls = calls;
  one.by_match[static_cast<std::size_t>(match)] = calls;
  one.last_seen = "2026-01-31T12:00:00Z";
  return one;
}

class CaptureFile : public ScratchTest {
 protected:
  std::string file() const { return path("bf16_untuned_gemm.csv"); }
  std::string text() const { return content("bf16_untuned_gemm.csv"); }
  CaptureMerge merge(const std::vector<CapturedProblem>& all) const {
    const auto merged = merge_capture(file(), all);
    EXPECT_TRUE(merged.ok()) << merged.message();
    return merged.ok() ? *merged : CaptureMerge();
  }
  Capture capture() const {
    auto read = read_capture(file(), Operation::a16w16);
    EXPECT_TRUE(read.ok()) << read.message();
    return read.ok() ? *read : Capture();
  }
};

TEST_F(CaptureFile, ANewFileHasAitersHeaderAndOneLineAProblem) {
  Problem packed = problem(2);
  packed.weight_layout = WeightLayout::panel16;
  packed.bias = true;
  packed.y_type = DataType::f32;
  EXPECT_EQ(merge({seen(problem(1)), seen(packed)}).added, 2U);
  EXPECT_EQ(text(), std::string(bf16_header) +
                        "1,256,512,False,torch.bfloat16,torch.bfloat16,False,False\n"
                        "2,256,512,True,torch.bfloat16,torch.float32,False,True\n");
  EXPECT_EQ(merge({seen(problem(1)), seen(packed)}).added, 0U);
}

TEST_F(CaptureFile, EveryOperationIsReadBackAsWhatWasSeen) {
  for (const OperationForm operation : all_operation_forms()) {
    const std::string at = path(untuned_file_name(operation));
    Problem asked = problem(16, operation);
    if (operation == Operation::batched_bf16 || operation == Operation::batched_a8w8) asked.batch = 4;
    if (operation == Operation::a8w4_int4) asked.w_group = static_cast<std::int32_t>(asked.k);
    asked.zero_points = operation == Operation::a16w4_int4;
    const auto merged = merge_capture(at, {seen(asked, 5, Match::fine)});
    ASSERT_TRUE(merged.ok()) << merged.message();
    EXPECT_THAT(merged->diagnostic, IsEmpty());
    // Without a name of the operation: as `gemmtune tune -i` reads it.
    const auto list = read_shape_list(at, {});
    ASSERT_TRUE(list.ok()) << list.message();
    ASSERT_THAT(list->rows, SizeIs(1));
    EXPECT_EQ(print(list->rows[0].problem), print(problem_of_row(asked)));
    const auto read = read_capture(at, operation);
    ASSERT_TRUE(read.ok()) << read.message();
    ASSERT_THAT(read->problems, SizeIs(1));
    EXPECT_EQ(read->problems[0].problem, problem_of_row(asked));
    EXPECT_EQ(read->problems[0].calls, 5U);
    EXPECT_EQ(read->problems[0].by_match[static_cast<std::size_t>(Match::fine)], 5U);
    EXPECT_EQ(read->problems[0].line, 2U);
  }
}

TEST_F(CaptureFile, GroupsOfInt4ExpertsAreColumnsOfANewFile) {
  Problem asked = problem(16, Operation::fused_moe);
  asked.w_type = DataType::i4;
  asked.moe.quant_type = QuantType::per_group;
  asked.w_group = 32;
  asked.zero_points = true;
  const std::string at = path(untuned_file_name(Operation::fused_moe));
  ASSERT_TRUE(merge_capture(at, {seen(asked, 5, Match::fine)}).ok());
  EXPECT_THAT(*read_file(at), HasSubstr("doweight_stage1,group,zero_points\n"));
  const auto list = read_shape_list(at, {});
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_THAT(list->rows, SizeIs(1));
  EXPECT_EQ(print(list->rows[0].problem), print(problem_of_row(asked)));
  EXPECT_EQ(list->rows[0].problem.w_group, 32);
  EXPECT_EQ(read_shape_list(at, {})->rows[0].problem,
            parse_shape_list("x.csv", write_shape_list(list->rows), {})->rows[0].problem);
}

/// Stores of versions without buckets have no count of them.
TEST_F(CaptureFile, AStoreWithoutBucketsIsRead) {
  merge({seen(problem(1), 4, Match::bucket), seen(problem(2), 3, Match::fine)});
  const std::string store = calls_path(file());
  std::string text = *read_file(store);
  EXPECT_THAT(text, HasSubstr("\"bucket\":4"));
  for (const std::string count :
       {",\"bucket\":4", ",\"bucket\":0", ",\"fewer_threads\":0", ",\"fewer_threads\":0"})
    text.erase(text.find(count), count.size());
  ASSERT_TRUE(write_file_atomically(store, text).ok());
  const auto read = read_capture(file(), Operation::a16w16);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_THAT(read->diagnostics, IsEmpty());
  EXPECT_EQ(read->problems[0].calls, 4U);
  EXPECT_EQ(read->problems[0].by_match[static_cast<std::size_t>(Match::bucket)], 0U);
  EXPECT_EQ(read->problems[1].by_match[static_cast<std::size_t>(Match::fine)], 3U);
}

TEST_F(CaptureFile, HeadersAreThoseOfAiter) {
  const std::pair<OperationForm, std::string> headers[] = {
      {OperationForm(Operation::a8w8), "M,N,K,q_dtype_w\n"},
      {OperationForm(Operation::a8w8_blockscale), "M,N,K\n"},
      {OperationForm(Operation::batched_bf16), "B,M,N,K\n"},
      {OperationForm(Operation::fused_moe),
       "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
       "doweight_stage1\n"}};
  for (const auto& [operation, header] : headers) {
    ASSERT_TRUE(merge_capture(path(untuned_file_name(operation)), {seen(problem(1, operation))}).ok());
    EXPECT_TRUE(content(untuned_file_name(operation)).starts_with(header)) << to_string(operation);
  }
}

TEST_F(CaptureFile, WhatWasThereStaysByteForByte) {
  const std::string old =
      "# mine\r\n\r\n M , N,K, dtype,note\r\n1,256,512,torch.bfloat16,\"a, "
      "b\"\r\nnot,a,row\r\n3,256,512,bf16";
  write("bf16_untuned_gemm.csv", old);
  EXPECT_EQ(merge({seen(problem(1)), seen(problem(3)), seen(problem(4))}).added, 1U);
  EXPECT_EQ(text(), old + "\r\n4,256,512,torch.bfloat16,\r\n");
}

TEST_F(CaptureFile, CellsFollowTheFilesOwnColumns) {
  const std::string old =
      "calls,outdtype,dtype,K,N,M,bias\n7,torch.bfloat16,torch.bfloat16,512,256,9,False\n";
  write("bf16_untuned_gemm.csv", old);
  Problem biased = problem(9);
  biased.bias = true;
  EXPECT_EQ(merge({seen(biased)}).added, 1U);
  EXPECT_EQ(text(), old + ",torch.bfloat16,torch.bfloat16,512,256,9,True\n");
}

TEST_F(CaptureFile, WhatTheHeaderCannotExpressIsCountedBesideIt) {
  const std::string old = "M,N,K,dtype\n1,256,512,torch.bfloat16\n";
  write("bf16_untuned_gemm.csv", old);
  Problem biased = problem(9);
  biased.bias = true;
  Problem column_major = problem(10);
  column_major.w_order = Order::column_major;
  const auto merged = merge({seen(biased, 3), seen(column_major), seen(problem(2))});
  EXPECT_EQ(merged.added, 1U);
  EXPECT_THAT(merged.diagnostic, AllOf(HasSubstr("cannot express a16w16 m=9"), HasSubstr("bias=1")));
  EXPECT_EQ(text(), old + "2,256,512,torch.bfloat16\n");
  EXPECT_EQ(capture().problems.size(), 4U);
}

TEST_F(CaptureFile, AFileThatIsNoListOfTheOperationStaysAndCallsAreCounted) {
  const std::string old = "B,M,N,K\n1,2,3,4\n";
  write("bf16_untuned_gemm.csv", old);
  const auto merged = merge({seen(problem(1), 4)});
  EXPECT_THAT(merged.diagnostic, HasSubstr("batched"));
  EXPECT_EQ(text(), old);
  EXPECT_THAT(content("bf16_untuned_gemm.csv.calls.json"), HasSubstr("\"calls\":4"));
}

TEST_F(CaptureFile, CallsAddUpByMatch) {
  merge({seen(problem(1), 2, Match::exact)});
  merge({seen(problem(1), 3, Match::untuned), seen(problem(2), 1, Match::range)});
  const Capture read = capture();
  ASSERT_THAT(read.problems, SizeIs(2));
  EXPECT_EQ(read.problems[0].calls, 5U);
  EXPECT_EQ(read.problems[0].by_match, (MatchCounts{2, 0, 0, 0, 3}));
  EXPECT_EQ(read.problems[1].by_match, (MatchCounts{0, 1, 0, 0, 0}));
  EXPECT_EQ(read.problems[1].last_seen, "2026-01-31T12:00:00Z");
}

TEST_F(CaptureFile, ReadingKnowsRowsWithoutCallsAndCallsWithoutRows) {
  write("bf16_untuned_gemm.csv",
        std::string(bf16_header) + "5,256,512,False,torch.bfloat16,torch.bfloat16,False,False\n");
  Problem column_major = problem(10);
  column_major.w_order = Order::column_major;
  merge({seen(column_major, 6)});
  const Capture read = capture();
  ASSERT_THAT(read.problems, SizeIs(2));
  EXPECT_EQ(read.problems[0].problem.m, 5);
  EXPECT_EQ(read.problems[0].calls, 0U);
  EXPECT_EQ(read.problems[1].problem, problem_of_row(column_major));
  EXPECT_EQ(read.problems[1].calls, 6U);
  EXPECT_EQ(read.problems[1].line, 0U);
  EXPECT_EQ(read_capture(path("none.csv"), Operation::a16w16).code(), StatusCode::not_found);
}

TEST_F(CaptureFile, ADamagedSideStoreIsKeptAside) {
  for (const char* damaged : {"{\"a16w16 m=1", "[]", "{\"nonsense\": {\"calls\": 1}}",
                              "{\"a16w16 m=1 n=1 k=1\": {\"calls\": -1}}", ""}) {
    write("bf16_untuned_gemm.csv.calls.json", damaged);
    const auto merged = merge({seen(problem(1), 2)});
    EXPECT_EQ(content("bf16_untuned_gemm.csv.calls.json.damaged"), damaged);
    EXPECT_THAT(merged.damage, HasSubstr("begun anew")) << damaged;
    EXPECT_EQ(capture().problems[0].calls, 2U);
  }
}

TEST_F(CaptureFile, ADamagedSideStoreIsADiagnosticOfReaders) {
  merge({seen(problem(1), 2)});
  write("bf16_untuned_gemm.csv.calls.json", "{");
  const Capture read = capture();
  ASSERT_THAT(read.problems, SizeIs(1));
  EXPECT_THAT(read.diagnostics, ::testing::ElementsAre(HasSubstr("calls.json")));
}

TEST_F(CaptureFile, RowsOfAListTakeTheirCalls) {
  write("bf16_untuned_gemm.csv",
        "M,N,K,dtype,calls\n1,256,512,torch.bfloat16,9\n2,256,512,torch.bfloat16,8\n");
  merge({seen(problem(1), 41)});
  auto list = read_shape_list(file(), {});
  ASSERT_TRUE(list.ok());
  take_captured_calls(file(), *list);
  EXPECT_EQ(list->rows[0].calls, 41);
  EXPECT_EQ(list->rows[1].calls, 8);  // nobody counted it
}

TEST_F(CaptureFile, AProblemIsWhatItsRowSays) {
  Problem odd = problem(1);
  odd.alignment = 4;
  EXPECT_EQ(problem_of_row(odd), problem(1));
  Problem fnuz = problem(1, Operation::a8w8_blockscale);
  fnuz.x_type = fnuz.w_type = DataType::f8_e4m3fnuz;  // the table has no column for it
  EXPECT_EQ(problem_of_row(fnuz), problem(1, Operation::a8w8_blockscale));
  Problem fp8 = problem(1, Operation::a8w8);
  fp8.x_type = fp8.w_type = DataType::f8_e4m3fnuz;
  EXPECT_EQ(problem_of_row(fp8), fp8);
}

TEST_F(CaptureFile, AMixtureIsRecordedAtItsTokenTier) {
  const Problem mixture = problem(97, Operation::fused_moe);
  EXPECT_EQ(problem_of_row(mixture).m, 128);
  Problem tier = mixture;
  tier.m = 128;
  EXPECT_EQ(problem_of_row(tier), problem_of_row(mixture));
  tier.m = upper_token_tier + 1;
  EXPECT_EQ(problem_of_row(tier).m, upper_token_tier);
  EXPECT_EQ(problem_of_row(problem(97)).m, 97);
  // A row of 97 tokens answers nothing, so that it does not stand for 128.
  write("untuned_fmoe.csv",
        "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_"
        "stage1\n"
        "97,512,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0\n");
  const auto merged = merge_capture(path("untuned_fmoe.csv"), {seen(mixture, 1)});
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->added, 1);
}

TEST_F(CaptureFile, WhatCannotBeWrittenIsAnErrorAndCountsNothing) {
  std::filesystem::create_directory(path("bf16_untuned_gemm.csv.calls.json"));
  EXPECT_FALSE(merge_capture(file(), {seen(problem(1))}).ok());
  std::filesystem::remove(path("bf16_untuned_gemm.csv.calls.json"));
  merge({seen(problem(1))});
  EXPECT_EQ(capture().problems[0].calls, 1U);
}

TEST_F(CaptureFile, LinksAreFollowed) {
  write("real.csv", bf16_header);
  std::filesystem::create_symlink(path("real.csv"), file());
  merge({seen(problem(1))});
  EXPECT_TRUE(std::filesystem::is_symlink(file()));
  EXPECT_THAT(content("real.csv"), HasSubstr("1,256,512"));
  EXPECT_THAT(content("real.csv.calls.json"), HasSubstr("\"calls\":1"));
}

TEST_F(CaptureFile, LinesAreAddedWithoutCountsWhileNobodyElseWrites) {
  const auto add = [&](const std::vector<CapturedProblem>& all) {
    const auto added = try_add_lines(file(), all);
    EXPECT_TRUE(added.ok()) << added.message();
    return added.ok() && added->has_value() ? (*added)->added : 99;
  };
  EXPECT_EQ(add({seen(problem(1))}), 1U);
  EXPECT_EQ(add({seen(problem(1)), seen(problem(2))}), 1U);
  EXPECT_EQ(capture().problems.size(), 2U);
  EXPECT_EQ(capture().problems[1].calls, 0U);
  {
    const auto lock = FileLock::acquire(file() + ".lock");
    ASSERT_TRUE(lock.ok()) << lock.message();
    EXPECT_EQ(add({seen(problem(3))}), 99U) << "another holds the lock";
  }
  // Over several pages, behind a line without an end.
  ASSERT_TRUE(write_file_atomically(file(), text().substr(0, text().size() - 1)).ok());
  for (std::int64_t m = 3; m < 200; ++m) ASSERT_EQ(add({seen(problem(m))}), 1U);
  EXPECT_EQ(capture().problems.size(), 199U);
  EXPECT_THAT(capture().diagnostics, IsEmpty());
}

}  // namespace
}  // namespace gemmtune
