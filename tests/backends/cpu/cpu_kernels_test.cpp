// Every own CPU family against float64, on awkward shapes, at every level of this machine (and emulated
// tiles), with memory that ends (or begins) at an unreadable page.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/skinny/skinny.h"
#include "backends/cpu/families/tiled/tiled.h"
#include "base/random.h"
#include "numbers/bfloat16.h"
#include "problem/operands.h"
#include "support/emulated_tiles.h"
#include "support/executors.h"
#include "support/fenced_memory.h"

namespace gemmtune::cpu {
namespace {

float load(DataType type, const unsigned char* base, std::int64_t index) {
  if (type == DataType::f32) {
    float value = 0;
    std::memcpy(&value, base + index * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, base + index * 2, 2);
  return type == DataType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void put(DataType type, unsigned char* base, std::int64_t index, float value) {
  const std::uint16_t bits = type == DataType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
  if (type == DataType::f32)
    std::memcpy(base + index * 4, &value, 4);
  else
    std::memcpy(base + index * 2, &bits, 2);
}

/// Dense operands of one size and type, and what float64 says of them.
struct Truth {
  std::vector<unsigned char> x;
  std::vector<unsigned char> w;
  std::vector<double> y;
  std::vector<double> magnitude;  // Σ |x||w|
};

const Truth& truth_of(const Problem& p) {
  static std::map<std::string, Truth> known;
  const std::string key = std::to_string(p.m) + "," + std::to_string(p.n) + "," + std::to_string(p.k) + "," +
                          std::string(to_string(p.x_type));
  if (const auto found = known.find(key); found != known.end()) return found->second;
  Truth& truth = known[key];
  Random random(static_cast<std::uint64_t>(p.m * 131 + p.n * 17 + p.k));
  truth.x.resize(static_cast<std::size_t>(bytes_of(p.x_type, p.m * p.k)));
  truth.w.resize(static_cast<std::size_t>(bytes_of(p.x_type, p.n * p.k)));
  for (std::int64_t i = 0; i < p.m * p.k; ++i)
    put(p.x_type, truth.x.data(), i, static_cast<float>(random.uniform() * 2 - 1));
  for (std::int64_t i = 0; i < p.n * p.k; ++i)
    put(p.x_type, truth.w.data(), i, static_cast<float>(random.uniform() * 2 - 1));
  std::vector<double> x(static_cast<std::size_t>(p.m * p.k));
  std::vector<double> w(static_cast<std::size_t>(p.n * p.k));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = load(p.x_type, truth.x.data(), static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = load(p.x_type, truth.w.data(), static_cast<std::int64_t>(i));
  for (std::int64_t m = 0; m < p.m; ++m)
    for (std::int64_t n = 0; n < p.n; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < p.k; ++k) {
        const double product =
            x[static_cast<std::size_t>(m * p.k + k)] * w[static_cast<std::size_t>(n * p.k + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      truth.y.push_back(sum);
      truth.magnitude.push_back(magnitude);
    }
  return truth;
}

/// Half a unit in the last place, relative, and the smallest step.
double rounding(DataType type, double value) {
  if (type == DataType::f32) return std::abs(value) * 0x1p-23;
  if (type == DataType::bf16) return std::abs(value) * 0x1p-8;
  return std::abs(value) * 0x1p-10 + 0x1p-24;
}

struct Product {
  std::unique_ptr<FencedMemory> y;
  std::int64_t ldy = 0;
};

/// Row-major [rows, k] into the order, with lines `leading` elements apart.
void place(const MatrixShape& shape, const unsigned char* from, std::int64_t leading, unsigned char* to) {
  const std::int64_t size = bytes_of(shape.type, 1);
  for (std::int64_t row = 0; row < shape.rows; ++row)
    for (std::int64_t k = 0; k < shape.columns; ++k)
      std::memcpy(to + (row * shape.row_step(leading) + k * shape.column_step(leading)) * size,
                  from + (row * shape.columns + k) * size, static_cast<std::size_t>(size));
}

Product run_kernel(const Kernel& kernel, const Problem& p, Executor& executor, Fence fence) {
  const Truth& truth = truth_of(p);
  const OperandShapes shapes = operand_shapes(p);
  const std::int64_t ldx = shapes.x.line_elements() + (p.m % 2 == 0 ? 5 : 0);
  const std::int64_t ldy = p.n + (p.n % 2 == 0 ? 3 : 0);
  const auto size = [](DataType type, std::int64_t elements) {
    return static_cast<std::size_t>(bytes_of(type, elements));
  };
  const FencedMemory x(size(p.x_type, (shapes.x.lines() - 1) * ldx + shapes.x.line_elements()), fence);
  place(shapes.x, truth.x.data(), ldx, x.data());
  const bool packed = kernel.weight_layout() == WeightLayout::panel16;
  const Panel16 panel = panel16_of(p);
  const FencedMemory w(packed ? static_cast<std::size_t>(panel.bytes()) : truth.w.size(), fence);
  if (packed)
    pack_panel16(panel, truth.w.data(), w.data());
  else
    place(shapes.w, truth.w.data(), shapes.w.line_elements(), w.data());
  const FencedMemory bias(p.bias ? size(p.y_type, p.n) : 0, fence);
  for (std::int64_t n = 0; p.bias && n < p.n; ++n)
    put(p.y_type, bias.data(), n, static_cast<float>(n % 7) - 2.5F);
  const FencedMemory workspace((kernel.workspace_bytes() + 63) / 64 * 64, fence);
  Product run{std::make_unique<FencedMemory>(size(p.y_type, (p.m - 1) * ldy + p.n), fence), ldy};
  const Operands operands{.x = x.data(),
                          .w = w.data(),
                          .bias = p.bias ? bias.data() : nullptr,
                          .y = run.y->data(),
                          .ldx = ldx,
                          .ldy = ldy};
  const Status status = kernel.run(operands, workspace.data(), Stream{&executor});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(workspace.surroundings_intact()) << "workspace";
  EXPECT_TRUE(run.y->surroundings_intact()) << "y";
  return run;
}

/// The first wrong element in words; empty where all are right.
std::string verdict(const Problem& p, const Product& run) {
  const Truth& truth = truth_of(p);
  const std::int64_t size = bytes_of(p.y_type, 1);
  for (std::int64_t m = 0; m < p.m; ++m) {
    for (std::int64_t n = 0; n < p.n; ++n) {
      const auto i = static_cast<std::size_t>(m * p.n + n);
      const double bias = p.bias ? static_cast<double>(n % 7) - 2.5 : 0;
      const double expected = truth.y[i] + bias;
      const double got = load(p.y_type, run.y->data(), m * run.ldy + n);
      const double bound = static_cast<double>(p.k + 1) * 0x1p-24 * (truth.magnitude[i] + std::abs(bias)) +
                           rounding(p.y_type, expected);
      if (!(std::abs(got - expected) <= bound))
        return fmt::format("y[{}][{}] = {}, expected {} ± {}", m, n, got, expected, bound);
    }
    for (std::int64_t byte = (m * run.ldy + p.n) * size; m + 1 < p.m && byte < (m + 1) * run.ldy * size;
         ++byte)
      if (run.y->data()[byte] != FencedMemory::poison)
        return fmt::format("row {} wrote past its {} elements", m, p.n);
  }
  return {};
}

/// The default, and allowed configs at random.
std::vector<Config> some_configs(const KernelFamily& family, const Problem& problem, int wanted,
                                 Random& random) {
  const Space space = family.space(problem);
  std::vector<Config> configs{family.default_config(problem)};
  for (int attempt = 0; attempt < 3000 && static_cast<int>(configs.size()) <= wanted; ++attempt) {
    Config config;
    for (const Parameter& parameter : space.parameters()) {
      if (parameter.key == "tree")
        config.set("tree", static_cast<std::int64_t>(random.below(2)));
      else if (!parameter.values.empty())
        config.set(parameter.key, parameter.values[random.below(parameter.values.size())]);
    }
    if (space.refusal(config).empty()) configs.push_back(config);
  }
  return configs;
}

struct Shape {
  std::int64_t m, n, k;
};

const Shape shapes[] = {{1, 1, 1},      {1, 257, 1},     {2, 1, 33},     {3, 7, 2},      {1, 100, 129},
                        {7, 16, 31},    {15, 17, 63},    {16, 64, 64},   {17, 65, 100},  {31, 33, 127},
                        {32, 129, 128}, {33, 15, 257},   {63, 1, 65},    {64, 100, 3},   {65, 63, 16},
                        {100, 31, 15},  {127, 128, 129}, {129, 255, 32}, {257, 127, 17}, {8, 257, 1031},
                        {5, 100, 2049}, {33, 129, 1100}, {128, 96, 256}, {14, 48, 7}};

struct Level {
  std::string name;
  KernelSet set;
};

std::vector<Level> levels() {
  std::vector<Level> all;
  const Isa top = detect_isa();
  for (int i = 0; i <= static_cast<int>(top); ++i)
    all.push_back({std::string(to_string(static_cast<Isa>(i))), kernel_set(static_cast<Isa>(i))});
  all.push_back({"emulated_amx", emulated_amx_set()});
  return all;
}

class CpuKernels : public ::testing::TestWithParam<Level> {
 protected:
  void check(const KernelFamily& family, DataType type, int configs) {
    Random random(7);
    SerialExecutor serial(4);
    int index = 0;
    int runs = 0;
    for (const Shape& shape : shapes)
      for (const bool packed : {false, true}) {
        const DataType outputs[] = {DataType::bf16, DataType::f16, DataType::f32};
        ++index;
        const Problem problem{.m = shape.m,
                              .n = shape.n,
                              .k = shape.k,
                              .x_type = type,
                              .w_type = type,
                              .y_type = outputs[index % 3],
                              .bias = index / 2 % 2 == 0,
                              .weight_layout = packed ? WeightLayout::any : WeightLayout::plain};
        if (!family.accepts(problem).ok()) continue;
        for (const Config& config : some_configs(family, problem, configs, random)) {
          SCOPED_TRACE(print(problem) + " " + std::string(family.name()) + "_" + config.text());
          const auto kernel = family.build(problem, config);
          ASSERT_TRUE(kernel.ok()) << kernel.message();
          const Product run =
              run_kernel(**kernel, problem, serial, ++runs % 2 == 0 ? Fence::before : Fence::after);
          ASSERT_EQ(verdict(problem, run), "");
        }
      }
    EXPECT_GT(runs, 24);
  }
};

TEST_P(CpuKernels, TiledIsRight) {
  const auto family = make_tiled_family(GetParam().set, 4);
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const bool tiles_matter = type == DataType::bf16 || GetParam().name != "emulated_amx";
    if (tiles_matter) check(*family, type, 4);
  }
}

constexpr std::pair<Order, Order> column_orders[] = {{Order::column_major, Order::row_major},
                                                     {Order::row_major, Order::column_major},
                                                     {Order::column_major, Order::column_major}};

TEST_P(CpuKernels, SumsAreRoundedToTheNearestEvenBf16) {
  constexpr long columns = 56;  // pairs of vectors, one vector, and a tail
  constexpr long rows = 65536 / columns + 1;
  std::vector<float> tile(rows * columns);
  std::vector<std::uint16_t> y(rows * columns);
  const IsaKernels& kernels = *GetParam().set.at(GetParam().set.level);
  for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
    for (std::uint32_t i = 0; i < tile.size(); ++i) {
      const std::uint32_t bits = i % 65536 << 16 | low;
      std::memcpy(&tile[i], &bits, sizeof(bits));
    }
    kernels.store[static_cast<int>(Element::bf16)]({.tile = tile.data(),
                                                    .ldt = columns,
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .y = y.data(),
                                                    .ldy = columns});
    for (std::size_t i = 0; i < tile.size(); ++i) ASSERT_EQ(y[i], f32_to_bf16(tile[i])) << i << " " << low;
  }
}

TEST_P(CpuKernels, ColumnMajorOperandsAreRight) {
  const auto tiled = make_tiled_family(GetParam().set, 4);
  const auto reference = make_reference_family(Isa::scalar);
  const bool emulated = GetParam().name == "emulated_amx";
  Random random(11);
  SerialExecutor serial(4);
  int runs = 0, pass = 0;
  for (const KernelFamily* family : {tiled.get(), reference.get()})
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16})
      for (const auto& [x_order, w_order] : column_orders) {
        ++pass;
        for (const Shape& shape : shapes) {
          if ((&shape - shapes + pass) % 2 != 0) continue;  // the others in the next pass
          if (emulated && (type != DataType::bf16 || family != tiled.get())) continue;
          Problem problem{.m = shape.m, .n = shape.n, .k = shape.k, .x_type = type, .w_type = type};
          problem.y_type = runs % 2 == 0 ? DataType::f32 : type;
          problem.bias = runs % 3 == 0;
          problem.x_order = x_order;
          problem.w_order = w_order;
          ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
          const int wanted = family == tiled.get() ? 3 : 0;
          for (const Config& config : some_configs(*family, problem, wanted, random)) {
            SCOPED_TRACE(print(problem) + " " + std::string(family->name()) + "_" + config.text());
            const auto kernel = family->build(problem, config);
            ASSERT_TRUE(kernel.ok()) << kernel.message();
            const Product run =
                run_kernel(**kernel, problem, serial, ++runs % 2 == 0 ? Fence::before : Fence::after);
            ASSERT_EQ(verdict(problem, run), "");
          }
        }
      }
  EXPECT_GT(runs, 50);
}

/// Elements [first, first + p.k) of the rows [first_row, first_row + rows) of a matrix with rows of `columns` elements.
std::vector<unsigned char> slice(const Problem& p, const std::vector<unsigned char>& matrix,
                                 std::int64_t columns, std::int64_t first_row, std::int64_t rows,
                                 std::int64_t first) {
  std::vector<unsigned char> part;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    const auto from = matrix.begin() + bytes_of(p.x_type, row * columns + first);
    part.insert(part.end(), from, from + bytes_of(p.x_type, p.k));
  }
  return part;
}

/// y of a problem with a y of float32.
std::vector<float> product(const KernelFamily& family, const Problem& p, const Config& config,
                           const std::vector<unsigned char>& x, const std::vector<unsigned char>& w) {
  const auto kernel = family.build(p, config);
  EXPECT_TRUE(kernel.ok()) << kernel.message();
  const bool is_packed = (*kernel)->weight_layout() == WeightLayout::panel16;
  std::vector<unsigned char> packed(is_packed ? static_cast<std::size_t>(panel16_of(p).bytes()) : 0);
  if (is_packed) pack_panel16(panel16_of(p), w.data(), packed.data());
  std::vector<float> y(static_cast<std::size_t>(p.m * p.n));
  const FencedMemory workspace(((*kernel)->workspace_bytes() + 63) / 64 * 64, Fence::after);
  SerialExecutor serial(4);
  const Operands operands{
      .x = x.data(), .w = is_packed ? packed.data() : w.data(), .y = y.data(), .ldx = p.k, .ldy = p.n};
  EXPECT_TRUE((*kernel)->run(operands, workspace.data(), Stream{&serial}).ok());
  return y;
}

/// A config of a tree of sums in this order, drawn; any order if it is empty.
Config tree_config(const KernelFamily& family, const Problem& p, std::string_view order, Random& random) {
  Space space = family.space(p);
  space.choose("tree", {"1"});
  std::vector<Config> configs = space.enumerate();
  std::erase_if(configs,
                [&](const Config& config) { return !order.empty() && family.sum_order(p, config) != order; });
  EXPECT_FALSE(configs.empty()) << print(p) << ": " << order;
  return configs[random.below(configs.size())];
}

/// ((0 + 1) + (2 + 3)) + …
std::vector<float> sum_in_pairs(std::vector<std::vector<float>> parts) {
  for (; parts.size() > 1; parts.resize(parts.size() / 2))
    for (std::size_t i = 0; i < parts.size() / 2; ++i) {
      for (std::size_t j = 0; j < parts[0].size(); ++j) parts[i][j] = parts[2 * i][j] + parts[2 * i + 1][j];
    }
  return parts.front();
}

/// Tensor parallelism: ranks have columns of y, or segments of k whose sums are added in pairs.
TEST_P(CpuKernels, RanksOfATreeOfSumsHaveTheBitsOfTheWhole) {
  const auto skinny = make_skinny_family(GetParam().set, 4);
  const auto tiled = make_tiled_family(GetParam().set, 4);
  const KernelFamily* families[] = {skinny.get(), tiled.get()};
  Random random(3);
  for (const DataType type : {DataType::f32, DataType::bf16})
    for (const bool packed : {false, true})
      for (const std::int64_t m : {1, 7, 20, 40}) {
        if (type != DataType::bf16 && GetParam().name == "emulated_amx") continue;
        Problem whole{.m = m, .n = 40, .k = 1024, .x_type = type, .w_type = type, .y_type = DataType::f32};
        if (packed) whole.weight_layout = WeightLayout::panel16;
        if (!skinny->accepts(whole).ok()) continue;  // more than 32 rows are for AMX
        const Truth& truth = truth_of(whole);
        for (const KernelFamily* family : families) {
          const Config config = tree_config(*family, whole, "", random);
          const std::string order = family->sum_order(whole, config);
          SCOPED_TRACE(print(whole) + " " + std::string(family->name()) + "_" + config.text());
          const std::vector<float> y = product(*family, whole, config, truth.x, truth.w);
          for (const std::int64_t ranks : {2, 4}) {
            const KernelFamily& other = *families[random.below(2)];
            Problem row_parallel = whole;
            row_parallel.k /= ranks;
            Problem column_parallel = whole;
            column_parallel.n /= ranks;
            std::vector<std::vector<float>> sums;
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
              const std::int64_t k = rank * row_parallel.k;
              const std::int64_t n = rank * column_parallel.n;
              const Config of_k = tree_config(other, row_parallel, order, random);
              sums.push_back(product(other, row_parallel, of_k,
                                     slice(row_parallel, truth.x, whole.k, 0, m, k),
                                     slice(row_parallel, truth.w, whole.k, 0, whole.n, k)));
              const Config of_n = tree_config(other, column_parallel, order, random);
              const std::vector<float> columns =
                  product(other, column_parallel, of_n, truth.x,
                          slice(column_parallel, truth.w, whole.k, n, column_parallel.n, 0));
              for (std::int64_t i = 0; i < m * column_parallel.n; ++i)
                ASSERT_EQ(
                    columns[static_cast<std::size_t>(i)],
                    y[static_cast<std::size_t>(i / column_parallel.n * whole.n + n + i % column_parallel.n)])
                    << "rank " << rank << " of N";
            }
            ASSERT_EQ(sum_in_pairs(std::move(sums)), y) << ranks << " ranks of K";
          }
        }
      }
}

/// AMX: each register tile, x in blocks of k and as a whole, blocks of few and of many columns, groups of rows, ends on every side. Bits are those of
/// `tiled`.
TEST_P(CpuKernels, ManyRowsOfXByTilesAreRight) {
  const IsaKernels* amx = GetParam().set.at(Isa::amx);
  const auto skinny = make_skinny_family(GetParam().set, 1);
  const auto tiled = make_tiled_family(GetParam().set, 1);
  Problem problem{.m = 33, .n = 64, .k = 64, .y_type = DataType::f32};
  EXPECT_EQ(skinny->accepts(problem).ok(), amx != nullptr);
  if (amx == nullptr) return;
  SerialExecutor serial(1);
  for (const Shape& shape : {Shape{33, 17, 70}, Shape{48, 64, 300}, Shape{100, 530, 600}, Shape{300, 40, 70}})
    for (const bool packed : {false, true}) {
      problem = {.m = shape.m, .n = shape.n, .k = shape.k, .y_type = DataType::f32, .bias = shape.m == 48};
      if (packed) problem.weight_layout = WeightLayout::panel16;
      Space space = skinny->space(problem);
      space.choose("pf", {shape.m == 48 ? "0" : "1024"});
      space.choose("sk", {"1"});
      std::vector<float> first;
      int runs = 0;
      for (const Config& config : space.enumerate()) {
        SCOPED_TRACE(print(problem) + " " + config.text());
        ASSERT_EQ(config.word("isa"), "amx");
        const auto kernel = skinny->build(problem, config);
        ASSERT_TRUE(kernel.ok()) << kernel.message();
        ASSERT_EQ(verdict(problem, run_kernel(**kernel, problem, serial,
                                              ++runs % 2 == 0 ? Fence::before : Fence::after)),
                  "");
        if (problem.bias) continue;
        const Truth& truth = truth_of(problem);
        const std::vector<float> y = product(*skinny, problem, config, truth.x, truth.w);
        if (first.empty()) first = product(*tiled, problem, tiled->default_config(problem), truth.x, truth.w);
        ASSERT_EQ(y, first);
      }
      EXPECT_GT(runs, 3);
    }
}

std::vector<std::string> values_of(const Space& space, std::string_view key) {
  for (const Parameter& parameter : space.parameters())
    if (parameter.key == key) return parameter.values;
  return {};
}

/// Every register tile packs a column-major x: its rows are as many as, fewer and more than a vector's lanes.
TEST_P(CpuKernels, EveryRegisterTileTakesAColumnMajorX) {
  SerialExecutor serial(1);
  const auto tiled = make_tiled_family(GetParam().set, 1);
  int runs = 0;
  for (const DataType type : {DataType::f32, DataType::bf16})
    for (const bool packed : {false, true})
      for (const std::int64_t m : {1, 6, 14, 16, 31, 64}) {
        Problem problem{.m = m, .n = 33, .k = 70, .x_type = type, .w_type = type, .y_type = DataType::f32};
        problem.x_order = Order::column_major;
        if (packed) problem.weight_layout = WeightLayout::any;
        const Space space = tiled->space(problem);
        for (const std::string& isa : values_of(space, "isa"))
          for (const std::string& mr : values_of(space, "mr")) {
            Config config = tiled->default_config(problem);
            config.set("isa", isa);
            config.set("mr", mr);
            config.set("nr", "16");
            if (!space.build_refusal(config).empty()) continue;
            SCOPED_TRACE(print(problem) + " " + config.text());
            const auto kernel = tiled->build(problem, config);
            ASSERT_TRUE(kernel.ok()) << kernel.message();
            ASSERT_EQ(verdict(problem, run_kernel(**kernel, problem, serial, Fence::after)), "");
            ++runs;
          }
      }
  EXPECT_GT(runs, 20);
}

TEST_P(CpuKernels, OthersRefuseColumnMajorOperandsByName) {
  const auto skinny = make_skinny_family(GetParam().set, 4);
  Problem problem{.m = 3, .n = 16, .k = 32};
  problem.w_order = Order::column_major;
  EXPECT_EQ(skinny->accepts(problem).message(), "operand order: column-major w, only row-major");
  problem.x_order = Order::column_major;
  EXPECT_EQ(skinny->accepts(problem).message(), "operand order: column-major x and w, only row-major");
}

TEST_P(CpuKernels, SkinnyIsRight) {
  const auto family = make_skinny_family(GetParam().set, 4);
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const bool tiles_matter = type == DataType::bf16 || GetParam().name != "emulated_amx";
    if (tiles_matter) check(*family, type, 6);
  }
}

