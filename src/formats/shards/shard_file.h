// Shards: a list of shapes that is tuned in parts, each by a run of its own with an output of its own. Names of the
// outputs, and <output>.shard.json beside each: which part of which list it is. `merge --expect-shards` reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune {

/// Part `index` of `count`, from 1.
struct Shard {
  std::size_t index = 1;
  std::size_t count = 1;
  friend bool operator==(const Shard&, const Shard&) = default;
};

inline constexpr std::size_t max_shards = 1'000'000;

/// "3/16".
std::string to_string(const Shard& shard);
/// "3/16"; nullopt for another text, and unless 1 <= 3 <= 16 <= max_shards.
std::optional<Shard> parse_shard(std::string_view text);

/// "out/tuned.csv" → "out/tuned.3of16.csv"; of a name without an ending "tuned.3of16".
std::string shard_path(const std::string& path, const Shard& shard);
/// The shard that a name made by shard_path() says.
std::optional<Shard> shard_of_path(const std::string& path);

/// A shape of a shard, and after the run what became of it.
struct ShardShape {
  std::size_t position = 0;  // among all shapes of the list, in the order in which a single run writes rows
  Problem problem;
  std::string state;   // ProblemState's word; empty before the end of the run
  std::string reason;  // why there is no row
};

struct ShardFile {
  Shard shard;
  OperationForm operation = Operation::a16w16;  // of the list: columns alone do not say it of every table
  std::string list;  // hash of all shapes of the list and of what decides who gets them
  std::size_t shapes_in_list = 0;
  std::string options;      // of the run: those that decide what is measured
  std::int64_t m_from = 0;  // of a run over ranges of M: its range; 0: of none
  std::int64_t m_to = 0;
  std::string gfx;
  int cu_num = 0;
  std::string environment;  // env hash of its rows
  std::string state;        // running, interrupted, finished
  std::vector<ShardShape> shapes;
};

inline constexpr std::string_view shard_running = "running";
inline constexpr std::string_view shard_interrupted = "interrupted";
inline constexpr std::string_view shard_finished = "finished";

/// Beside the tuned file of a shard.
std::string shard_file_path(const std::string& tuned_file);
/// `not_found` where there is none; another text is an error that names the file and what was expected.
Result<ShardFile> read_shard_file(const std::string& tuned_file);
/// The same from memory; `path` for errors.
Result<ShardFile> parse_shard_file(const std::string& path, const std::string& content);
std::string print_shard_file(const ShardFile& file);
/// Replaces the file at once.
Status write_shard_file(const std::string& tuned_file, const ShardFile& file);

}  // namespace gemmtune
