// What `merge --expect-shards` checks before tuned files of shards become one table.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/shards/shard_file.h"

namespace gemmtune::cli {

/// Something that a table for all machines should not have. Its kind is a word of --allow.
struct ShardFinding {
  std::string_view kind;
  std::string text;
};

/// Those of --allow: a comma list of kinds. An error names the ones there are.
Result<std::set<std::string, std::less<>>> allowed_findings(const std::string& words);

/// The shards of one list of shapes.
class ShardSet {
 public:
  /// Of the files that are shards' outputs; others are further tables, whose rows count as answers. An error where two are
  /// one shard, or of another number of shards or another list.
  static Result<ShardSet> read(const std::vector<TunedFile>& files, std::size_t expected);

  /// Missing and unfinished shards, rows of several devices, environments or options.
  const std::vector<ShardFinding>& findings() const { return findings_; }
  std::size_t count() const { return shards_.size(); }
  std::size_t shapes_in_list() const { return shards_.front().file.shapes_in_list; }
  /// Shapes of the shards without a row in the table.
  std::vector<ShardFinding> unanswered(const TunedFile& table) const;
  /// The table with its rows in the order in which one run over the whole list writes them; rows of other shapes follow.
  std::string in_list_order(const TunedFile& table) const;

 private:
  struct Member {
    const TunedFile* table = nullptr;
    ShardFile file;
  };
  void check_members(std::size_t expected);
  void check_rows();

  std::vector<Member> shards_;  // by index
  std::vector<ShardFinding> findings_;
};

}  // namespace gemmtune::cli
