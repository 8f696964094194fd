// The calls of an unmodified program: each argument is one, and its line says what y holds after it: "right" (a float64
// reference), "vendor" (what the doubles write) or "wrong".
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "backends/cublas_api.h"
#include "interpose/cublas_double.h"

namespace {

namespace api = gemmtune::cuda::api;

std::uint16_t bf16(double value) {
  const auto narrow = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);  // the values here are exact
}

/// One product in the library's terms, with everything that a case changes.
struct Product {
  std::int64_t m = 32, n = 4, k = 64;
  bool transpose_a = true, transpose_b = false;
  int type = api::type_bf16;
  int compute_type = api::compute_f32;
  int epilogue = api::epilogue_none;
  int bias_type = -1;
  int pointer_mode = 0;
  int math_mode = 0;
  int sm_count = 0;
  int invariance = api::batch_invariance_unset;
  int b_order = 0;
  float alpha = 1, beta = 0;
  std::int64_t pad_a = 0, pad_b = 0, pad_d = 0;
  std::int64_t shift = 0;  // elements that y begins after an aligned address
  std::int64_t batch = 1;
  bool side_by_side = false;  // of b and d the same column of all batches
  bool scales = false;
  bool wide = false;  // cublasGemmEx_64
  bool algorithm = false;

  std::int64_t lda() const { return (transpose_a ? k : m) + pad_a; }
  std::int64_t ldb() const { return (transpose_b ? n : k) + pad_b; }
  std::int64_t ldd() const { return m + pad_d; }
  std::int64_t a_size() const { return lda() * (transpose_a ? m : k); }
  std::int64_t b_size() const { return ldb() * (transpose_b ? k : n); }
  std::int64_t d_size() const { return ldd() * n; }
  std::int64_t b_stride() const { return side_by_side ? k : b_size(); }
  std::int64_t d_stride() const { return side_by_side ? m : d_size(); }
};

struct Operands {
  explicit Operands(const Product& p)
      : a(p.a_size() * p.batch + 64),
        b(p.b_size() * p.batch + 64),
        d(p.d_size() * p.batch + 64),
        bias(p.m + 64) {
    fill(a, 3, 5);
    fill(b, 7, 3);
    fill(bias, 2, 7);
  }
  static void fill(std::vector<std::uint16_t>& values, std::size_t step, std::size_t range) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = bf16(static_cast<double>((i * step + i / 7) % range) - 2);
  }
  static std::uint16_t* aligned(std::vector<std::uint16_t>& values) {
    const auto address = reinterpret_cast<std::uintptr_t>(values.data());
    return values.data() + (64 - address % 64) % 64 / 2;
  }
  std::vector<std::uint16_t> a, b, d, bias;
};

double value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float narrow = 0;
  std::memcpy(&narrow, &wide, sizeof narrow);
  return narrow;
}

const char* verdict(const Product& p, Operands& operands) {
  const std::uint16_t* const a = Operands::aligned(operands.a);
  const std::uint16_t* const b = Operands::aligned(operands.b);
  const std::uint16_t* const d = Operands::aligned(operands.d) + p.shift;
  const std::uint16_t* const bias = Operands::aligned(operands.bias);
  if (d[0] == vendor_byte * 0x101) return "vendor";
  for (std::int64_t i = 0; i < p.batch; ++i) {
    for (std::int64_t column = 0; column < p.n; ++column) {
      for (std::int64_t row = 0; row < p.m; ++row) {
        double sum = p.epilogue == api::epilogue_bias ? value(bias[row]) : 0;
        for (std::int64_t k = 0; k < p.k; ++k) {
          const std::int64_t in_a = p.transpose_a ? row * p.lda() + k : k * p.lda() + row;
          const std::int64_t in_b = p.transpose_b ? k * p.ldb() + column : column * p.ldb() + k;
          sum += value(a[i * p.a_size() + in_a]) * value(b[i * p.b_stride() + in_b]);
        }
        if (value(d[i * p.d_stride() + column * p.ldd() + row]) != sum) return "wrong";
      }
    }
  }
  return "right";
}

