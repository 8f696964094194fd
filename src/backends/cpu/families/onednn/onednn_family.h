// The `onednn` family: oneDNN's matmul on plain and on packed weights.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cpu/families/all_families.h"
#include "backends/cpu/families/onednn/onednn_library.h"
#include "backends/cpu/threads/thread_team.h"

namespace gemmtune::cpu {

class OnednnFamily final : public LeafFamily, public OnednnServices {
 public:
  /// `team`: whose OpenMP runtime its kernels use; null for a family that is only described.
  OnednnFamily(std::shared_ptr<const OnednnLibrary> library, int threads, const ThreadTeam* team);

  std::string_view name() const override { return "onednn"; }
  int tie_rank() const override { return 0; }
  Status accepts(const Problem& problem) const override;
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override;
  /// One parameter, the weight's layout: w = plain or onednn, as the problem has it.
  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override;
  std::string_view thread_pool() const override { return "openmp"; }

  Result<std::size_t> packed_bytes(const Problem& problem) const override;
  Status pack(const Problem& problem, const void* plain, void* packed) const override;
  Status unpack(const Problem& problem, const void* packed, void* plain) const override;
  void pin_team(const CoreList& cores) const override { library_->pin_team(cores); }

 private:
  std::shared_ptr<const OnednnLibrary> library_;
  int threads_;
  const ThreadTeam* team_;
};

}  // namespace gemmtune::cpu