/// Every register tile of every list is reached, whatever the sampling above chose.
TEST_P(CpuKernels, EveryRegisterTileIsRight) {
  SerialExecutor serial(1);
  const auto tiled = make_tiled_family(GetParam().set, 1);
  const auto skinny = make_skinny_family(GetParam().set, 1);
  for (const KernelFamily* family : {tiled.get(), skinny.get()})
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16})
      for (const bool packed : {false, true})
        for (const std::int64_t m : {1, 2, 4, 6, 8, 12, 14, 16, 32, 48, 64}) {
          const Problem problem{.m = m,
                                .n = 71,
                                .k = 70,
                                .x_type = type,
                                .w_type = type,
                                .y_type = DataType::f32,
                                .weight_layout = packed ? WeightLayout::panel16 : WeightLayout::plain};
          if (!family->accepts(problem).ok()) continue;
          const Space space = family->space(problem);
          const std::vector<std::string>& rows = space.parameters()[2].values;
          const std::vector<std::string>& columns = space.parameters()[3].values;
          for (const std::string& isa : space.parameters()[0].values)
            for (const std::string& mr : rows)
              for (const std::string& nr : columns) {
                Config config = family->default_config(problem);
                Config chosen;
                for (const auto& [key, value] : config.settings())
                  chosen.set(key, key == "isa" ? isa : key == "mr" ? mr : key == "nr" ? nr : value);
                if (!space.build_refusal(chosen).empty()) continue;
                const auto kernel = family->build(problem, chosen);
                ASSERT_TRUE(kernel.ok()) << kernel.message();
                ASSERT_EQ(verdict(problem, run_kernel(**kernel, problem, serial, Fence::after)), "")
                    << print(problem) << " " << family->name() << " " << chosen.text();
              }
        }
}

