#include "generated_tables.h"

#include <fmt/format.h>

#include "base/text.h"
#include "formats/aiter/schema.h"

namespace gemmtune::test {
namespace {

const std::vector<int> sizes{1,  2,  3,  8,  15, 16, 17,  20,  24,  31,  32,
                             33, 48, 64, 65, 80, 96, 128, 300, 512, 8192};

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (line.empty() ? "" : ",") + cell;
  return line + "\n";
}

}  // namespace

std::string Generator::cell(const std::string& column, OperationForm operation) {
  const bool moe = operation == Operation::fused_moe;
  if (column == "gfx") return pick<std::string>({"gfx950", "gfx950", "gfx950", "gfx942"});
  if (column == "cu_num") return pick<std::string>({"256", "256", "304"});
  if (column == "M" || column == "token") return std::to_string(pick(sizes));
  if (column == "N" || column == "inter_dim") return pick<std::string>({"512", "512", "8192"});
  if (column == "K" || column == "model_dim") return "1024";
  if (column == "B") return pick<std::string>({"4", "8"});
  if (column == "bias" || column == "scaleAB" || column == "bpreshuffle") {
    return pick<std::string>({"False", "False", "False", "false", "0"});
  }
  if (column == "dtype" || column == "outdtype") return "torch.bfloat16";
  if (column == "q_dtype_a") return "torch.float8_e4m3fn";
  if (column == "q_dtype_w") {
    const std::string known = moe ? "torch.float8_e4m3fn" : "torch.int8";
    return pick<std::string>({known, known, known, known, known, "torch.uint32"});
  }
  if (column == "expert") return "8";
  if (column == "topk") return "2";
  if (column == "act_type")
    return pick<std::string>({"ActivationType.Silu", "ActivationType.Silu", "ActivationType.Gelu"});
  if (column == "q_type") return "QuantType.per_Token";
  if (moe && (column == "group" || column == "zero_points")) return "";  // of int4 weights alone
  if (column == "group") return pick<std::string>({"128", "128", "32", "row", "1024", "48"});
  if (column == "zero_points") return pick<std::string>({"False", "False", "True", "maybe"});
  if (column == "use_g1u1" || column == "xbf16") return pick<std::string>({"0", "1"});
  if (column == "doweight_stage1") return "0";
  if (column == "run_1stage") return pick<std::string>({"0", "1", "True", "False", "1.0", "perhaps"});
  if (column == "flat") return pick<std::string>({"0", "1", "2", "", "12.5"});
  if (column == "libtype") return pick<std::string>({"asm", "ck"});
  if (column == "solidx" || column == "kernelId" || column == "splitK" || column == "ksplit") {
    return pick<std::string>({"0", "0", "0", "3"});
  }
  if (column == "us" || column == "us1" || column == "us2") {
    return pick<std::string>({"5.0", "6.25", "7.12345678", "9.5", "0.0", "inf", "-1", ""});
  }
  if (column == "kernelName" || column == "kernelName1")
    return pick<std::string>({"a", "a", "a", "b", "\"c,d\""});
  if (column == "kernelName2") return pick<std::string>({"", "Null", "e"});
  if (column == "err_ratio" || column == "errRatio")
    return pick<std::string>({"0.0", "0.0", "0.0312345678", "0.5", ""});
  if (column == "err1" || column == "err2")
    return pick<std::string>({"0.0%", "3.8%", "1.2345%", "0.0123456", "50%"});
  if (column == "tflops" || column == "bw") return pick<std::string>({"", "0.0", "12.5"});
  if (column == "_tag") return pick<std::string>({"", "", "", "flydsl_fallback", "exact"});
  if (column == "m_from") return pick<std::string>({"", "", "", "", "2", "17"});
  return pick<std::string>({"", "", "text", "\"a \"\"b\"\"\"", "1e-3"});
}

std::string Generator::tuned_table(OperationForm operation) {
  std::vector<std::string> columns;
  for (const SchemaColumn& column : schema_of(operation).columns) {
    const bool drop = (column.column == Column::tag || column.column == Column::xbf16) && one_in(2);
    if (!drop) columns.emplace_back(column.name);
  }
  if (one_in(3)) columns.emplace_back("m_from");
  if (one_in(3)) columns.insert(columns.begin() + static_cast<std::ptrdiff_t>(below(columns.size())), "mood");
  if (one_in(4)) columns.emplace_back("mood");
  if (one_in(8)) columns.emplace_back("");
  std::string text = line_of(columns);
  const std::uint64_t rows = 1 + below(24);
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) cells.push_back(cell(column, operation));
    text += line_of(cells);
    if (one_in(12)) text += one_in(2) ? "\n" : "# by hand\n";
  }
  return text;
}

std::string Generator::convertible_table() {
  std::string text =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_"
      "ratio,"
      "tflops,bw,spread,mood\n";
  const std::uint64_t rows = 1 + below(12);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::string kernel = pick<std::string>(
        {"triton,0,0,{},BM16_BN64_BK64_GM1_nW4", "triton,0,2,{},BM16_BN64_BK64_SK2_nW4_schedNONE",
         "triton,0,0,{},BLOCK_SIZE_M=16;NUM_WARPS=4", "hipblaslt,4711,0,{},Cijk_a", "asm,0,0,{},a"});
    text +=
        fmt::format("gfx942,304,{},512,1024,{},torch.float16,torch.float16,False,False,{},{},,,{},{}\n",
                    pick(sizes), one_in(6) ? "True" : "False",
                    fmt::format(fmt::runtime(kernel), pick<std::string>({"5.0", "6.25", "", "7.12345678"})),
                    pick<std::string>({"0.0", "0.01", ""}), pick<std::string>({"", "0.1"}),
                    pick<std::string>({"", "fine"}));
  }
  return text;
}

