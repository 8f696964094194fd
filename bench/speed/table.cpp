#include "speed/table.h"

#include <algorithm>
#include <functional>

#include "base/random.h"
#include "base/text.h"
#include "measure/statistics.h"
#include "speed/int8_library.h"

namespace gemmtune::speed {
namespace {

Problem packed_problem(Operation operation, DataType type) {
  Problem problem = default_problem(operation);
  problem.x_type = problem.w_type = type;
  problem.y_type = type == DataType::f32 ? DataType::f32 : DataType::bf16;
  problem.bpreshuffle = true;
  problem.weight_layout = WeightLayout::panel16;
  return problem;
}

std::vector<Line> all_lines() {
  return {{"bf16", packed_problem(Operation::a16w16, DataType::bf16), false},
          {"f32", packed_problem(Operation::a16w16, DataType::f32), false},
          {"int8", packed_problem(Operation::a8w8_bpreshuffle, DataType::i8), true},
          {"fp8", packed_problem(Operation::a8w8_bpreshuffle, DataType::f8_e4m3fn), true},
          {"blockscale", packed_problem(Operation::a8w8_blockscale_bpreshuffle, DataType::f8_e4m3fn), true},
          {"mxfp4", packed_problem(Operation::a4w4_blockscale, DataType::f4_e2m1), true}};
}

/// What one M of one line and size is measured with.
struct Field {
  RoundMember ours;
  RoundMember* read = nullptr;
  std::optional<RoundMember> library;
  std::optional<RoundMember> blas;
  std::optional<RoundMember> bf16;
};

struct Times {
  std::vector<double> ours;
  std::vector<double> read;
  std::vector<double> library;
  std::vector<double> blas;
  std::vector<double> bf16;
};

/// Every member once a round, in random order.
Result<Times> run_rounds(Workplace& workplace, Field& field, int rounds) {
  struct Turn {
    RoundMember* member;
    std::vector<double> Times::*times;
  };
  std::vector<Turn> turns{{&field.ours, &Times::ours}, {field.read, &Times::read}};
  if (field.library) turns.push_back({&*field.library, &Times::library});
  if (field.blas) turns.push_back({&*field.blas, &Times::blas});
  if (field.bf16) turns.push_back({&*field.bf16, &Times::bf16});
  Times times;
  Random random(7);
  PoolTurns pools(workplace.device());
  for (int round = 0; round < rounds; ++round) {
    shuffle(turns, random);
    // One change to each thread pool a round: those of others come last.
    std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) {
      const auto rank = [](const Turn& turn) {
        return turn.member->thread_pool == "own" ? 0 : turn.member->thread_pool == "openmp" ? 1 : 2;
      };
      return rank(a) < rank(b);
    });
    for (const Turn& turn : turns) {
      pools.next(*turn.member);
      const auto time = workplace.sample(*turn.member);
      if (!time.ok()) return time.status();
      (times.*turn.times).push_back(*time);
    }
  }
  return times;
}

struct Ratio {
  double median = 0;
  double spread = 0;
};

Ratio ratio_of(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < above.size(); ++i) ratios.push_back(above[i] / below[i]);
  return {median(ratios), spread(ratios)};
}

Row make_row(const Field& field, const Times& times) {
  Row row;
  row.kernel = field.ours.name;
  row.microseconds = median(times.ours);
  row.read_microseconds = median(times.read);
  const Ratio share = ratio_of(times.read, times.ours);
  row.share = share.median;
  row.share_spread = share.spread;
  if (field.library) {
    const Ratio over = ratio_of(times.library, times.ours);
    row.library = field.library->name;
    row.over_library = over.median;
    row.library_spread = over.spread;
  }
  if (field.blas) {
    const Ratio over = ratio_of(times.blas, times.ours);
    row.over_blas = over.median;
    row.blas_spread = over.spread;
  }
  if (field.bf16) {
    const Ratio over = ratio_of(times.bf16, times.ours);
    row.over_bf16 = over.median;
    row.bf16_spread = over.spread;
  }
  return row;
}

/// One line at one size: all its M over the same pools.
class SizeRun {
 public:
  SizeRun(Device& device, const Plan& plan, const Line& line, Size size)
      : device_(device), plan_(plan), line_(line), size_(size) {}

  Status run(const std::function<void(const Row&)>& on_row) {
    auto own = make_place(line_.problem);
    if (!own.ok()) return own.status();
    std::unique_ptr<Workplace> bf16;
    if (line_.against_bf16) {
      auto made = make_place(packed_problem(Operation::a16w16, DataType::bf16));
      if (!made.ok()) return made.status();
      bf16 = std::move(*made);
    }
    auto read = (*own)->roofline(line_.problem.weight_layout);
    if (!read.ok()) return read.status();
    const auto bytes = device_.packed_bytes((*own)->largest(), line_.problem.weight_layout);
    for (const std::int64_t m : plan_.ms) {
      Field field;
      field.read = &*read;
      GEMMTUNE_RETURN_IF_ERROR(enter(**own, bf16.get(), m, field));
      const auto times = run_rounds(**own, field, plan_.rounds);
      if (!times.ok()) return times.status();
      Row row = make_row(field, *times);
      row.line = line_.name;
      row.threads = plan_.threads;
      row.m = m;
      row.size = size_;
      row.gigabytes_per_second = static_cast<double>(*bytes) / row.read_microseconds / 1e3;
      on_row(row);
    }
    return {};
  }

 private:
  Result<std::unique_ptr<Workplace>> make_place(Problem problem) const {
    problem.m = *std::max_element(plan_.ms.begin(), plan_.ms.end());
    problem.n = size_.n;
    problem.k = size_.k;
    return Workplace::make(device_, problem, plan_.policy);
  }

  Status enter(Workplace& own, Workplace* bf16, std::int64_t m, Field& field) const {
    auto ours = own.fastest(m, plan_.tries);
    if (!ours.ok()) return ours.status();
    field.ours = std::move(*ours);
    auto library =
        line_.name == "int8" ? int8_library(own, m, plan_.threads) : own.library(m, WeightLayout::onednn);
    if (library.ok()) field.library = std::move(*library);
    if (line_.name == "f32") {
      auto blas = own.blas(m);
      if (blas.ok()) field.blas = std::move(*blas);
    }
    if (bf16 == nullptr) return {};
    auto wide = bf16->fastest(m, plan_.tries);
    if (!wide.ok()) return wide.status();
    field.bf16 = std::move(*wide);
    return {};
  }

  Device& device_;
  const Plan& plan_;
  const Line& line_;
  Size size_;
};

}  // namespace

Result<std::vector<Line>> lines_named(const std::string& names) {
  std::vector<Line> all = all_lines();
  if (names.empty()) return all;
  std::vector<Line> chosen;
  for (const std::string_view name : split(names, ',')) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Line& line) { return line.name == name; });
    if (found == all.end())
      return Status::invalid("--ops: '{}', expected bf16, f32, int8, fp8, blockscale, mxfp4 or moe", name);
    chosen.push_back(*found);
  }
  return chosen;
}

Status run_plan(Device& device, const Plan& plan, const std::function<void(const Row&)>& on_row) {
  for (const Line& line : plan.lines)
    for (const Size& size : plan.sizes)
      GEMMTUNE_RETURN_IF_ERROR(SizeRun(device, plan, line, size).run(on_row));
  return {};
}

}  // namespace gemmtune::speed