TEST_P(CpuKernels, ResultsAreTheSameBitForBitOnOneTwoAndFourThreads) {
  SerialExecutor one(1);
  SerialExecutor four(4);
  TwoThreadExecutor two;
  const Problem problem{.m = 29, .n = 515, .k = 1100, .y_type = DataType::f32, .bias = true};
  const auto tiled = make_tiled_family(GetParam().set, 4);
  const auto skinny = make_skinny_family(GetParam().set, 4);
  for (const KernelFamily* family : {tiled.get(), skinny.get()})
    for (const std::int64_t splits : {1, 2}) {
      Config config;
      const Config standard = family->default_config(problem);
      for (const auto& [key, value] : standard.settings())
        config.set(key, key == "sk" ? std::to_string(splits) : value);
      const auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      const Product first = run_kernel(**kernel, problem, one, Fence::after);
      for (Executor* executor : {static_cast<Executor*>(&two), static_cast<Executor*>(&four)}) {
        const Product again = run_kernel(**kernel, problem, *executor, Fence::after);
        EXPECT_EQ(std::memcmp(first.y->data(), again.y->data(), first.y->bytes()), 0) << config.text();
      }
    }
}

/// Many rows: threads divide rows too, and a thread's rows go by in groups. x is packed by each part, or once for all if that is much.
TEST_P(CpuKernels, AnyGridOfThreadsHasTheBitsOfOneThread) {
  TwoThreadExecutor two;
  const auto two_threads = make_skinny_family(GetParam().set, 2);
  using Change = std::pair<std::string, std::string>;
  const auto check = [&](std::int64_t m, std::int64_t k, bool packed, const Change& change,
                         std::initializer_list<int> all_threads) {
    const Problem problem{.m = m,
                          .n = 86,
                          .k = k,
                          .x_type = DataType::bf16,
                          .w_type = DataType::bf16,
                          .y_type = DataType::bf16,
                          .bias = true,
                          .weight_layout = packed ? WeightLayout::panel16 : WeightLayout::plain};
    Config config;
    const Config standard = two_threads->default_config(problem);
    for (const auto& [key, value] : standard.settings())
      config.set(key, key == change.first ? change.second : value);
    if (change.first == "tree") config.set("tree", change.second);
    std::unique_ptr<FencedMemory> first;
    for (const int threads : all_threads) {
      SCOPED_TRACE(print(problem) + " " + config.text() + " on " + std::to_string(threads));
      const auto kernel = make_skinny_family(GetParam().set, std::max(threads, 2))->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      SerialExecutor serial(threads);
      for (Executor* executor : {static_cast<Executor*>(&serial), static_cast<Executor*>(&two)}) {
        Product product = run_kernel(**kernel, problem, *executor, Fence::after);
        ASSERT_EQ(verdict(problem, product), "");
        if (first) {
          ASSERT_EQ(std::memcmp(first->data(), product.y->data(), first->bytes()), 0);
        } else {
          first = std::move(product.y);
        }
      }
    }
  };
  if (!two_threads
           ->accepts({.m = 300,
                      .n = 86,
                      .k = 64,
                      .x_type = DataType::bf16,
                      .w_type = DataType::bf16,
                      .y_type = DataType::bf16})
           .ok())
    GTEST_SKIP() << "no AMX";
  for (const bool packed : {false, true}) {
    for (const Change& change : {Change{},
                                 {"mc", "64"},
                                 {"mc", "128"},
                                 {"kc", "256"},
                                 {"kc", "512"},
                                 {"mr", "16"},
                                 {"mr", "32"},
                                 {"sk", "2"},
                                 {"tree", "1"}})
      check(300, 1100, packed, change, {1, 2, 3, 5, 12});
    check(300, 4128, packed, {}, {1, 2});
  }
}

