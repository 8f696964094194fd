// Online tuning into AITER's table of hipBLASLt, and the claims of problems.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "support/hipblaslt_rows.h"
#include "support/online_tuning.h"

namespace gemmtune {
namespace {

using gemmtune::testing::OnlineTuning;
using gemmtune::testing::right_gemm;
using gemmtune::testing::small;
using gemmtune::testing::zeros;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AitersTable : public OnlineTuning {
 protected:
  AitersTable() {
    file_ = folder_ + "/hip_online_tuning_res.csv";
    options_.settings.hipblaslt_table = true;
  }
  std::string text() const {
    const auto content = read_file(file_);
    return content.ok() ? *content : std::string();
  }
};

TEST_F(AitersTable, IsWrittenAsAiterWritesIt) {
  tune();
  EXPECT_EQ(
      text(),
      "preshuffle, use_rowwise, trans_a, trans_b, m, n, k, A_data_type, lda, stride_a, B_data_type, ldb, "
      "stride_b, C_data_type, ldc, stride_c, compute_type, batch_count, algo_index, kernel_name\n"
      "false,false,T,N,32,4,48,bf16_r,48,0,bf16_r,48,0,bf16_r,32,0,f32_r,1,-1,fast_r1\n");
  const auto back = read_hipblaslt_csv(file_);
  ASSERT_TRUE(back.ok());
  const HipblasltRow* row = find_row(*back, small());
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->kernel_name, "fast_r1");
}

TEST_F(AitersTable, ARowOfAnotherDeviceDoesNotStandInTheWay) {
  auto row = to_hipblaslt_row(small());
  ASSERT_TRUE(row.ok());
  row->algo_index = 4711;
  row->kernel_name = "Cijk_Alik_Bljk_of_another_machine";
  ASSERT_TRUE(append_hipblaslt_row(file_, *row).ok());
  tune();
  EXPECT_THAT(text(), HasSubstr(",4711,Cijk"));
  EXPECT_THAT(text(), HasSubstr(",-1,fast_r1"));
  const std::string once = text();
  tune();  // known now
  EXPECT_EQ(text(), once);
  EXPECT_EQ(changes_, 2);
}

TEST_F(AitersTable, AKernelThatIsWrongWithABiasIsNotKept) {
  families_.clear();
  add("vendor", 0, 10, [](const Problem& problem, const Operands& operands, void* workspace) {
    problem.bias ? zeros(problem, operands, workspace) : right_gemm(problem, operands, workspace);
  });
  tune();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("with a bias")));
  EXPECT_THAT(text(), IsEmpty());
}

TEST_F(AitersTable, LargeMIsDeclinedAsInAiter) {
  tune(small(513));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("M = 513")));
  EXPECT_THAT(text(), IsEmpty());
}

}  // namespace
}  // namespace gemmtune
