#include "formats/aiter/schema.h"

#include <algorithm>

#include "base/text.h"

namespace gemmtune {
namespace {

// Sources: the tables as AITER ships and has shipped them since December 2024; docs/tuned_csv.md says more.

constexpr std::array<SchemaColumn, 18> bf16_columns{{
    {Column::gfx, "gfx", {}},
    {Column::cu_num, "cu_num", {}},
    {Column::m, "M", {}},
    {Column::n, "N", {}},
    {Column::k, "K", {}},
    {Column::bias, "bias", {}},
    {Column::dtype, "dtype", {}},
    {Column::outdtype, "outdtype", {}},
    {Column::scale_ab, "scaleAB", {}},
    {Column::bpreshuffle, "bpreshuffle", {}},
    {Column::libtype, "libtype", {}},
    {Column::solidx, "solidx", {}},
    {Column::split_k, "splitK", {}},
    {Column::us, "us", {"soltimes"}},
    {Column::kernel_name, "kernelName", {}},
    {Column::err_ratio, "err_ratio", {"errRatio", "err1"}},
    {Column::tflops, "tflops", {}},
    {Column::bw, "bw", {}},
}};

/// The lists one behind another.
template <std::size_t... counts>
constexpr auto joined(const std::array<SchemaColumn, counts>&... lists) {
  std::array<SchemaColumn, (counts + ...)> all{};
  std::size_t at = 0;
  const auto append = [&](const auto& list) {
    for (const SchemaColumn& column : list) all[at++] = column;
  };
  (append(lists), ...);
  return all;
}

constexpr std::array<SchemaColumn, 2> device{{{Column::gfx, "gfx", {}}, {Column::cu_num, "cu_num", {}}}};
constexpr std::array<SchemaColumn, 3> sizes{
    {{Column::m, "M", {}}, {Column::n, "N", {}}, {Column::k, "K", {}}}};
constexpr std::array<SchemaColumn, 1> batch{{{Column::batch, "B", {}}}};
constexpr std::array<SchemaColumn, 1> weight_type{{{Column::q_dtype_w, "q_dtype_w", {}}}};
// Of the operations on 4-bit weights that AITER has no CSV tables for: ours, with the columns that it has elsewhere.
constexpr std::array<SchemaColumn, 5> weight_only_key{{{Column::bias, "bias", {}},
                                                       {Column::q_dtype_a, "q_dtype_a", {}},
                                                       {Column::q_dtype_w, "q_dtype_w", {}},
                                                       {Column::outdtype, "outdtype", {}},
                                                       {Column::bpreshuffle, "bpreshuffle", {}}}};
constexpr std::array<SchemaColumn, 2> group_key{
    {{Column::w_group, "group", {}}, {Column::zero_points, "zero_points", {}}}};
constexpr std::array<SchemaColumn, 1> library{{{Column::libtype, "libtype", {}}}};

/// What follows the key, and libtype where there is one, in the tables of all quantized and batched
/// operations.
constexpr std::array<SchemaColumn, 7> winner{{
    {Column::solidx, "kernelId", {}},
    {Column::split_k, "splitK", {}},
    {Column::us, "us", {}},
    {Column::kernel_name, "kernelName", {}},
    {Column::tflops, "tflops", {}},
    {Column::bw, "bw", {}},
    {Column::err_ratio, "errRatio", {"err_ratio", "err1"}},
}};

constexpr auto a8w8_columns = joined(device, sizes, weight_type, winner);
constexpr auto a8w8_bpreshuffle_columns = joined(device, sizes, weight_type, library, winner);
constexpr auto blockscale_columns = joined(device, sizes, library, winner);
constexpr auto a4w4_columns = joined(device, sizes, winner);
constexpr auto weight_only_columns = joined(device, sizes, weight_only_key, library, winner);
constexpr auto group_columns = joined(device, sizes, weight_only_key, group_key, library, winner);
constexpr auto batched_columns = joined(device, batch, sizes, winner);

constexpr std::array<SchemaColumn, 5> mxscale_key{{
    {Column::gfx, "gfx", {}},
    {Column::batch, "b", {}},
    {Column::m, "m", {}},
    {Column::n, "n", {}},
    {Column::k, "k", {}},
}};
constexpr auto mxscale_columns = joined(mxscale_key, library, winner);

// The tag and what is behind it are columns of a new file only where a row has them; the last five are ours.
constexpr std::array<SchemaColumn, 34> moe_columns{{
    {Column::gfx, "gfx", {}},
    {Column::cu_num, "cu_num", {}},
    {Column::m, "token", {}},
    {Column::k, "model_dim", {}},
    {Column::n, "inter_dim", {}},
    {Column::experts, "expert", {}},
    {Column::topk, "topk", {}},
    {Column::act_type, "act_type", {}},
    {Column::dtype, "dtype", {}},
    {Column::q_dtype_a, "q_dtype_a", {}},
    {Column::q_dtype_w, "q_dtype_w", {}},
    {Column::q_type, "q_type", {}},
    {Column::use_g1u1, "use_g1u1", {}},
    {Column::doweight_stage1, "doweight_stage1", {}},
    {Column::block_m, "block_m", {}},
    {Column::split_k, "ksplit", {}},
    {Column::us1, "us1", {}},
    {Column::kernel_name, "kernelName1", {}},
    {Column::err1, "err1", {"err"}},
    {Column::us2, "us2", {}},
    {Column::kernel_name2, "kernelName2", {}},
    {Column::err2, "err2", {}},
    {Column::us, "us", {"total_us"}},
    {Column::run_1stage, "run_1stage", {}},
    {Column::xbf16, "xbf16", {}},
    {Column::flat, "flat", {}},
    {Column::tflops, "tflops", {}},
    {Column::bw, "bw", {}},
    {Column::tag, "_tag", {"tag"}},
    {Column::shared_experts, "shared_experts", {}},
    {Column::bias, "bias", {}},
    {Column::w_group, "group", {}},
    {Column::zero_points, "zero_points", {}},
    {Column::routing, "routing", {}},
}};

constexpr std::array<SchemaColumn, 15> own{{
    {Column::spread, "spread", {}},
    {Column::default_us, "default_us", {}},
    {Column::default_kernel, "default_kernel", {}},
    {Column::speedup, "speedup", {}},
    {Column::verdict, "verdict", {}},
    {Column::ties, "ties", {}},
    {Column::m_from, "m_from", {}},
    {Column::regret, "regret", {}},
    {Column::pdl_kernel_name, "pdl_kernelName", {}},
    {Column::pdl_us, "pdl_us", {}},
    {Column::env, "env", {}},
    {Column::accuracy, "accuracy", {}},
    {Column::speedup_low, "speedup_low", {}},
    {Column::speedup_high, "speedup_high", {}},
    {Column::bits, "bits", {}},
}};

constexpr std::array<SchemaColumn, 2> of_shape_lists{{
    {Column::calls, "calls", {}},
    {Column::layer, "layer", {}},
}};

constexpr std::array<std::string_view, 4> heterogeneous_keys{"shared_expert_id", "hidden_pad",
                                                             "intermediate_pad", "gate_mode"};
constexpr std::array<std::string_view, 2> grouped_keys{"max_m", "gate_mode"};

using enum Operation;

constexpr std::array<Schema, 12> schemas{{
    {TableKind::bf16, "a16w16", a16w16, "bf16_tuned_gemm", "bf16_untuned_gemm", bf16_columns, 10, {}},
    {TableKind::a8w8, "a8w8", a8w8, "a8w8_tuned_gemm", "a8w8_untuned_gemm", a8w8_columns, 6, {}},
    {TableKind::a8w8_bpreshuffle,
     "a8w8_bpreshuffle",
     {a8w8, true},
     "a8w8_bpreshuffle_tuned_gemm",
     "a8w8_bpreshuffle_untuned_gemm",
     a8w8_bpreshuffle_columns,
     6,
     {}},
    {TableKind::a8w8_blockscale,
     "a8w8_blockscale",
     a8w8_blockscale,
     "a8w8_blockscale_tuned_gemm",
     "a8w8_blockscale_untuned_gemm",
     blockscale_columns,
     5,
     {}},
    {TableKind::a8w8_blockscale_bpreshuffle,
     "a8w8_blockscale_bpreshuffle",
     {a8w8_blockscale, true},
     "a8w8_blockscale_bpreshuffle_tuned_gemm",
     "a8w8_blockscale_bpreshuffle_untuned_gemm",
     blockscale_columns,
     5,
     {}},
    {TableKind::a4w4_blockscale,
     "a4w4_blockscale",
     a4w4_blockscale,
     "a4w4_blockscale_tuned_gemm",
     "a4w4_blockscale_untuned_gemm",
     a4w4_columns,
     5,
     {}},
    {TableKind::batched_bf16,
     "batched_bf16",
     batched_bf16,
     "bf16_tuned_batched_gemm",
     "bf16_untuned_batched_gemm",
     batched_columns,
     6,
     {}},
    {TableKind::batched_a8w8,
     "batched_a8w8",
     batched_a8w8,
     "a8w8_tuned_batched_gemm",
     "a8w8_untuned_batched_gemm",
     batched_columns,
     6,
     {}},
    {TableKind::fused_moe, "fused_moe", fused_moe, "tuned_fmoe", "untuned_fmoe", moe_columns, 14, {}},
    {TableKind::batched_mxscale,
     "batched mxscale",
     batched_a8w8,
     "batched_gemm_a8w8_blockscale_mxscale_tuned",
     "batched_gemm_a8w8_blockscale_mxscale_untuned",
     mxscale_columns,
     5,
     {},
     false},
    {TableKind::heterogeneous_moe, "heterogeneous MoE", fused_moe, "tuned_fhmoe", "untuned_fhmoe",
     moe_columns, 14, heterogeneous_keys, false},
    {TableKind::grouped_moe, "grouped MoE", fused_moe, "tuned_grouped_fmoe", "untuned_grouped_fmoe",
     moe_columns, 14, grouped_keys, false},
}};

constexpr OperationForm last_of_aiter = fused_moe;
static_assert(schemas[static_cast<std::size_t>(TableKind::grouped_moe)].kind == TableKind::grouped_moe,
              "a row per table, in the order of the enumeration");

/// What the names of a table point to.
struct OwnNames {
  std::string tuned;
  std::string untuned;
};

bool is_named(const SchemaColumn& column, std::string_view lowered) {
  if (to_lower(column.name) == lowered) return true;
  return std::ranges::any_of(column.older_names, [&](std::string_view older) {
    return !older.empty() && to_lower(older) == lowered;
  });
}

const SchemaColumn* find_column(std::span<const SchemaColumn> columns, Column column) {
  const auto at =
      std::ranges::find_if(columns, [&](const SchemaColumn& known) { return known.column == column; });
  return at == columns.end() ? nullptr : &*at;
}

}  // namespace

bool Schema::has(Column column) const { return find_column(columns, column) != nullptr; }
bool Schema::in_key(Column column) const { return find_column(key(), column) != nullptr; }

std::string_view Schema::column_name(Column column) const {
  for (const std::span<const SchemaColumn> list :
       {columns, std::span<const SchemaColumn>(own), std::span<const SchemaColumn>(of_shape_lists)}) {
    if (const SchemaColumn* known = find_column(list, column)) return known->name;
  }
  return {};
}

std::optional<Column> Schema::column_of(std::string_view column_name) const {
  const std::string lowered = to_lower(column_name);
  for (const std::span<const SchemaColumn> list :
       {columns, std::span<const SchemaColumn>(own), std::span<const SchemaColumn>(of_shape_lists)}) {
    for (const SchemaColumn& column : list) {
      if (is_named(column, lowered)) return column.column;
    }
  }
  return std::nullopt;
}

std::vector<std::string_view> column_names(Column column) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> older;
  const auto add = [](std::string_view name, std::vector<std::string_view>& list) {
    if (!name.empty() && std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  const auto add_of = [&](std::span<const SchemaColumn> columns) {
    if (const SchemaColumn* known = find_column(columns, column)) {
      add(known->name, names);
      for (const std::string_view name : known->older_names) add(name, older);
    }
  };
  for (const Schema& schema : schemas) add_of(schema.columns);
  for (const Schema& schema : own_schemas()) add_of(schema.columns);
  add_of(own);
  add_of(of_shape_lists);
  for (const std::string_view name : older) add(name, names);
  return names;
}

std::span<const Schema> own_schemas() {
  static const std::vector<OwnNames> names = [] {
    std::vector<OwnNames> made;
    for (const OperationForm operation : all_operation_forms()) {
      const std::string name(to_string(operation));
      if (operation > last_of_aiter) made.push_back({name + "_tuned_gemm", name + "_untuned_gemm"});
    }
    return made;
  }();
  static const std::vector<Schema> tables = [] {
    std::vector<Schema> made;
    for (const OperationForm operation : all_operation_forms()) {
      if (operation <= last_of_aiter) continue;
      const OwnNames& own_names = names[made.size()];
      const auto kind =
          static_cast<TableKind>(static_cast<int>(TableKind::own) + static_cast<int>(made.size()));
      const bool groups = has_weight_groups(default_problem(operation));
      const std::span<const SchemaColumn> columns =
          groups ? std::span<const SchemaColumn>(group_columns) : weight_only_columns;
      const std::size_t key =
          device.size() + sizes.size() + weight_only_key.size() + (groups ? group_key.size() : 0);
      made.push_back(
          {kind, to_string(operation), operation, own_names.tuned, own_names.untuned, columns, key, {}});
    }
    return made;
  }();
  return tables;
}

const Schema& schema_of(OperationForm operation) {
  const auto is_of = [operation](const Schema& schema) { return schema.operation == operation; };
  const auto* const of_aiter = std::ranges::find_if(schemas, is_of);
  return of_aiter != schemas.end() ? *of_aiter : *std::ranges::find_if(own_schemas(), is_of);
}
const Schema& schema_of(TableKind kind) {
  if (kind < TableKind::own) return schemas[static_cast<std::size_t>(kind)];
  return own_schemas()[static_cast<std::size_t>(kind) - static_cast<std::size_t>(TableKind::own)];
}
std::span<const SchemaColumn> own_columns() { return own; }

std::string tuned_file_name(OperationForm operation) {
  return std::string(schema_of(operation).tuned_name) + ".csv";
}
std::string untuned_file_name(OperationForm operation) {
  return std::string(schema_of(operation).untuned_name) + ".csv";
}

}  // namespace gemmtune