const char* run_lt(const Product& p) {
  Operands operands(p);
  void *matmul = nullptr, *a = nullptr, *b = nullptr, *d = nullptr;
  cublasLtMatmulDescCreate(&matmul, p.compute_type, api::type_f32);
  const auto set = [&](int attribute, auto what) {
    cublasLtMatmulDescSetAttribute(matmul, attribute, &what, sizeof what);
  };
  set(api::matmul_transpose_a, p.transpose_a ? 1 : 0);
  set(api::matmul_transpose_b, p.transpose_b ? 1 : 0);
  set(api::matmul_epilogue, p.epilogue);
  set(api::matmul_bias_type, p.bias_type);
  set(api::matmul_pointer_mode, p.pointer_mode);
  set(api::matmul_sm_count, p.sm_count);
  set(api::matmul_batch_invariance, p.invariance);
  const std::uint16_t* const bias = Operands::aligned(operands.bias);
  if (p.epilogue == api::epilogue_bias) set(api::matmul_bias_pointer, bias);
  const float scale = 1;
  if (p.scales) set(api::matmul_a_scale_pointer, &scale);
  const auto rows = [](bool transposed, std::int64_t one, std::int64_t other) {
    return static_cast<std::uint64_t>(transposed ? other : one);
  };
  cublasLtMatrixLayoutCreate(&a, p.type, rows(p.transpose_a, p.m, p.k), rows(p.transpose_a, p.k, p.m),
                             p.lda());
  cublasLtMatrixLayoutCreate(&b, p.type, rows(p.transpose_b, p.k, p.n), rows(p.transpose_b, p.n, p.k),
                             p.ldb());
  cublasLtMatrixLayoutCreate(&d, p.type, static_cast<std::uint64_t>(p.m), static_cast<std::uint64_t>(p.n),
                             p.ldd());
  cublasLtMatrixLayoutSetAttribute(b, api::layout_order, &p.b_order, sizeof p.b_order);
  if (p.batch > 1) {
    const auto count = static_cast<std::int32_t>(p.batch);
    const std::int64_t strides[] = {p.a_size(), p.b_stride(), p.d_stride()};
    void* const layouts[] = {a, b, d};
    for (int i = 0; i < 3; ++i) {
      cublasLtMatrixLayoutSetAttribute(layouts[i], api::layout_batch_count, &count, sizeof count);
      cublasLtMatrixLayoutSetAttribute(layouts[i], api::layout_batch_stride, &strides[i], sizeof strides[i]);
    }
  }
  api::LtAlgorithm algorithm{};
  algorithm.opaque[0] = 66;
  std::uint16_t* const y = Operands::aligned(operands.d) + p.shift;
  cublasLtMatmul(nullptr, matmul, &p.alpha, Operands::aligned(operands.a), a, Operands::aligned(operands.b),
                 b, &p.beta, y, d, y, d, p.algorithm ? &algorithm : nullptr, nullptr, 0, nullptr);
  for (void* layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(matmul);
  return verdict(p, operands);
}

const char* run_gemm(const Product& p) {
  Operands operands(p);
  void* handle = nullptr;
  cublasCreate_v2(&handle);
  cublasSetPointerMode_v2(handle, p.pointer_mode);
  cublasSetMathMode(handle, p.math_mode);
  const std::uint16_t* const a = Operands::aligned(operands.a);
  const std::uint16_t* const b = Operands::aligned(operands.b);
  std::uint16_t* const d = Operands::aligned(operands.d) + p.shift;
  const auto small = [](std::int64_t size) { return static_cast<int>(size); };
  if (p.batch > 1) {
    cublasGemmStridedBatchedEx(handle, p.transpose_a, p.transpose_b, small(p.m), small(p.n), small(p.k),
                               &p.alpha, a, p.type, small(p.lda()), p.a_size(), b, p.type, small(p.ldb()),
                               p.b_stride(), &p.beta, d, p.type, small(p.ldd()), p.d_stride(), small(p.batch),
                               p.compute_type, -1);
  } else if (p.wide) {
    cublasGemmEx_64(handle, p.transpose_a, p.transpose_b, p.m, p.n, p.k, &p.alpha, a, p.type, p.lda(), b,
                    p.type, p.ldb(), &p.beta, d, p.type, p.ldd(), p.compute_type, -1);
  } else {
    cublasGemmEx(handle, p.transpose_a, p.transpose_b, small(p.m), small(p.n), small(p.k), &p.alpha, a,
                 p.type, small(p.lda()), b, p.type, small(p.ldb()), &p.beta, d, p.type, small(p.ldd()),
                 p.compute_type, -1);
  }
  cublasDestroy_v2(handle);
  return verdict(p, operands);
}

using Case = std::function<void(Product&)>;
const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> all = {
      {"tuned", [](Product&) {}},
      {"bias", [](Product& p) { p.epilogue = api::epilogue_bias; }},
      {"bias-type", [](Product& p) { p.epilogue = api::epilogue_bias, p.bias_type = api::type_f32; }},
      {"nn", [](Product& p) { p.transpose_a = false; }},
      {"nt", [](Product& p) { p.transpose_a = false, p.transpose_b = true; }},
      {"tt", [](Product& p) { p.transpose_b = true; }},
      {"wide-rows", [](Product& p) { p.pad_b = 8, p.pad_d = 16; }},
      {"wide-weight", [](Product& p) { p.pad_a = 8; }},
      {"short-rows", [](Product& p) { p.pad_b = -8; }},
      {"untuned", [](Product& p) { p.k = 48; }},
      {"algorithm", [](Product& p) { p.k = 48, p.algorithm = true; }},
      {"gelu", [](Product& p) { p.epilogue = 32; }},
      {"alpha", [](Product& p) { p.alpha = 2; }},
      {"beta", [](Product& p) { p.beta = 1; }},
      {"tf32", [](Product& p) { p.compute_type = 77; }},
      {"pedantic", [](Product& p) { p.math_mode = api::math_pedantic; }},
      {"device-scalars", [](Product& p) { p.pointer_mode = 1; }},
      {"int8", [](Product& p) { p.type = 3; }},
      {"misaligned", [](Product& p) { p.shift = 1; }},
      {"order", [](Product& p) { p.b_order = 1; }},
      {"invariant", [](Product& p) { p.invariance = api::batch_invariance_disabled + 1; }},
      {"invariant-off", [](Product& p) { p.invariance = api::batch_invariance_disabled; }},
      {"sm-count", [](Product& p) { p.sm_count = 8; }},
      {"scales", [](Product& p) { p.scales = true; }},
      {"wide", [](Product& p) { p.wide = true; }},
      {"batch", [](Product& p) { p.batch = 3; }},
      {"batch-beside",
       [](Product& p) { p.batch = 3, p.side_by_side = true, p.pad_b = 2 * p.k, p.pad_d = 2 * p.m; }},
      {"batch-nn", [](Product& p) { p.batch = 3, p.transpose_a = false; }},
  };
  return all;
}

