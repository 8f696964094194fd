// The matrix instructions' layouts against tables that were written down from the documents, not computed: where lanes hold
// the elements of A, B and D.
//   MFMA: AMD, "AMD Instinct MI300 Instruction Set Architecture", chapter "Matrix Arithmetic Instructions", and the output of
//   AMD's matrix instruction calculator for the same instructions. Those of gfx950: "AMD Instinct CDNA4 Instruction Set
//   Architecture", the same chapter; of scaled ones a lane has the scale of the 32 elements that it holds.
//   mma.sync: NVIDIA, "Parallel Thread Execution ISA", "Matrix Fragments for mma.m16n8k16" and "… mma.m16n8k32".
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "numbers/data_type.h"
#include "support/emulation/matrix.h"

namespace gemmtune::emulation {
namespace {

struct Entry {
  int lane, index;  // a value of a lane, counted from its first
  int row, column;  // of A: i and k; of B: j and k; of D: i and j
};

struct Layout {
  Operation operation;
  std::vector<Entry> a, b, d;
};

const std::vector<Layout>& layouts() {
  // Rows of the documents' tables: the first and last lanes of each group, the first and last values.
  static const std::vector<Layout> all{
      {Operation::mfma_f32_16x16x16_bf16,
       {{0, 0, 0, 0},
        {0, 3, 0, 3},
        {15, 0, 15, 0},
        {16, 0, 0, 4},
        {31, 3, 15, 7},
        {32, 1, 0, 9},
        {63, 3, 15, 15}},
       {{0, 0, 0, 0}, {1, 2, 1, 2}, {16, 0, 0, 4}, {47, 0, 15, 8}, {63, 3, 15, 15}},
       {{0, 0, 0, 0}, {0, 3, 3, 0}, {15, 0, 0, 15}, {16, 0, 4, 0}, {33, 2, 10, 1}, {63, 3, 15, 15}}},
      {Operation::mfma_f32_16x16x16_f16,
       {{0, 0, 0, 0}, {17, 2, 1, 6}, {48, 0, 0, 12}, {63, 3, 15, 15}},
       {{16, 3, 0, 7}, {63, 0, 15, 12}},
       {{20, 1, 5, 4}, {48, 0, 12, 0}}},
      {Operation::mfma_f32_32x32x8_bf16,
       {{0, 0, 0, 0}, {31, 3, 31, 3}, {32, 0, 0, 4}, {63, 3, 31, 7}},
       {{5, 1, 5, 1}, {37, 1, 5, 5}},
       {{0, 0, 0, 0},
        {0, 3, 3, 0},
        {0, 4, 8, 0},
        {0, 7, 11, 0},
        {0, 8, 16, 0},
        {0, 12, 24, 0},
        {0, 15, 27, 0},
        {32, 0, 4, 0},
        {32, 3, 7, 0},
        {32, 4, 12, 0},
        {32, 15, 31, 0},
        {31, 0, 0, 31},
        {63, 15, 31, 31}}},
      {Operation::mfma_f32_32x32x8_f16, {{40, 2, 8, 6}}, {{40, 2, 8, 6}}, {{40, 9, 21, 8}}},
      {Operation::mfma_f32_16x16x32_fp8,
       {{0, 0, 0, 0}, {0, 7, 0, 7}, {16, 0, 0, 8}, {35, 4, 3, 20}, {63, 7, 15, 31}},
       {{16, 1, 0, 9}, {63, 7, 15, 31}},
       {{0, 1, 1, 0}, {50, 3, 15, 2}}},
      {Operation::mfma_f32_32x32x16_fp8,
       {{0, 7, 0, 7}, {32, 0, 0, 8}, {63, 7, 31, 15}},
       {{33, 2, 1, 10}},
       {{33, 5, 13, 1}}},
      {Operation::mfma_i32_16x16x32_i8, {{35, 4, 3, 20}}, {{35, 4, 3, 20}}, {{50, 3, 15, 2}}},
      {Operation::mfma_i32_32x32x16_i8, {{33, 2, 1, 10}}, {{33, 2, 1, 10}}, {{33, 5, 13, 1}}},
      {Operation::mfma_i32_16x16x16_i8,
       {{0, 3, 0, 3}, {16, 0, 0, 4}, {63, 3, 15, 15}},
       {{16, 0, 0, 4}},
       {{16, 0, 4, 0}}},
      {Operation::mfma_i32_32x32x8_i8, {{32, 0, 0, 4}}, {{32, 3, 0, 7}}, {{32, 0, 4, 0}}},
      {Operation::mfma_f32_16x16x32_bf16,
       {{0, 7, 0, 7}, {16, 0, 0, 8}, {35, 4, 3, 20}, {63, 7, 15, 31}},
       {{16, 1, 0, 9}, {63, 7, 15, 31}},
       {{0, 1, 1, 0}, {50, 3, 15, 2}}},
      {Operation::mfma_f32_16x16x32_f16, {{35, 4, 3, 20}}, {{35, 4, 3, 20}}, {{50, 3, 15, 2}}},
      {Operation::mfma_f32_32x32x16_bf16,
       {{0, 7, 0, 7}, {32, 0, 0, 8}, {63, 7, 31, 15}},
       {{33, 2, 1, 10}},
       {{33, 5, 13, 1}}},
      {Operation::mfma_f32_32x32x16_f16, {{33, 2, 1, 10}}, {{33, 2, 1, 10}}, {{33, 5, 13, 1}}},
      {Operation::mfma_i32_16x16x64_i8,
       {{0, 15, 0, 15}, {16, 0, 0, 16}, {63, 15, 15, 63}},
       {{35, 4, 3, 36}},
       {{50, 3, 15, 2}}},
      {Operation::mfma_i32_32x32x32_i8,
       {{32, 0, 0, 16}, {63, 15, 31, 31}},
       {{33, 2, 1, 18}},
       {{33, 5, 13, 1}}},
      {Operation::mfma_f32_16x16x32_e4m3fn, {{35, 4, 3, 20}}, {{16, 1, 0, 9}}, {{50, 3, 15, 2}}},
      {Operation::mfma_f32_32x32x16_e4m3fn, {{32, 0, 0, 8}}, {{33, 2, 1, 10}}, {{33, 5, 13, 1}}},
      {Operation::mfma_scale_f32_16x16x128_fp4,
       {{0, 0, 0, 0}, {0, 31, 0, 31}, {15, 0, 15, 0}, {16, 0, 0, 32}, {35, 4, 3, 68}, {63, 31, 15, 127}},
       {{16, 1, 0, 33}, {63, 31, 15, 127}},
       {{0, 1, 1, 0}, {16, 0, 4, 0}, {50, 3, 15, 2}}},
      {Operation::mfma_scale_f32_32x32x64_fp4,
       {{0, 31, 0, 31}, {32, 0, 0, 32}, {63, 31, 31, 63}},
       {{33, 2, 1, 34}},
       {{0, 4, 8, 0}, {33, 5, 13, 1}}},
      {Operation::mma_m16n8k16_bf16,
       // a0, a1: row groupID, k 2 * lane % 4; a2, a3: row + 8; a4 to a7: k + 8.
       {{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 2, 8, 0}, {0, 4, 0, 8}, {0, 7, 8, 9}, {5, 0, 1, 2}, {31, 7, 15, 15}},
       {{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 2, 0, 8}, {6, 3, 1, 13}, {31, 3, 7, 15}},
       {{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 2, 8, 0}, {5, 0, 1, 2}, {31, 3, 15, 7}}},
      {Operation::mma_m16n8k16_f16, {{9, 5, 2, 11}}, {{9, 2, 2, 10}}, {{9, 3, 10, 3}}},
      {Operation::mma_m16n8k32_e4m3,
       {{0, 0, 0, 0}, {0, 3, 0, 3}, {0, 4, 8, 0}, {0, 8, 0, 16}, {1, 0, 0, 4}, {31, 15, 15, 31}},
       {{0, 0, 0, 0}, {0, 4, 0, 16}, {7, 1, 1, 13}, {31, 7, 7, 31}},
       {{31, 3, 15, 7}}},
  };
  return all;
}

TEST(MatrixLayouts, AreThoseOfTheDocuments) {
  for (const Layout& layout : layouts()) {
    const MatrixInstruction* one = find_instruction(layout.operation);
    ASSERT_NE(one, nullptr);
    const auto expect_entries = [&](const std::vector<Entry>& entries, auto position, const char* operand) {
      for (const Entry& entry : entries) {
        const Position at = position(*one, entry.lane, entry.index);
        EXPECT_EQ(at.row, entry.row) << one->name << " " << operand << " lane " << entry.lane << " value "
                                     << entry.index;
        EXPECT_EQ(at.column, entry.column)
            << one->name << " " << operand << " lane " << entry.lane << " value " << entry.index;
      }
    };
    expect_entries(layout.a, position_in_a, "A");
    expect_entries(layout.b, position_in_b, "B");
    expect_entries(layout.d, position_in_d, "D");
  }
}

TEST(MatrixLayouts, EachElementIsInOneLane) {
  for (const Layout& layout : layouts()) {
    const MatrixInstruction& one = *find_instruction(layout.operation);
    const auto places = [&](auto position, int count) {
      std::set<std::pair<int, int>> seen;
      for (int lane = 0; lane < one.lanes; ++lane)
        for (int i = 0; i < count; ++i) {
          const Position at = position(one, lane, i);
          seen.insert({at.row, at.column});
        }
      return static_cast<int>(seen.size());
    };
    EXPECT_EQ(places(position_in_a, one.rows * one.depth / one.lanes), one.rows * one.depth) << one.name;
    EXPECT_EQ(places(position_in_b, one.columns * one.depth / one.lanes), one.columns * one.depth)
        << one.name;
    EXPECT_EQ(places(position_in_d, one.rows * one.columns / one.lanes), one.rows * one.columns) << one.name;
  }
}

/// 1 at one place of A and 2 at one of B: one element of D.
TEST(MatrixLayouts, AProductOfTwoElementsIsWhereItBelongs) {
  const MatrixInstruction& one = *find_instruction(Operation::mfma_f32_16x16x16_bf16);
  struct alignas(16) In {
    std::array<std::uint16_t, 4> a{}, b{};
    std::array<float, 4> c{};
  };
  std::array<In, 64> in{};
  std::array<std::array<float, 4>, 64> out{};
  in[16 + 3].a[1] = 0x3f80;  // A[3][5] = 1
  in[16 + 9].b[1] = 0x4000;  // B[9][5] = 2
  in[9].c[3] = 0.5F;         // C[3][9]
  std::array<const void*, 64> from{};
  std::array<void*, 64> to{};
  for (std::size_t i = 0; i < 64; ++i) {
    from[i] = &in[i];
    to[i] = out[i].data();
  }
  execute(one, from.data(), to.data());
  for (std::size_t lane = 0; lane < 64; ++lane)
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(out[lane][i], lane == 9 && i == 3 ? 2.5F : 0.0F) << lane << " " << i;
}

/// A scale belongs to the 32 elements of its own lane: 1 of A, 3 of B, with scales of 4 and 1/2 there and others elsewhere.
TEST(MatrixLayouts, AScaleIsOfTheElementsOfItsLane) {
  const MatrixInstruction& one = *find_instruction(Operation::mfma_scale_f32_16x16x128_fp4);
  struct In {
    std::array<std::uint8_t, 32> a{}, b{};
    std::array<float, 4> c{};
    std::uint32_t a_scale = 130, b_scale = 0xffffff83;  // only the lowest byte counts
  };
  std::array<In, 64> in{};
  std::array<std::array<float, 4>, 64> out{};
  in[32 + 3].a[5] = 0x20;  // A[3][64 + 11] = 1
  in[32 + 9].b[5] = 0x50;  // B[9][64 + 11] = 3
  in[32 + 3].a_scale = 129;
  in[32 + 9].b_scale = 126;
  in[9].c[3] = 0.5F;  // C[3][9]
  std::array<const void*, 64> from{};
  std::array<void*, 64> to{};
  for (std::size_t i = 0; i < 64; ++i) {
    from[i] = &in[i];
    to[i] = out[i].data();
  }
  execute(one, from.data(), to.data());
  for (std::size_t lane = 0; lane < 64; ++lane)
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(out[lane][i], lane == 9 && i == 3 ? 6.5F : 0.0F) << lane << " " << i;
}

}  // namespace
}  // namespace gemmtune::emulation
