#include "resolve/shipped_tables.h"

#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "resolve/bind.h"

namespace gemmtune {
namespace {

bool may_answer(const TableSet& tables, const TunedEntry& row, const DeviceInfo& device) {
  return row_is_of(row, device) &&
         tables.sources[row.source].environments.certain_difference(row.env, device).empty();
}

/// Two cards of one architecture have rows of the same key: those of another one must not stand in front.
void keep_rows_of(const DeviceInfo& device, TableSet& tables) {
  std::vector<TunedEntry> kept;
  for (const TunedEntry& row : tables.table.entries()) {
    TableSource& source = tables.sources[row.source];
    if (may_answer(tables, row, device)) {
      kept.push_back(row);
    } else {
      --source.rows;
      ++source.other_rows;
    }
  }
  tables.table = TunedTable(std::move(kept));
}

}  // namespace

TableSet load_shipped_tables(const std::string& folder, const DeviceInfo* device) {
  if (folder.empty()) return {};
  std::vector<TablePath> paths;
  for (const OperationForm operation : all_operation_forms()) {
    auto of_operation = model_table_paths(folder, operation);
    std::move(of_operation.begin(), of_operation.end(), std::back_inserter(paths));
  }
  TableSet tables = load_table_set(paths);
  tables.fewer_threads = false;
  for (TableSource& source : tables.sources) source.shipped = true;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    TableSource& source = tables.sources.emplace_back();
    source.path = folder;
    source.shipped = source.unknown = true;
    source.state = Status::io("{}: no folder of shipped tables", folder);
  }
  if (device != nullptr) keep_rows_of(*device, tables);
  return tables;
}

std::shared_ptr<const TableSet> production_shipped_tables(const Environment& environment,
                                                          const DeviceInfo* device) {
  return std::make_shared<const TableSet>(load_shipped_tables(environment.shipped_folder, device));
}

}  // namespace gemmtune