/// Smaller tiles divide more evenly, and load more than they gain.
TEST(CpuFamilies, ManyRowsRunTheLargestTileOnAnyNumberOfThreads) {
  if (kernel_set(Isa::amx).at(Isa::amx) == nullptr) GTEST_SKIP() << "no AMX kernels";
  for (const int threads : {1, 2, 12, 16})
    for (const auto layout : {WeightLayout::plain, WeightLayout::panel16})
      for (const Shape& shape : {Shape{512, 1024, 3072}, Shape{1024, 2048, 2048}, Shape{128, 1024, 3072}}) {
        const Problem problem{.m = shape.m,
                              .n = shape.n,
                              .k = shape.k,
                              .x_type = DataType::bf16,
                              .w_type = DataType::bf16,
                              .y_type = DataType::bf16,
                              .weight_layout = layout};
        const Config config = make_skinny_family(kernel_set(Isa::amx), threads)->default_config(problem);
        EXPECT_GE(config.number("mr"), 32) << print(problem) << " on " << threads;
        EXPECT_EQ(config.number("nr"), 32) << print(problem) << " on " << threads;
      }
}

TEST(CpuFamilies, SkinnyDividesWhatAllThreadsShare) {
  const SkinnyGrid grid =
      skinny_grid({.m = 512, .n = 1024, .k = 3072, .weight_layout = WeightLayout::panel16},
                  {.mr = 32, .nr = 32, .rows = 256}, 12);
  EXPECT_GT(grid.row_parts, 1) << "32 blocks of columns are too few for 12 threads";
  EXPECT_EQ(grid.groups, 1);
  const SkinnyGrid few = skinny_grid({.m = 16, .n = 1024, .k = 3072, .weight_layout = WeightLayout::panel16},
                                     {.mr = 16, .nr = 64}, 12);
  EXPECT_EQ(ceil_div(1024 / few.unit, few.column_parts) * few.unit, 96)
      << "six of 64 panels, not two of 16 blocks";
}

