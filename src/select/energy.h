// Joules of a problem's finalists, and the choice by them. The search and the finals go by time; --objective then
// chooses among finalists that are nearly as fast. docs/energy.md.
#pragma once

#include "base/deadline.h"
#include "evaluate/evaluator.h"
#include "measure/policy.h"
#include "select/finals.h"

namespace gemmtune {

/// Finalists up to so many times the fastest one's time may be chosen for their joules.
inline constexpr double energy_time_limit = 1.3;

/// Seconds of weigh_energy for a problem whose kernels take about so long.
double expected_energy_seconds(double microseconds, const Policy& policy);

/// `by_time`, what finals have settled, with the joules of its finalists. By another objective than time: the finalist that
/// is better than the winner by it by more than the tie band, in fresh batches; its row's time and ratio to the default
/// are then of rounds of its own, and its verdict is `win` only if it passes the test of time too. If the deadline or an
/// error leaves no joules, `by_time` with the reason.
Settled weigh_energy(const Problem& problem, WeightLayout layout, const Policy& policy, Settled by_time,
                     Evaluator& evaluator, const Deadline& deadline);

/// Null where the kernel's joules were not measured.
const KernelEnergy* find_energy(const std::vector<KernelEnergy>& energies, std::string_view kernel_name);
/// What the objective makes small of a settled problem's winner; empty where its joules are missing.
std::optional<double> objective_value(const Settled& settled, Objective objective);

}  // namespace gemmtune
