// The matrix instructions: where the lanes of a wave hold the elements of the operands, and what comes out.
#pragma once

#include <string_view>

#include "support/emulation/interface.h"

namespace gemmtune::emulation {

/// Of D[i][j] = sum over k of A[i][k] · B[j][k] + C[i][j], rows × columns × depth, and its operands in lanes. Scaled ones: each lane
/// has the scale of its 32 elements, the lowest byte of a word, behind C: of A, then of B.
struct MatrixInstruction {
  Operation operation;
  std::string_view name;  // in the ISA document
  int rows, columns, depth;
  enum class Element { f16, bf16, e4m3fnuz, e4m3fn, i8, fp4 } element;
  int lanes;

  int operand_bits() const {
    return element == Element::f16 || element == Element::bf16 ? 16 : element == Element::fp4 ? 4 : 8;
  }
};

/// Null for what is no matrix instruction.
const MatrixInstruction* find_instruction(Operation operation);

struct Position {
  int row, column;  // of D; of A and B: the row i or j, and k
};
/// What value `index` of lane `lane` is: of A, of B, of C and D.
Position position_in_a(const MatrixInstruction& instruction, int lane, int index);
Position position_in_b(const MatrixInstruction& instruction, int lane, int index);
Position position_in_d(const MatrixInstruction& instruction, int lane, int index);

/// All lanes' operands, each as the kernel's code passes them (A, B, C), and where each lane's D goes.
void execute(const MatrixInstruction& instruction, const void* const* in, void* const* out);

}  // namespace gemmtune::emulation