TEST(CpuFamilies, SkinnyTakesAsManyRowsOfXAsStayInTheInnerCache) {
  if (kernel_set(Isa::amx).at(Isa::amx) == nullptr) GTEST_SKIP() << "no AMX kernels";
  const auto family = make_skinny_family(kernel_set(Isa::amx), 2);
  for (const std::int64_t k : {896, 1024, 2048, 3072, 4096, 8192})
    for (const std::int64_t m : {100, 200, 512, 2048}) {
      const Problem problem{.m = m, .n = 2048, .k = k};
      const Config config = family->default_config(problem);
      const std::int64_t depth = std::min(config.number("kc", 16384), k);
      const std::int64_t bytes = std::min(config.number("mc", 512), m) * depth * 2;
      EXPECT_LE(bytes, skinny_bytes_kept) << print(problem) << config.text();
      EXPECT_GE(2 * bytes, std::min(skinny_bytes_kept, m * depth * 2))
          << "half of it is empty: " << print(problem) << config.text();
      EXPECT_EQ(family->space(problem).refusal(config), "") << config.text();
    }
  const auto rows = [&](std::int64_t m) {
    return family->default_config({.m = m, .n = 2048, .k = 1024}).number("mc");
  };
  EXPECT_GE(rows(300), 300) << "one pass over the weight, not two";
  EXPECT_EQ(rows(384), 384);
  EXPECT_EQ(rows(1024), 288) << "of several groups none is so large that nothing else stays";
}

