#include "speed/table.h"

#include <algorithm>

#include "base/text.h"
#include "measure/statistics.h"
#include "speed/int8_library.h"

namespace gemmtune::speed {
namespace {

Problem packed_problem(OperationForm operation, DataType type) {
  Problem problem = default_problem(operation);
  problem.x_type = problem.w_type = type;
  problem.y_type = type == DataType::f32 ? DataType::f32 : DataType::bf16;
  problem.weight_layout = WeightLayout::panel16;
  return problem;
}

std::vector<Line> all_lines() {
  return {{"bf16", packed_problem(Operation::a16w16, DataType::bf16), false},
          {"f32", packed_problem(Operation::a16w16, DataType::f32), false},
          {"int8", packed_problem(OperationForm(Operation::a8w8, true), DataType::i8), true},
          {"fp8", packed_problem(OperationForm(Operation::a8w8, true), DataType::f8_e4m3fn), true},
          {"blockscale", packed_problem(OperationForm(Operation::a8w8_blockscale, true), DataType::f8_e4m3fn),
           true},
          {"mxfp4", packed_problem(Operation::a4w4_blockscale, DataType::f4_e2m1), true}};
}

/// One line at one size: all its M over the same pools.
class SizeRun {
 public:
  SizeRun(Device& device, const Plan& plan, const Line& line, Size size)
      : device_(device), plan_(plan), line_(line), size_(size), sampler_(device, plan.policy) {}

  Status run(const OnRow& on_row) {
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
      auto ours = (*own)->fastest(m, plan_.tries);
      if (!ours.ok()) return ours.status();
      auto competitors = competitors_of(**own, bf16.get(), m);
      if (!competitors.ok()) return competitors.status();
      auto row = run_case(sampler_, *ours, *read, *competitors, plan_);
      if (!row.ok()) return row.status();
      row->line = line_.name;
      row->m = m;
      row->size = size_;
      row->gigabytes_per_second = static_cast<double>(*bytes) / row->read_microseconds / 1e3;
      on_row(*row);
    }
    return {};
  }

 private:
  Result<std::unique_ptr<Workplace>> make_place(Problem problem) {
    problem.m = *std::max_element(plan_.ms.begin(), plan_.ms.end());
    problem.n = size_.n;
    problem.k = size_.k;
    return Workplace::make(device_, sampler_, problem, plan_.policy);
  }

  /// Those that this machine has.
  Result<std::vector<Competitor>> competitors_of(Workplace& own, Workplace* bf16, std::int64_t m) const {
    std::vector<Competitor> competitors;
    const auto add = [&](const Opponent& opponent, Result<RoundMember> member) {
      if (member.ok()) competitors.push_back({&opponent, std::move(*member)});
    };
    add(packed_library,
        line_.name == "int8" ? int8_library(own, m, plan_.threads) : own.library(m, WeightLayout::onednn));
    if (line_.name == "f32") add(plain_blas, own.blas(m));
    if (bf16 == nullptr) return competitors;
    auto wide = bf16->fastest(m, plan_.tries);
    if (!wide.ok()) return wide.status();
    add(own_bf16, std::move(wide));
    return competitors;
  }

  Device& device_;
  const Plan& plan_;
  const Line& line_;
  Size size_;
  Sampler sampler_;
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

Result<Row> run_case(Sampler& sampler, RoundMember& ours, RoundMember& read,
                     std::vector<Competitor>& competitors, const Plan& plan) {
  std::vector<RoundMember*> members{&ours, &read};
  for (Competitor& one : competitors) members.push_back(&one.member);
  const auto times = run_rounds(sampler, members, plan.rounds);
  if (!times.ok()) return times.status();
  const std::vector<double>& our_times = times->front();
  Row row;
  row.threads = plan.threads;
  row.kernel = ours.name;
  row.microseconds = median(our_times);
  row.read_microseconds = median((*times)[1]);
  row.share = ratio_of((*times)[1], our_times);
  for (std::size_t i = 0; i < competitors.size(); ++i) {
    const Comparison made{competitors[i].opponent, ratio_of((*times)[i + 2], our_times),
                          competitors[i].member.name};
    const auto known = std::find_if(row.comparisons.begin(), row.comparisons.end(),
                                    [&](const Comparison& one) { return one.opponent == made.opponent; });
    if (known == row.comparisons.end()) {
      row.comparisons.push_back(made);
    } else if (made.ratio.median < known->ratio.median) {
      *known = made;
    }
  }
  return row;
}

Status run_plan(Device& device, const Plan& plan, const OnRow& on_row) {
  for (const Line& line : plan.lines)
    for (const Size& size : plan.sizes)
      GEMMTUNE_RETURN_IF_ERROR(SizeRun(device, plan, line, size).run(on_row));
  return {};
}

}  // namespace gemmtune::speed
