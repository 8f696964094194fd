// Our declarations of hipBLASLt and AMD SMI against their headers, where some are found: GEMMTUNE_ROCM_HEADERS of the build, else
// /opt/rocm/include. Without them the tests are skipped.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/hip/hip_api.h"
#include "backends/hip/hip_driver.h"
#include "backends/hip/libraries.h"
#include "support/called_alike.h"

#define __HIP_PLATFORM_AMD__ 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-result"
#if __has_include(<hipblaslt/hipblaslt.h>) && __has_include(<hipblaslt/hipblaslt-ext.hpp>)
#include <hipblaslt/hipblaslt.h>

#include <hipblaslt/hipblaslt-ext.hpp>
#if HIP_VERSION >= 60100000  // ROCm 6.0's library names no solution, and gemmtune refuses it
#define HAS_HIPBLASLT 1
#endif
#endif
#if __has_include(<amd_smi/amdsmi.h>)
#include <amd_smi/amdsmi.h>
#define HAS_AMD_SMI 1
#endif
#pragma GCC diagnostic pop

#ifdef HAS_HIPBLASLT
// Weak: where a header's function has another signature, and with it another name than the double's, it is null.
namespace hipblaslt_ext {
extern decltype(getAllAlgos) getAllAlgos __attribute__((weak));
extern decltype(getAlgosFromIndex) getAlgosFromIndex __attribute__((weak));
extern decltype(getIndexFromAlgo) getIndexFromAlgo __attribute__((weak));
extern decltype(getSolutionNameFromAlgo) getSolutionNameFromAlgo __attribute__((weak));
extern decltype(matmulIsAlgoSupported) matmulIsAlgoSupported __attribute__((weak));
}  // namespace hipblaslt_ext
#endif