/// Each part of k has memory of its own, also where the problem is worth fewer threads than there are parts.
TEST_P(CpuKernels, MorePartsOfKThanThreadsThatAreWorthIt) {
  TwoThreadExecutor two;
  const auto skinny = make_skinny_family(GetParam().set, 8);
  Problem problem{.m = 4, .n = 32, .k = 4096, .y_type = DataType::f32};
  if (!skinny->accepts(problem).ok()) return;
  ASSERT_LT(worthwhile_threads(problem, 8), 8);
  ASSERT_GT(worthwhile_threads(problem, 8), 1);
  for (const bool packed : {false, true}) {
    if (packed) problem.weight_layout = WeightLayout::panel16;
    Config config;
    const Config standard = skinny->default_config(problem);
    for (const auto& [key, value] : standard.settings()) config.set(key, key == "sk" ? "8" : value);
    const auto kernel = skinny->build(problem, config);
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    EXPECT_EQ(verdict(problem, run_kernel(**kernel, problem, two, Fence::after)), "") << config.text();
  }
}

/// Padded look-ups give a row tuned for M = 16 to M = 1 … 15: every config of the search at 16 must run
/// there.
TEST_P(CpuKernels, ConfigsTunedForTheTileRunForFewerRows) {
  SerialExecutor serial(2);
  const auto tiled = make_tiled_family(GetParam().set, 2);
  const auto skinny = make_skinny_family(GetParam().set, 2);
  for (const KernelFamily* family : {tiled.get(), skinny.get()})
    for (const bool packed : {false, true}) {
      Problem problem{.m = 16,
                      .n = 130,
                      .k = 1100,
                      .weight_layout = packed ? WeightLayout::panel16 : WeightLayout::plain};
      std::int64_t index = 0;
      for (const Config& config : family->space(problem).enumerate()) {
        Problem fewer = problem;
        fewer.m = 1 + ++index % 15;
        const auto kernel = family->build(fewer, config);
        ASSERT_TRUE(kernel.ok()) << family->name() << " m=" << fewer.m << " " << kernel.message();
        if (index % 7 != 0) continue;  // building is what was wrong; running is sampled
        ASSERT_EQ(verdict(fewer, run_kernel(**kernel, fewer, serial, Fence::after)), "")
            << print(fewer) << " " << family->name() << " " << config.text();
      }
      EXPECT_GT(index, 3);
    }
}

