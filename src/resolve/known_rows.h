// The rows of tuned files that a run starts from: what is done already, and which weight layouts are decided.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "tuned/entry.h"
#include "tuned/key.h"

namespace gemmtune {

class KnownRows {
 public:
  /// Reads every file that exists, but for YAMLs (tune_gemm's results, which name no device), as a table of
  /// `operation`; a file that exists, but cannot be read as one, is
  /// an error. Rows of other devices and rows that may not be chosen are left out.
  static Result<KnownRows> read(const std::vector<std::string>& paths, OperationForm operation,
                                const DeviceInfo& device);

  struct Row {
    TunedEntry entry;
    std::string path;
  };
  /// The first row of this key; nullptr where there is none.
  const Row* find(const Problem& problem) const;
  /// In file order.
  const std::vector<Row>& rows() const { return rows_; }
  /// The rows of this problem's weight (weight_of(): their keys may differ in M, bias and scaleAB), in file order.
  std::vector<const Row*> of_weight(const Problem& problem) const;

 private:
  std::vector<Row> rows_;
  std::unordered_map<Problem, std::size_t, SameKeyHash, SameKey> first_of_key_;     // indices of rows_
  std::unordered_map<GroupKey, std::vector<std::size_t>, GroupKeyHash> of_weight_;  // the same, ascending
};

}  // namespace gemmtune