namespace gemmtune::hip {
namespace {

#ifndef HAS_HIPBLASLT

TEST(HipblasLtApi, AgreesWithTheHeaders) {
  GTEST_SKIP() << "no hipblaslt/hipblaslt.h of ROCm 6.1 or later (its package hipblaslt-dev, or cmake "
                  "-DGEMMTUNE_ROCM_HEADERS=FOLDER)";
}

#else

#define EXPECT_MULTIPLIES_ALIKE(field, function) \
  EXPECT_TRUE(test::called_alike(decltype(api::HipblasLt::field){}, &function)) << #function

TEST(HipblasLtApi, Functions) {
  EXPECT_MULTIPLIES_ALIKE(version, hipblasLtGetVersion);
  EXPECT_MULTIPLIES_ALIKE(revision, hipblasLtGetGitRevision);
  EXPECT_MULTIPLIES_ALIKE(create, hipblasLtCreate);
  EXPECT_MULTIPLIES_ALIKE(destroy, hipblasLtDestroy);
  EXPECT_MULTIPLIES_ALIKE(matmul_create, hipblasLtMatmulDescCreate);
  EXPECT_MULTIPLIES_ALIKE(matmul_destroy, hipblasLtMatmulDescDestroy);
  EXPECT_MULTIPLIES_ALIKE(matmul_set, hipblasLtMatmulDescSetAttribute);
  EXPECT_MULTIPLIES_ALIKE(layout_create, hipblasLtMatrixLayoutCreate);
  EXPECT_MULTIPLIES_ALIKE(layout_destroy, hipblasLtMatrixLayoutDestroy);
  EXPECT_MULTIPLIES_ALIKE(layout_set, hipblasLtMatrixLayoutSetAttribute);
  EXPECT_MULTIPLIES_ALIKE(preference_create, hipblasLtMatmulPreferenceCreate);
  EXPECT_MULTIPLIES_ALIKE(preference_destroy, hipblasLtMatmulPreferenceDestroy);
  EXPECT_MULTIPLIES_ALIKE(preference_set, hipblasLtMatmulPreferenceSetAttribute);
  EXPECT_MULTIPLIES_ALIKE(heuristic, hipblasLtMatmulAlgoGetHeuristic);
  EXPECT_MULTIPLIES_ALIKE(matmul, hipblasLtMatmul);
}

/// What the header declares has the mangled name by which we open it: that of the double is the same function.
TEST(HipblasLtApi, FunctionsOfCplusplus) {
  const auto& opened = hipblas_lt("");
  ASSERT_TRUE(opened.ok()) << opened.found.message();
  const api::HipblasLt& f = opened.functions;
  const auto address = [](auto* function) { return reinterpret_cast<const void*>(function); };
#define EXPECT_SAME_FUNCTION(field, function)              \
  EXPECT_MULTIPLIES_ALIKE(field, hipblaslt_ext::function); \
  EXPECT_EQ(address(f.field), address(&hipblaslt_ext::function)) << "another name: " #function
  EXPECT_SAME_FUNCTION(all_solutions, getAllAlgos);
  EXPECT_SAME_FUNCTION(by_index, getAlgosFromIndex);
  EXPECT_SAME_FUNCTION(index_of, getIndexFromAlgo);
  EXPECT_SAME_FUNCTION(name_of, getSolutionNameFromAlgo);
  EXPECT_SAME_FUNCTION(supported, matmulIsAlgoSupported);
}

TEST(HipblasLtApi, Values) {
  EXPECT_EQ(api::lt_not_supported, static_cast<int>(HIPBLAS_STATUS_NOT_SUPPORTED));
  EXPECT_EQ(api::type_f32, static_cast<int>(HIP_R_32F));
  EXPECT_EQ(api::type_f16, static_cast<int>(HIP_R_16F));
  EXPECT_EQ(api::type_bf16, static_cast<int>(HIP_R_16BF));
  EXPECT_EQ(api::type_e4m3_fnuz, static_cast<int>(HIP_R_8F_E4M3_FNUZ));
#if HIP_VERSION_MAJOR > 6 || (HIP_VERSION_MAJOR == 6 && HIP_VERSION_MINOR >= 3)
  EXPECT_EQ(api::type_e4m3, static_cast<int>(HIP_R_8F_E4M3));
#endif
  EXPECT_EQ(api::compute_f32, static_cast<int>(HIPBLAS_COMPUTE_32F));
  EXPECT_EQ(api::operation_none, static_cast<int>(HIPBLAS_OP_N));
  EXPECT_EQ(api::operation_transpose, static_cast<int>(HIPBLAS_OP_T));
  EXPECT_EQ(api::epilogue_bias, static_cast<int>(HIPBLASLT_EPILOGUE_BIAS));
  EXPECT_EQ(api::gemm, static_cast<int>(hipblaslt_ext::GemmType::HIPBLASLT_GEMM));
  EXPECT_EQ(api::matmul_transpose_a, static_cast<int>(HIPBLASLT_MATMUL_DESC_TRANSA));
  EXPECT_EQ(api::matmul_transpose_b, static_cast<int>(HIPBLASLT_MATMUL_DESC_TRANSB));
  EXPECT_EQ(api::matmul_epilogue, static_cast<int>(HIPBLASLT_MATMUL_DESC_EPILOGUE));
  EXPECT_EQ(api::matmul_bias_pointer, static_cast<int>(HIPBLASLT_MATMUL_DESC_BIAS_POINTER));
  EXPECT_EQ(api::matmul_bias_type, static_cast<int>(HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE));
  EXPECT_EQ(api::matmul_a_scale_pointer, static_cast<int>(HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER));
  EXPECT_EQ(api::matmul_b_scale_pointer, static_cast<int>(HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER));
  EXPECT_EQ(api::layout_batch_count, static_cast<int>(HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT));
  EXPECT_EQ(api::layout_batch_stride, static_cast<int>(HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
  EXPECT_EQ(api::layout_leading_dimension, static_cast<int>(HIPBLASLT_MATRIX_LAYOUT_LD));
  EXPECT_EQ(api::preference_workspace_bytes, static_cast<int>(HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
}

TEST(HipblasLtApi, Structures) {
  EXPECT_EQ(sizeof(api::LtAlgorithm), sizeof(hipblasLtMatmulAlgo_t));
  EXPECT_EQ(offsetof(api::LtAlgorithm, max_workspace_bytes),
            offsetof(hipblasLtMatmulAlgo_t, max_workspace_bytes));
  EXPECT_EQ(sizeof(api::LtHeuristic), sizeof(hipblasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(api::LtHeuristic, workspace_bytes),
            offsetof(hipblasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(offsetof(api::LtHeuristic, state), offsetof(hipblasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(offsetof(api::LtHeuristic, waves), offsetof(hipblasLtMatmulHeuristicResult_t, wavesCount));
}

#endif

#ifndef HAS_AMD_SMI

TEST(AmdSmiApi, AgreesWithTheHeaders) {
  GTEST_SKIP() << "no amd_smi/amdsmi.h (ROCm's package amd-smi-lib, or cmake -DGEMMTUNE_ROCM_HEADERS=FOLDER)";
}

#else

TEST(AmdSmiApi, Functions) {
#define EXPECT_MONITORS_ALIKE(field, function) \
  EXPECT_TRUE(test::called_alike(decltype(api::Smi::field){}, &function)) << #function
  EXPECT_MONITORS_ALIKE(init, amdsmi_init);
  EXPECT_MONITORS_ALIKE(clock, amdsmi_get_clock_info);
  EXPECT_MONITORS_ALIKE(temperature, amdsmi_get_temp_metric);
  EXPECT_MONITORS_ALIKE(energy, amdsmi_get_energy_count);
  // A union of 64 bits is passed as the number that it holds.
  using ByBusId = amdsmi_status_t (*)(amdsmi_bdf_t, amdsmi_processor_handle*);
  EXPECT_TRUE((std::is_same_v<ByBusId, decltype(&amdsmi_get_processor_handle_from_bdf)>));
  EXPECT_EQ(sizeof(amdsmi_bdf_t), sizeof(std::uint64_t));
}

template <typename Info>
const void* clock_of(const Info& info) {
  if constexpr (requires { info.clk; })
    return &info.clk;
  else
    return &info.cur_clk;
}

template <typename BusId>
void set_bus_id(BusId& id) {
  const auto set = [](auto& fields) {
    fields.domain_number = 1;
    fields.bus_number = 5;
    fields.device_number = 0x1f;
    fields.function_number = 3;
  };
  if constexpr (requires { id.bus_number; })
    set(id);
  else
    set(id.fields);
}

TEST(AmdSmiApi, Structures) {
  amdsmi_clk_info_t info{};
  EXPECT_EQ(clock_of(info), &info);
  EXPECT_GE(sizeof(api::SmiClock), sizeof(amdsmi_clk_info_t));
  amdsmi_bdf_t id{};
  set_bus_id(id);
  EXPECT_EQ(id.as_uint, packed_bus_id("0001:05:1f.3"));
}

TEST(AmdSmiApi, Values) {
  EXPECT_EQ(api::smi_gpus, static_cast<std::uint64_t>(AMDSMI_INIT_AMD_GPUS));
  EXPECT_EQ(api::smi_temperature_current, static_cast<int>(AMDSMI_TEMP_CURRENT));
#if defined(AMDSMI_LIB_VERSION_YEAR) && AMDSMI_LIB_VERSION_YEAR * 100 + AMDSMI_LIB_VERSION_MAJOR < 2406
  // Before ROCm 6.2.
  EXPECT_EQ(api::smi_clock_gfx, static_cast<int>(CLK_TYPE_GFX));
  EXPECT_EQ(api::smi_clock_memory, static_cast<int>(CLK_TYPE_MEM));
  EXPECT_EQ(api::smi_temperature_hotspot, static_cast<int>(TEMPERATURE_TYPE_HOTSPOT));
#else
  EXPECT_EQ(api::smi_clock_gfx, static_cast<int>(AMDSMI_CLK_TYPE_GFX));
  EXPECT_EQ(api::smi_clock_memory, static_cast<int>(AMDSMI_CLK_TYPE_MEM));
  EXPECT_EQ(api::smi_temperature_hotspot, static_cast<int>(AMDSMI_TEMPERATURE_TYPE_HOTSPOT));
#endif
}

#endif

}  // namespace
}  // namespace gemmtune::hip
