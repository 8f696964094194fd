// Tuned files of a test: rows for the fake (or any) device, written into a folder that goes with the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/aiter/tuned_csv.h"
#include "resolve/table_set.h"
#include "support/temporary_folder.h"

namespace gemmtune::test {

inline Problem small_problem(std::int64_t m, std::int64_t n = 32, std::int64_t k = 48) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

inline Problem packed(Problem problem, WeightLayout layout = WeightLayout::panel16) {
  problem.weight_layout = layout;
  return problem;
}

/// A row for the fake device.
inline TunedEntry row(const Problem& problem, std::string kernel_name, double us = 1e6) {
  TunedEntry entry;
  entry.gfx = "x86-fake";
  entry.cu_num = 2;
  entry.problem = problem;
  if (is_packed(problem)) entry.problem.weight_layout = WeightLayout::any;
  entry.libtype = family_of_kernel_name(kernel_name).value_or("");
  entry.kernel_name = std::move(kernel_name);
  entry.us = us;
  return entry;
}

/// A file as a table of bf16.
inline TablePath table(const std::string& path) { return {OperationForm(Operation::a16w16), path}; }

inline std::string write_rows(const TemporaryFolder& folder, const std::string& name,
                              const std::vector<TunedEntry>& rows) {
  return folder.write(name, write_tuned_csv(Operation::a16w16, rows, CsvSchema::aiter));
}

}  // namespace gemmtune::test
