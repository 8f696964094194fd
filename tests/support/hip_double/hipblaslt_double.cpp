// libhipblaslt: products by plain loops in float64, and a table of solutions that differ in their times.
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/hip/hip_api.h"
#include "base/hash.h"
#include "numbers/data_type.h"
#include "support/hip_double/hip_double.h"

using namespace gemmtune::hip_double;
using namespace gemmtune::hip::api;

namespace {

constexpr int first_index = 1000;
constexpr int invalid_value = 3;
constexpr int not_supported = 7;

struct Matmul {
  int transpose_a = operation_none;
  int transpose_b = operation_none;
  int epilogue = 1;
  int bias_type = type_f32;
  const void* bias = nullptr;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
};
struct Layout {
  int type = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading = 0;
  std::int32_t batches = 1;
  std::int64_t batch_stride = 0;
};
struct Handle {
  std::atomic<HipStream> stream =
      nullptr;  // of its first product: those of another one would share its memory
};
struct Preference {
  std::uint64_t workspace_bytes = 0;
};

Matmul& of(LtMatmul matmul) { return *reinterpret_cast<Matmul*>(matmul); }
Layout& of(LtLayout layout) { return *reinterpret_cast<Layout*>(layout); }

/// What the library would have compiled in: 24 solutions of which some take no product, some split k.
int solutions() { return static_cast<int>(number("HIP_DOUBLE_LT_SOLUTIONS", 24)); }
int place_of(const LtAlgorithm& algorithm) {
  int index = 0;
  std::memcpy(&index, algorithm.data, sizeof(index));
  return index - first_index;
}
bool exists(int place) { return place >= 0 && place < solutions(); }
LtHeuristic solution_at(int place) {
  LtHeuristic one{};
  const int index = first_index + place;
  std::memcpy(one.algorithm.data, &index, sizeof(index));
  one.algorithm.max_workspace_bytes = std::size_t{32} << 20;
  one.waves = 1;
  return one;
}
/// HIP_DOUBLE_LT_MOVED: another build, whose solutions stand elsewhere.
std::string name_at(int place) {
  const int moved = (place + static_cast<int>(number("HIP_DOUBLE_LT_MOVED", 0))) % solutions();
  return "Cijk_Alik_Bljk_BBS_BH_Bias_UserArgs_MT" + std::to_string(16 << moved % 4) + "x64x64_SN_SK" +
         std::to_string(moved);
}

bool is_type(int type) {
  return type == type_f32 || type == type_f16 || type == type_bf16 || type == type_e4m3 ||
         type == type_e4m3_fnuz;
}
gemmtune::DataType data_type(int type) {
  switch (type) {
    case type_f16:
      return gemmtune::DataType::f16;
    case type_bf16:
      return gemmtune::DataType::bf16;
    case type_e4m3:
      return gemmtune::DataType::f8_e4m3fn;
    case type_e4m3_fnuz:
      return gemmtune::DataType::f8_e4m3fnuz;
    default:
      return gemmtune::DataType::f32;
  }
}

double value_at(int type, const void* data, std::uint64_t index) {
  const gemmtune::DataType element = data_type(type);
  return gemmtune::traits(element).to_f32(
      gemmtune::element_bits(element, data, static_cast<std::int64_t>(index)));
}
void store(int type, void* data, std::uint64_t index, float value) {
  const gemmtune::DataTypeTraits& row = gemmtune::traits(data_type(type));
  const std::uint32_t bits = row.from_f32(value);
  const auto bytes = static_cast<std::size_t>(row.bits / 8);
  std::memcpy(static_cast<char*>(data) + index * bytes, &bits, bytes);
}

/// Sizes and types that belong together; the MI300X has AMD's fp8 alone.
bool is_product(const Matmul& matmul, const Layout& a, const Layout& b, const Layout& d) {
  const bool a_turned = matmul.transpose_a == operation_transpose;
  const bool b_turned = matmul.transpose_b == operation_transpose;
  const bool sizes = (a_turned ? a.columns : a.rows) == d.rows &&
                     (b_turned ? b.rows : b.columns) == d.columns &&
                     (a_turned ? a.rows : a.columns) == (b_turned ? b.columns : b.rows);
  const bool ocp_only = text("HIP_DOUBLE_ARCH", "gfx942").starts_with("gfx950");
  const bool other_fp8 = a.type == (ocp_only ? type_e4m3_fnuz : type_e4m3);
  // As the library: without their pointers a bias and scales are none, and an fp8 product needs scales.
  const bool pointers = (matmul.epilogue != epilogue_bias || matmul.bias != nullptr) &&
                        ((a.type != type_e4m3 && a.type != type_e4m3_fnuz) ||
                         (matmul.a_scale != nullptr && matmul.b_scale != nullptr));
  const bool batches = a.batches == d.batches && b.batches == d.batches && d.batches >= 1;
  return sizes && batches && pointers && is_type(a.type) && a.type == b.type && is_type(d.type) && !other_fp8;
}

double microseconds_of(const Layout& a, const Layout& b, const Layout& d, int place) {
  const double k = static_cast<double>(a.rows) * static_cast<double>(a.columns) / static_cast<double>(d.rows);
  const double work = 2 * static_cast<double>(d.rows) * static_cast<double>(d.columns) * k * d.batches;
  const std::string key =
      std::to_string(d.rows) + "x" + std::to_string(d.columns) + "x" + std::to_string(place);
  (void)b;
  return (4 + work / 400e6) * (1 + 0.02 * static_cast<double>(gemmtune::hash64(key) % 20));
}

}  // namespace

