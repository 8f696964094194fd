// make_example_table OUT: a tuned file for this machine with rows for the examples' shapes.
#include <cstdio>
#include <vector>

#include "backends/backend.h"
#include "base/file.h"
#include "formats/aiter/tuned_csv.h"

namespace {

gemmtune::Problem example(gemmtune::DataType type) {
  gemmtune::Problem problem;
  problem.m = 4;
  problem.n = 256;
  problem.k = 512;
  problem.x_type = problem.w_type = problem.y_type = type;
  problem.bias = true;
  return problem;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto device = gemmtune::open_device("auto", {});
  if (!device.ok()) return 1;
  std::vector<gemmtune::TunedEntry> rows;
  for (const auto type : {gemmtune::DataType::bf16, gemmtune::DataType::f32}) {
    gemmtune::TunedEntry row;
    row.gfx = (*device)->info().gfx;
    row.cu_num = (*device)->info().cu_num;
    row.problem = example(type);
    const auto kernel = (*device)->fallback(row.problem);
    if (!kernel.ok()) return 1;
    row.kernel_name = kernel->kernel_name();
    row.libtype = kernel->family;
    row.us = 10;
    rows.push_back(row);
  }
  const auto written = gemmtune::write_file_atomically(
      argv[1], gemmtune::write_tuned_csv(gemmtune::Operation::a16w16, rows, gemmtune::CsvSchema::aiter));
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.message().c_str());
  return written.ok() ? 0 : 1;
}
