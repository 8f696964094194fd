// `tune --shard`: a part of the shapes, with outputs of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/file_lock.h"
#include "cli/tune/tune_options.h"
#include "formats/shards/shard_file.h"
#include "tuning/shard_deal.h"

namespace gemmtune::cli {

/// The text of --shard: "3/16", "auto" or "auto/16". auto is the place of this process among those that Slurm (array and
/// tasks), mpirun or Kubernetes started; its number is an error where they say another one.
Result<Shard> shard_of(const std::string& text, const Environment& environment);

/// Names of outputs become those of the shard: -o (of a list the first), -o2, --record, --events of a file. An -o
/// that names this shard already stays; that of another one is an error.
Status name_outputs(const Shard& shard, TuneOptions& options);

/// The part of one shard in a list of shapes, from dealing to the file beside its output.
class TuneShard {
 public:
  /// Deals `shapes` to machines that are CPUs or not, and leaves those of the shard in it.
  TuneShard(const Shard& shard, bool runs_on_host, const TuneOptions& options,
            const std::optional<MRange>& range, ShapeList& shapes);

  const Shard& shard() const { return shard_; }
  /// All shapes of the list.
  const std::vector<ShapeRow>& all_shapes() const { return all_; }
  bool is_empty() const { return file_.shapes.empty(); }
  /// "shard 3 of 16: 12 of 192 shapes, 6.3 % of the predicted time".
  std::string line() const;
  /// Answers --list: the shapes of the shard (of every one, if `all`) with their predicted cost, and the load of all shards.
  std::string list(bool all, bool json) const;

  /// Waits until no other process works on this output, and writes the file beside it.
  Status begin(const Outputs& outputs, const Device& device, const TuneRequest& request);
  /// What became of the shapes. An output without any row gets a header, so that `merge` finds the shard.
  Status end(const RunSummary& summary, const TuneRequest& request, bool interrupted);

 private:
  double share(std::size_t shard) const;

  const Shard shard_;
  const bool runs_on_host_;
  std::vector<ShapeRow> all_;
  ShardDeal deal_;
  ShardFile file_;
  std::string output_;
  std::optional<FileLock> lock_;
};

}  // namespace gemmtune::cli