std::string Generator::triton_config() {
  std::string text = "{";
  const std::vector<std::string> keys{"M_LEQ_1",    "M_LEQ_16", "M_LEQ_64",  "M_LEQ_320", "any",
                                      "M_GEQ_4096", "_note",    "made_note", "small_M",   "medium_M",
                                      "large_M",    "xlarge",   "small_M32"};
  const std::uint64_t count = 1 + below(6);
  for (std::uint64_t index = 0; index < count; ++index) {
    const std::string& key = pick(keys);
    const std::string value =
        key.find("note") != std::string::npos
            ? "\"by hand\""
            : fmt::format(R"({{"BLOCK_SIZE_M": {}, "cache_modifier": {}, "text": {}, "on": true}})",
                          16 << below(4), pick<std::string>({"null", "\".cg\""}),
                          pick<std::string>({"\"a;b=1\"", "\"7\"", "\"\""}));
    text += fmt::format("{}\"{}\": {}", index == 0 ? "" : ", ", key, value);
  }
  return text + "}";
}

std::string Generator::tune_gemm_results() {
  std::string text;
  const std::uint64_t count = 1 + below(8);
  for (std::uint64_t index = 0; index < count; ++index) {
    text += fmt::format("- {{'M': {}, 'N': 512, 'K': 1024", pick(sizes));
    if (one_in(2))
      text += fmt::format(", 'rowMajorA': '{0}', 'rowMajorB': '{0}'", pick<std::string>({"T", "N"}));
    if (!one_in(5)) text += ", 'BLOCK_SIZE_M': 16, 'num_warps': 4";
    if (one_in(3))
      text += ", 'instruction_sched_variant': " + pick<std::string>({"'none'", "'local_prefetch'"});
    if (one_in(3)) text += ", 'NUM_SMS': 304, 'mode': " + pick<std::string>({"'a;b'", "fast", "'it''s'"});
    text += one_in(2) ? "} # TFLOPS: 0.03 time(us): 8.00\n" : "}\n";
  }
  return text;
}

std::string Generator::hipblaslt_table() {
  std::string text =
      "preshuffle, use_rowwise, trans_a, trans_b, m, n, k, A_data_type, lda, stride_a, B_data_type, ldb, "
      "stride_b, "
      "C_data_type, ldc, stride_c, compute_type, batch_count, algo_index, kernel_name\n";
  const std::uint64_t count = 1 + below(8);
  for (std::uint64_t index = 0; index < count; ++index) {
    const std::string type = pick<std::string>({"f16_r", "bf16_r", "<?>"});
    text += fmt::format("false,{},T,N,512,{},1024,{},1024,0,{},1024,0,{},512,0,f32_r,1,{},Cijk_{}\n",
                        one_in(6) ? "true" : "false", pick(sizes), type, type, type, below(5000), below(3));
  }
  return text;
}

std::string Generator::tunableop_results() {
  std::string text = "Validator,PT_VERSION,2.11.0\n";
  const std::uint64_t count = 1 + below(8);
  for (std::uint64_t index = 0; index < count; ++index) {
    text += fmt::format(
        "{}_{}_TN,tn_512_{}_1024_ld_1024_1024_512,{},0.0{}\n",
        pick<std::string>({"GemmTunableOp", "GemmAndBiasTunableOp", "GemmStridedBatchedTunableOp"}),
        pick<std::string>({"BFloat16", "Half", "float", "tf32"}), pick(sizes),
        pick<std::string>({"Default", "Gemm_Hipblaslt_12", "Gemm_Rocblas_3",
                           "Gemm_Cublaslt_id_66_tile_10_stages_35_splitk_5_red_2_swizzle_0_custom_1_"
                           "inner_0_cluster_4"}),
        1 + below(5000));
  }
  return text;
}

std::string Generator::shape_list() {
  std::string text = "M,N,K,dtype,calls,layer,mood\n";
  const std::uint64_t count = 1 + below(10);
  for (std::uint64_t index = 0; index < count; ++index) {
    text += fmt::format("{},512,1024,bf16,{},{},{}\n", pick(sizes), pick<std::string>({"1", "7", ""}),
                        pick<std::string>({"", "qkv"}), pick<std::string>({"", "fine"}));
  }
  return text;
}

std::string Generator::damaged(std::string text) {
  const std::uint64_t times = 1 + below(4);
  for (std::uint64_t time = 0; time < times && !text.empty(); ++time) {
    const std::size_t at = below(text.size());
    switch (below(5)) {
      case 0:
        text.erase(at, 1 + below(8));
        break;
      case 1:
        text[at] = pick<char>({',', '"', '\n', 'x', '-', '0', ' ', '\t', '#', '.'});
        break;
      case 2:
        text.insert(at, pick<std::string>({",", "\"", "\n", "1e309", "nan", ",,", "\xEF\xBB\xBF"}));
        break;
      case 3: {
        const std::size_t end = text.find('\n', at);
        text += text.substr(at, end == std::string::npos ? end : end + 1 - at);
        break;
      }
      default:
        if (one_in(6)) text.resize(at);
        break;
    }
  }
  return text;
}

}  // namespace gemmtune::test