/// "lt:NAME" or "gemm:NAME".
const char* run(const std::string& word) {
  const std::size_t colon = word.find(':');
  Product product;
  cases().at(word.substr(colon + 1))(product);
  return word.substr(0, colon) == "lt" ? run_lt(product) : run_gemm(product);
}

}  // namespace

/// "fork": what follows runs in a child, then in this process. "threads:COUNT" runs the calls that follow so often on each of 8 threads and prints how many lines were the first
/// thread's first ones.
extern "C" __attribute__((visibility("default"))) int run_calls(int count, char** words) {
  std::size_t repeats = 0;
  for (int i = 0; i < count; ++i) {
    const std::string word = words[i];
    if (word.starts_with("threads:")) {
      repeats = std::stoul(word.substr(8));
      continue;
    }
    if (word == "fork") {
      std::fflush(stdout);
      int status = 0;
      const pid_t child = ::fork();
      if (child > 0 && (::waitpid(child, &status, 0) != child || status != 0)) return 1;
      continue;
    }
    const std::string first = run(word);
    std::printf("%s %s\n", word.c_str(), first.c_str());
    std::vector<std::size_t> same(8);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; repeats > 0 && t < same.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t r = 0; r < repeats; ++r) same[t] += first == run(word) ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::size_t lines : same)
      if (lines != repeats) std::printf("%s differs between threads\n", word.c_str());
  }
  return 0;
}