INSTANTIATE_TEST_SUITE_P(Levels, CpuKernels, ::testing::ValuesIn(levels()),
                         [](const auto& test) { return test.param.name; });

TEST(CpuReference, IsRight) {
  const auto family = make_reference_family(Isa::scalar);
  SerialExecutor serial(4);
  int index = 0;
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16})
    for (const DataType output : {DataType::f32, DataType::bf16, DataType::f16})
      for (const bool packed : {false, true})
        for (const Shape& shape :
             {Shape{1, 1, 1}, Shape{3, 17, 33}, Shape{16, 31, 100}, Shape{100, 129, 128}}) {
          const Problem problem{.m = shape.m,
                                .n = shape.n,
                                .k = shape.k,
                                .x_type = type,
                                .w_type = type,
                                .y_type = output,
                                .bias = ++index % 2 == 0,
                                .weight_layout = packed ? WeightLayout::panel16 : WeightLayout::plain};
          const auto kernel = family->build(problem, family->default_config(problem));
          ASSERT_TRUE(kernel.ok()) << kernel.message();
          ASSERT_EQ(verdict(problem, run_kernel(**kernel, problem, serial, Fence::after)), "")
              << print(problem);
        }
}

TEST(CpuFamilies, RefuseInWordsOfAFixedVocabulary) {
  const auto skinny = make_skinny_family(Isa::scalar, 2);
  const auto tiled = make_tiled_family(Isa::scalar, 2);
  Problem problem{.m = 33, .n = 64, .k = 64};
  EXPECT_EQ(skinny->accepts(problem).message(), "rows: 33 is not taken, only up to 32");
  EXPECT_TRUE(tiled->accepts(problem).ok());
  problem.weight_layout = WeightLayout::onednn;
  EXPECT_EQ(tiled->accepts(problem).message(), "weight layout: onednn is not taken, only plain and panel16");
  problem = {.m = 1, .n = 64, .k = 64, .y_type = DataType::i8};
  EXPECT_EQ(tiled->accepts(problem).message(), "data types: y i8 is not taken, only f32, bf16 or f16");
  problem = default_problem(Operation::a8w8);
  problem.m = problem.n = problem.k = 64;
  problem.x_type = problem.w_type = DataType::i8;
  EXPECT_EQ(tiled->accepts(problem).message(),
            "isa: scalar has no such kernels, they need AVX-512 with BF16 and VNNI");
  problem.x_type = problem.w_type = DataType::f8_e4m3fn;
  EXPECT_EQ(tiled->accepts(problem).message(),
            "operation: a8w8 of f8_e4m3fn is not taken, only a16w16, and a8w8 of int8");
  problem = {.m = 1, .n = 64, .k = 64, .scale_ab = true};
  EXPECT_EQ(tiled->accepts(problem).code(), StatusCode::unsupported);
}

