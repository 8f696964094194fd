// gemmtune_silu_and_mul on the CPU: results, defaults, what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/cpu_context.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

class CSiluAndMul : public ::testing::Test {
 protected:
  CSiluAndMul() {
    for (std::size_t i = 0; i < gate_.size(); ++i) {
      gate_[i] = static_cast<float>(i % 11) - 5;
      up_[i] = static_cast<float>(i % 7) - 3;
    }
    operands_.size = sizeof operands_;
    operands_.type = GEMMTUNE_F32;
    operands_.rows = 3;
    operands_.columns = 20;
    operands_.gate = gate_.data();
    operands_.up = up_.data();
    operands_.y = y_.data();
  }
  ~CSiluAndMul() override { gemmtune_context_destroy(context_); }

  void refused(gemmtune_status status, const std::string& sentence) {
    std::fill(y_.begin(), y_.end(), -1.0F);
    EXPECT_EQ(gemmtune_silu_and_mul(context_, &operands_, nullptr), status);
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(sentence));
    EXPECT_THAT(y_, ::testing::Each(-1.0F));
  }

  gemmtune_context* context_ = test::open_cpu_context();
  std::vector<float> gate_ = std::vector<float>(90);
  std::vector<float> up_ = std::vector<float>(90);
  std::vector<float> y_ = std::vector<float>(90);
  gemmtune_silu_and_mul_operands operands_{};
};

TEST_F(CSiluAndMul, ComputesRowsAtTheirDistances) {
  for (const std::int64_t ldup : {0, 25}) {
    operands_.ldup = ldup;
    operands_.ldy = 30;
    ASSERT_EQ(gemmtune_silu_and_mul(context_, &operands_, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t i = 0; i < 20; ++i) {
        const double gate = gate_[row * 20 + i];
        const double up = up_[row * (ldup == 0 ? 20 : 25) + i];
        EXPECT_NEAR(y_[row * 30 + i], gate / (1 + std::exp(-gate)) * up, 1e-5) << row << ' ' << i;
      }
  }
}

TEST_F(CSiluAndMul, NothingIsNothing) {
  operands_.rows = 0;
  operands_.gate = nullptr;
  EXPECT_EQ(gemmtune_silu_and_mul(context_, &operands_, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
}

TEST_F(CSiluAndMul, YMayBeAnInputAndNothingBetween) {
  const std::vector<float> up = up_;
  operands_.y = up_.data();
  ASSERT_EQ(gemmtune_silu_and_mul(context_, &operands_, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  for (std::size_t i = 0; i < 60; ++i)
    EXPECT_NEAR(up_[i], gate_[i] / (1 + std::exp(-gate_[i])) * up[i], 1e-5) << i;
  operands_.y = up_.data() + 20;
  refused(GEMMTUNE_INVALID_ARGUMENT,
          "y overlaps up in memory, expected up itself or an output apart from it");
  operands_.y = gate_.data();
  operands_.ldy = 21;
  refused(GEMMTUNE_INVALID_ARGUMENT, "y overlaps gate");
  operands_.rows = operands_.ldy = std::int64_t{1} << 30;
  refused(GEMMTUNE_INVALID_ARGUMENT, "expected at most 2^47 bytes");
}

TEST_F(CSiluAndMul, RefusesWithASentence) {
  operands_.type = GEMMTUNE_TYPE_UNSET;
  refused(GEMMTUNE_INVALID_ARGUMENT, "type is not set, expected one of enum gemmtune_type");
  operands_.type = GEMMTUNE_I8;
  refused(GEMMTUNE_INVALID_ARGUMENT, "dtype of gate is i8, expected bf16, f16 or f32");
  operands_.type = GEMMTUNE_F32;
  operands_.rows = -1;
  refused(GEMMTUNE_INVALID_ARGUMENT, "rows = -1, expected 0 to 2147483647");
  operands_.rows = 3;
  operands_.ldup = 19;
  refused(GEMMTUNE_INVALID_ARGUMENT, "ldup = 19, expected 20 to 2147483647 elements");
  operands_.ldup = 0;
  operands_.up = nullptr;
  refused(GEMMTUNE_NULL_POINTER, "gemmtune_silu_and_mul_operands: up is null");
  operands_.up = reinterpret_cast<const char*>(up_.data()) + 2;
  refused(GEMMTUNE_MISALIGNED, "expected a multiple of 4 bytes");
  operands_.up = up_.data();
  operands_.size = 8;
  refused(GEMMTUNE_INVALID_ARGUMENT, "gemmtune_silu_and_mul_operands: size is 8");
  operands_.size = sizeof operands_;
  int stream = 0;
  EXPECT_EQ(gemmtune_silu_and_mul(context_, &operands_, &stream), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("stream is set, expected null on a CPU"));
  EXPECT_EQ(gemmtune_silu_and_mul(context_, nullptr, nullptr), GEMMTUNE_NULL_POINTER);
}

}  // namespace
}  // namespace gemmtune
