// The rows of tuned files by what makes them neighbours: one key without M, on one device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tuned/entry.h"
#include "tuned/key.h"

namespace gemmtune {

/// Owned by whoever read the files.
using Rows = std::vector<const TunedEntry*>;

Rows rows_of(const std::vector<TunedEntry>& entries);

/// The group of a row: the device as the table keeps it (table_gfx), group_of(), types that are not known.
GroupKey group_key_of(const TunedEntry& row);

/// How rows of a fused MoE that differ in their tag alone are taken. As look-up does: of one key, but those with the tag that
/// dispatch leaves out apart. As AITER's merge does: each tag is a key.
enum class TagRule { look_up, merge };
/// The rows of each group in the order of its first row; within a group ascending in M, equal M as given. One
/// group: group_key_of(), the tag by the rule, and other_key.
std::vector<Rows> rows_by_group(std::span<const TunedEntry* const> rows, TagRule tags = TagRule::look_up);

/// What the row says; fp32 where it says nothing.
Accuracy accuracy_class(const TunedEntry& row);

/// True where `a` is chosen over `b`, which came first: a row that may be chosen, of the higher accuracy class,
/// with the smaller time. Of two tags the first is taken, as AITER does.
bool better_row(const TunedEntry& a, const TunedEntry& b);

/// Of a group as above: the chosen row of each M, ascending. Rows that may not be chosen (choice.h) count only
/// where no other row has their M.
Rows chosen_rows(std::span<const TunedEntry* const> group);

/// "gfx950 cu_num=256 M=1 N=2048 …": a row's device and problem for messages.
std::string describe_row(const TunedEntry& row);

}  // namespace gemmtune
