// The CSV tables of AITER, one row of a list each: which columns, in which order, under which names.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "problem/problem.h"

namespace gemmtune {

/// What a column means. Its name differs from table to table (M is `token` for fused MoE, an error `errRatio`
/// or `err_ratio`).
enum class Column {
  gfx,
  cu_num,
  batch,
  m,
  n,
  k,
  bias,
  dtype,
  outdtype,
  scale_ab,
  bpreshuffle,
  q_dtype_a,
  q_dtype_w,
  q_type,
  experts,
  topk,
  act_type,
  use_g1u1,
  doweight_stage1,
  w_group,  // group
  zero_points,
  libtype,
  solidx,  // kernelId
  block_m,
  split_k,  // ksplit
  us,
  us1,
  us2,
  kernel_name,  // kernelName1
  kernel_name2,
  err_ratio,
  err1,
  err2,
  run_1stage,
  xbf16,
  flat,
  tflops,
  bw,
  tag,
  // gemmtune's own
  spread,
  default_us,
  default_kernel,
  speedup,
  verdict,
  ties,
  m_from,
  regret,
  pdl_kernel_name,
  pdl_us,
  env,
  accuracy,
  speedup_low,
  speedup_high,
  bits,  // only in files that have such rows: is_rare()
  shared_experts,
  routing,
  // of shape lists
  calls,
  layer,
};
inline constexpr std::size_t column_count = static_cast<std::size_t>(Column::layer) + 1;

/// AITER's tables of operations in the operations' order, those that are only read, and from `own` on the tables of the operations
/// that AITER has none for.
enum class TableKind : int {
  bf16,
  a8w8,
  a8w8_bpreshuffle,
  a8w8_blockscale,
  a8w8_blockscale_bpreshuffle,
  a4w4_blockscale,
  batched_bf16,
  batched_a8w8,
  fused_moe,
  batched_mxscale,  // read only, as the next two
  heterogeneous_moe,
  grouped_moe,
  own,
};

struct SchemaColumn {
  Column column = Column::gfx;
  std::string_view name;
  std::array<std::string_view, 2> older_names;
};

/// One table. The columns of the key come first and in the key's order.
struct Schema {
  TableKind kind = TableKind::bf16;
  std::string_view name;  // of the table, for people: that of its operation, or its own
  OperationForm operation = Operation::a16w16;
  std::string_view tuned_name;            // AITER's base name: "bf16_tuned_gemm"
  std::string_view untuned_name;          // "bf16_untuned_gemm"
  std::span<const SchemaColumn> columns;  // AITER's, in the order of a new file
  std::size_t key_columns = 0;            // so many of them are the key
  std::span<const std::string_view>
      further_keys;  // key columns that no Problem holds; their cells are kept as text
  /// Rows answer look-ups and can be written; else the table is only read.
  bool dispatched = true;

  std::span<const SchemaColumn> key() const { return columns.first(key_columns); }
  bool has(Column column) const;
  bool in_key(Column column) const;
  /// The name of a column in this table; gemmtune's own and those of shape lists have one name everywhere.
  std::string_view column_name(Column column) const;
  std::optional<Column> column_of(std::string_view name) const;
};

/// What a column means, in sentences for people.
std::string_view describe(Column column);
/// Every name of a column in AITER's tables and ours, the usual one first; older ones too.
std::vector<std::string_view> column_names(Column column);

const Schema& schema_of(OperationForm operation);
const Schema& schema_of(TableKind kind);
/// Tables of our own, named as their operations: "a16w4_tuned_gemm".
std::span<const Schema> own_schemas();

/// The columns that gemmtune adds behind AITER's.
std::span<const SchemaColumn> own_columns();
/// True of those of them that a file has only where a row has a cell.
constexpr bool is_rare(Column column) { return column == Column::bits; }

/// "bf16_tuned_gemm.csv" and "bf16_untuned_gemm.csv": AITER's names, and those of the config folder.
std::string tuned_file_name(OperationForm operation);
std::string untuned_file_name(OperationForm operation);

}  // namespace gemmtune
