#include "formats/conversion.h"

#include <iterator>
#include <utility>

namespace gemmtune {

void ConversionRows::leave_out(std::size_t entry, std::string_view why) {
  if (gone.size() <= entry) gone.resize(entry + 1);
  gone[entry] = true;
  leave_out_line(entries[entry].line, why);
  if (entries[entry].source < sources.size()) left_out.back().source = sources[entries[entry].source];
}

Status ConversionRows::append(ConversionRows more) {
  if (more.operation != operation || more.origin != origin || more.has_types != has_types) {
    return Status::invalid("{}: not of the operation and the format of {}; convert them apart", more.source,
                           source);
  }
  for (const ConversionRows* rows : {&*this, &more}) {
    if (!rows->parts.empty() || !rows->missing.empty()) {
      return Status::invalid("{}: has parts that are no rows; convert it by itself", rows->source);
    }
  }
  const auto name_source = [](ConversionRows& rows, std::uint32_t index) {
    for (LeftOut& item : rows.left_out) item.source = rows.source;
    for (TunedEntry& entry : rows.entries) entry.source = index;
  };
  if (sources.empty()) {
    sources.push_back(source);
    name_source(*this, 0);
  }
  name_source(more, static_cast<std::uint32_t>(sources.size()));
  sources.push_back(more.source);
  for (auto& [index, key] : more.own_keys) own_keys[entries.size() + index] = std::move(key);
  config = nullptr;  // of several files
  gone.resize(entries.size());
  more.gone.resize(more.entries.size());
  gone.insert(gone.end(), more.gone.begin(), more.gone.end());
  std::move(more.entries.begin(), more.entries.end(), std::back_inserter(entries));
  std::move(more.left_out.begin(), more.left_out.end(), std::back_inserter(left_out));
  std::move(more.notes.begin(), more.notes.end(), std::back_inserter(notes));
  return {};
}

void ConversionRows::leave_out_line(std::size_t line, std::string_view why) {
  left_out.push_back({LeftOutKind::row, {}, line, 1, std::string(why)});
}

void ConversionRows::leave_out_lines(const std::vector<std::string>& diagnostics) {
  for (const std::string& diagnostic : diagnostics) {
    const auto [line, why] = split_diagnostic(diagnostic, source);
    leave_out_line(line, why);
  }
}

Status require_types(const ConversionRows& rows) {
  if (rows.has_types) return {};
  return Status::invalid("{}: says no types; give --indtype (and --outdtype)", rows.source);
}

}  // namespace gemmtune