extern "C" {

int hipblasLtGetVersion(LtHandle, int* version) {
  *version = static_cast<int>(number("HIP_DOUBLE_LT_VERSION", 1000));  // 0.10.0
  return 0;
}

int hipblasLtGetGitRevision(LtHandle, char* revision) {
  std::strcpy(revision, text("HIP_DOUBLE_LT_REVISION", "bb5fd0e2").c_str());
  return 0;
}

int hipblasLtCreate(LtHandle* handle) {
  if (const int failed = enter("hipblasLtCreate"); failed != 0) return failed;
  *handle = new Handle;
  return 0;
}

int hipblasLtDestroy(LtHandle handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}

int hipblasLtMatmulDescCreate(LtMatmul* matmul, int compute, int scale) {
  if (compute != compute_f32 || scale != type_f32) return invalid_value;
  *matmul = reinterpret_cast<LtMatmul>(new Matmul);
  return 0;
}

int hipblasLtMatmulDescDestroy(LtMatmul matmul) {
  delete &of(matmul);
  return 0;
}

int hipblasLtMatmulDescSetAttribute(LtMatmul matmul, int attribute, const void* value, std::size_t bytes) {
  Matmul& target = of(matmul);
  const std::map<int, std::pair<void*, std::size_t>> fields{
      {matmul_transpose_a, {&target.transpose_a, 4}}, {matmul_transpose_b, {&target.transpose_b, 4}},
      {matmul_epilogue, {&target.epilogue, 4}},       {matmul_bias_pointer, {&target.bias, 8}},
      {matmul_bias_type, {&target.bias_type, 4}},     {matmul_a_scale_pointer, {&target.a_scale, 8}},
      {matmul_b_scale_pointer, {&target.b_scale, 8}},
  };
  const auto found = fields.find(attribute);
  if (found == fields.end() || found->second.second != bytes) return invalid_value;
  std::memcpy(found->second.first, value, bytes);
  return 0;
}

int hipblasLtMatrixLayoutCreate(LtLayout* layout, int type, std::uint64_t rows, std::uint64_t columns,
                                std::int64_t leading) {
  *layout = reinterpret_cast<LtLayout>(
      new Layout{.type = type, .rows = rows, .columns = columns, .leading = leading});
  return 0;
}

int hipblasLtMatrixLayoutDestroy(LtLayout layout) {
  delete &of(layout);
  return 0;
}

int hipblasLtMatrixLayoutSetAttribute(LtLayout layout, int attribute, const void* value, std::size_t bytes) {
  Layout& target = of(layout);
  const std::map<int, std::pair<void*, std::size_t>> fields{{layout_leading_dimension, {&target.leading, 8}},
                                                            {layout_batch_count, {&target.batches, 4}},
                                                            {layout_batch_stride, {&target.batch_stride, 8}}};
  const auto found = fields.find(attribute);
  if (found == fields.end() || found->second.second != bytes) return invalid_value;
  std::memcpy(found->second.first, value, bytes);
  return 0;
}

int hipblasLtMatmulPreferenceCreate(LtPreference* preference) {
  *preference = reinterpret_cast<LtPreference>(new Preference);
  return 0;
}

int hipblasLtMatmulPreferenceDestroy(LtPreference preference) {
  delete reinterpret_cast<Preference*>(preference);
  return 0;
}

int hipblasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute, const void* value,
                                          std::size_t bytes) {
  if (attribute != preference_workspace_bytes || bytes != 8) return invalid_value;
  std::memcpy(&reinterpret_cast<Preference*>(preference)->workspace_bytes, value, bytes);
  return 0;
}