/// Spaces stay worth searching, defaults are allowed and rank well in the family's own eyes, names read back.
TEST(CpuFamilies, SpacesAreBoundedAndTheDefaultIsInThem) {
  for (const int threads : {1, 2, 8})
    for (const std::int64_t m : {1, 5, 16, 33, 512})
      for (const bool packed : {false, true}) {
        const Problem problem{
            .m = m, .n = 1536, .k = 4096, .weight_layout = packed ? WeightLayout::any : WeightLayout::plain};
        const auto tiled = make_tiled_family(detect_isa(), threads);
        const auto skinny = make_skinny_family(detect_isa(), threads);
        for (const KernelFamily* family : {tiled.get(), skinny.get()}) {
          if (!family->accepts(problem).ok()) continue;
          const Space space = family->space(problem);
          const std::vector<Config> configs = space.enumerate();
          EXPECT_GE(configs.size(), 4U) << family->name() << " " << print(problem);
          EXPECT_LE(configs.size(), 10000U) << family->name() << " " << print(problem);
          const Config standard = family->default_config(problem);
          EXPECT_NE(std::find(configs.begin(), configs.end(), standard), configs.end())
              << family->name() << " " << standard.text() << " " << print(problem) << " "
              << space.refusal(standard);
          const Candidate candidate{std::string(family->name()), 1, standard};
          const auto parsed = parse_kernel_name(candidate.kernel_name(), space.keys());
          ASSERT_TRUE(parsed.ok()) << parsed.message();
          EXPECT_EQ(*parsed, candidate);
          for (const Config& config : configs) EXPECT_GT(family->predicted_microseconds(problem, config), 0);
        }
      }
}

}  // namespace
}  // namespace gemmtune::cpu