/// Every third solution, which the others beat now and then.
int hipblasLtMatmulAlgoGetHeuristic(LtHandle, LtMatmul matmul, LtLayout a, LtLayout b, LtLayout, LtLayout d,
                                    LtPreference, int wanted, LtHeuristic* results, int* count) {
  if (const int failed = enter("hipblasLtMatmulAlgoGetHeuristic"); failed != 0) return failed;
  *count = 0;
  if (!is_product(of(matmul), of(a), of(b), of(d))) return not_supported;
  for (int place = 0; place < solutions() && *count < wanted; place += 3)
    results[(*count)++] = solution_at(place);
  return 0;
}

int hipblasLtMatmul(LtHandle handle, LtMatmul matmul, const void* alpha, const void* a_data,
                    LtLayout a_layout, const void* b_data, LtLayout b_layout, const void* beta, const void*,
                    LtLayout, void* d_data, LtLayout d_layout, const LtAlgorithm* algorithm, void* workspace,
                    std::size_t workspace_bytes, HipStream stream) {
  if (const int failed = enter("hipblasLtMatmul"); failed != 0) return failed;
  HipStream used = nullptr;
  if (!static_cast<Handle*>(handle)->stream.compare_exchange_strong(used, stream) && used != stream &&
      !is_capturing(stream))
    return invalid_value;
  const Matmul& one = of(matmul);
  const Layout& a = of(a_layout);
  const Layout& b = of(b_layout);
  const Layout& d = of(d_layout);
  const int place = place_of(*algorithm);
  if (!exists(place) || !is_product(one, a, b, d)) return not_supported;
  if (workspace_bytes != 0 && !is_device_memory(workspace, workspace_bytes)) return invalid_value;
  if (!enqueue(stream, {microseconds_of(a, b, d, place), nullptr})) return 0;
  const bool a_turned = one.transpose_a == operation_transpose;
  const bool b_turned = one.transpose_b == operation_transpose;
  const std::uint64_t k = a_turned ? a.rows : a.columns;
  const bool wrong = number("HIP_DOUBLE_LT_WRONG", -1) == place + first_index;
  const double factor = *static_cast<const float*>(alpha) * (one.a_scale != nullptr ? *one.a_scale : 1.0F) *
                        (one.b_scale != nullptr ? *one.b_scale : 1.0F);
  if (*static_cast<const float*>(beta) != 0) return not_supported;
  for (std::uint64_t batch = 0; batch < static_cast<std::uint64_t>(d.batches); ++batch) {
    const auto at = [&](const Layout& layout, bool turned, std::uint64_t row, std::uint64_t column) {
      const auto leading = static_cast<std::uint64_t>(layout.leading);
      return batch * static_cast<std::uint64_t>(layout.batch_stride) +
             (turned ? row * leading + column : column * leading + row);
    };
    for (std::uint64_t column = 0; column < d.columns; ++column) {
      for (std::uint64_t row = 0; row < d.rows; ++row) {
        double sum = 0;
        for (std::uint64_t i = wrong ? 1 : 0; i < k; ++i) {
          sum += value_at(a.type, a_data, at(a, a_turned, row, i)) *
                 value_at(b.type, b_data, at(b, b_turned, i, column));
        }
        sum *= factor;
        if (one.epilogue == epilogue_bias) sum += value_at(d.type, one.bias, row);
        store(d.type, d_data, at(d, false, row, column), static_cast<float>(sum));
      }
    }
  }
  return 0;
}

}  // extern "C"

// The library's C++ functions, under the names that its compiler gives them.
enum hipblasOperation_t : int {};
enum hipDataType : int {};
enum hipblasComputeType_t : int {};
enum hipblasStatus_t : int {};
struct hipblasLtMatmulDescOpaque_t;
struct hipblasLtMatrixLayoutOpaque_t;
struct _hipblasLtMatmulAlgo_t : LtAlgorithm {};
struct _hipblasLtMatmulHeuristicResult_t : LtHeuristic {};

namespace hipblaslt_ext {

enum class GemmType : int {};

hipblasStatus_t getAllAlgos(void*, GemmType, hipblasOperation_t, hipblasOperation_t, hipDataType, hipDataType,
                            hipDataType, hipDataType, hipblasComputeType_t,
                            std::vector<_hipblasLtMatmulHeuristicResult_t>& results) {
  if (const int failed = enter("getAllAlgos"); failed != 0) return static_cast<hipblasStatus_t>(failed);
  results.clear();
  for (int place = 0; place < solutions(); ++place) results.push_back({solution_at(place)});
  return {};
}

hipblasStatus_t getAlgosFromIndex(void*, std::vector<int>& indices,
                                  std::vector<_hipblasLtMatmulHeuristicResult_t>& results) {
  results.clear();
  for (const int index : indices)
    if (exists(index - first_index)) results.push_back({solution_at(index - first_index)});
  return static_cast<hipblasStatus_t>(results.empty() ? invalid_value : 0);
}

int getIndexFromAlgo(_hipblasLtMatmulAlgo_t& algorithm) { return place_of(algorithm) + first_index; }

std::string getSolutionNameFromAlgo(void*, _hipblasLtMatmulAlgo_t& algorithm) {
  const int place = place_of(algorithm);
  return exists(place) ? name_at(place) : std::string();
}

hipblasStatus_t matmulIsAlgoSupported(void*, hipblasLtMatmulDescOpaque_t* matmul, const void*,
                                      hipblasLtMatrixLayoutOpaque_t* a, hipblasLtMatrixLayoutOpaque_t* b,
                                      const void*, hipblasLtMatrixLayoutOpaque_t*,
                                      hipblasLtMatrixLayoutOpaque_t* d, _hipblasLtMatmulAlgo_t& algorithm,
                                      std::size_t& workspace_bytes) {
  const int place = place_of(algorithm);
  const bool taken = exists(place) && place % 5 != 4 &&
                     is_product(*reinterpret_cast<Matmul*>(matmul), *reinterpret_cast<Layout*>(a),
                                *reinterpret_cast<Layout*>(b), *reinterpret_cast<Layout*>(d));
  workspace_bytes = place % 7 == 6 ? std::size_t{1} << 16 : 0;
  return static_cast<hipblasStatus_t>(taken ? 0 : not_supported);
}

}  // namespace hipblaslt_ext
