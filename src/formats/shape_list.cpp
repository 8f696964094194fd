#include "formats/shape_list.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "formats/csv.h"
#include "formats/gemm_size_yaml.h"
#include "formats/operation_header.h"

namespace gemmtune {
namespace {

/// Where the columns of a16w16 stand. Every header state of AITER is read: columns in any order, old files
/// without outdtype, scaleAB or bpreshuffle.
struct Columns {
  std::optional<std::size_t> m, n, k, bias, x_type, y_type, scale_ab, bpreshuffle, calls, layer;
};

class CsvShapeReader {
 public:
  CsvShapeReader(const CsvFile& file, std::size_t header, const ShapeListOptions& options, ShapeList& list)
      : file_(file),
        first_row_(header + 1),
        header_(file.lines[header].cells),
        options_(options),
        list_(list) {}

  Status read() {
    GEMMTUNE_RETURN_IF_ERROR(find_columns());
    for (std::size_t i = first_row_; i < file_.lines.size(); ++i) {
      if (file_.lines[i].blank()) continue;
      line_ = &file_.lines[i];
      ShapeRow row;
      row.line = line_->number;
      if (const Status status = read_row(row); !status.ok()) {
        if (options_.strict) return status;
        list_.complaints.push_back(status.message());
        continue;
      }
      list_.rows.push_back(std::move(row));
    }
    return {};
  }

 private:
  Status find_columns() {
    columns_ = {header_.find({"M"}),       header_.find({"N"}),           header_.find({"K"}),
                header_.find({"bias"}),    header_.find({"dtype"}),       header_.find({"outdtype"}),
                header_.find({"scaleAB"}), header_.find({"bpreshuffle"}), header_.find({"calls"}),
                header_.find({"layer"})};
    std::string missing;
    const auto require = [&](const std::optional<std::size_t>& column, std::string_view name) {
      if (!column) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
    };
    require(columns_.m, "M");
    require(columns_.n, "N");
    require(columns_.k, "K");
    if (!options_.x_type) require(columns_.x_type, "dtype");
    if (missing.empty()) return {};
    return Status::invalid("{}:{}: the header '{}' has no column {}{}", file_.path,
                           file_.lines[first_row_ - 1].number, file_.lines[first_row_ - 1].raw, missing,
                           missing == "dtype" ? " (or give --indtype)" : "");
  }

  std::string_view cell(const std::optional<std::size_t>& column) const {
    return column && *column < line_->cells.size() ? std::string_view(line_->cells[*column])
                                                   : std::string_view();
  }

  Status bad(std::string_view column, std::string_view value, std::string_view expected) const {
    return {StatusCode::invalid_argument, complaint(file_.path, line_->number, column, value, expected)};
  }

  Status read_dimension(const std::optional<std::size_t>& column, std::string_view name,
                        std::int64_t& target) const {
    const auto value = parse_integer(cell(column));
    if (!value || *value < 1 || *value > max_dimension) {
      return bad(name, cell(column), fmt::format("a whole number from 1 to {}", max_dimension));
    }
    target = *value;
    return {};
  }

  Status read_type(const std::optional<std::size_t>& column, std::string_view name, DataType& target) const {
    const auto value = parse_data_type(cell(column));
    if (!value)
      return bad(name, cell(column), "a data type such as torch.bfloat16, torch.float16, torch.float32");
    target = *value;
    return {};
  }

  Status read_bool(const std::optional<std::size_t>& column, std::string_view name, bool& target) const {
    if (!column || cell(column).empty()) return {};
    const auto value = parse_bool(cell(column));
    if (!value) return bad(name, cell(column), "True or False");
    target = *value;
    return {};
  }

  Status read_row(ShapeRow& row) const {
    Problem& problem = row.problem;
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(columns_.m, "M", problem.m));
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(columns_.n, "N", problem.n));
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(columns_.k, "K", problem.k));
    if (options_.x_type) {
      problem.x_type = *options_.x_type;
    } else {
      GEMMTUNE_RETURN_IF_ERROR(read_type(columns_.x_type, "dtype", problem.x_type));
    }
    problem.w_type = problem.x_type;
    // An old file without outdtype means: as dtype.
    problem.y_type = problem.x_type;
    if (options_.y_type) {
      problem.y_type = *options_.y_type;
    } else if (!cell(columns_.y_type).empty()) {
      GEMMTUNE_RETURN_IF_ERROR(read_type(columns_.y_type, "outdtype", problem.y_type));
    }
    GEMMTUNE_RETURN_IF_ERROR(read_bool(columns_.bias, "bias", problem.bias));
    GEMMTUNE_RETURN_IF_ERROR(read_bool(columns_.scale_ab, "scaleAB", problem.scale_ab));
    GEMMTUNE_RETURN_IF_ERROR(read_bool(columns_.bpreshuffle, "bpreshuffle", problem.bpreshuffle));
    problem.weight_layout = problem.bpreshuffle ? WeightLayout::any : WeightLayout::plain;
    if (!cell(columns_.calls).empty()) {
      const auto calls = parse_integer(cell(columns_.calls));
      if (!calls || *calls < 0) return bad("calls", cell(columns_.calls), "a whole number of at least 0");
      row.calls = *calls;
    }
    row.layer = cell(columns_.layer);
    if (const Status status = check(problem); !status.ok()) {
      return Status(status.code(), fmt::format("{}:{}: {}", file_.path, line_->number, status.message()));
    }
    return {};
  }

  const CsvFile& file_;
  std::size_t first_row_;
  CsvHeader header_;
  const ShapeListOptions& options_;
  ShapeList& list_;
  Columns columns_;
  const CsvLine* line_ = nullptr;
};

void drop_duplicates(std::vector<ShapeRow>& rows) {
  std::vector<ShapeRow> kept;
  std::vector<std::pair<std::string, std::size_t>> order;
  for (std::size_t i = 0; i < rows.size(); ++i) order.emplace_back(print(rows[i].problem), i);
  std::sort(order.begin(), order.end());
  std::vector<bool> drop(rows.size(), false);
  for (std::size_t i = 0; i < order.size();) {
    std::size_t j = i + 1;
    for (; j < order.size() && order[j].first == order[i].first; ++j) {
      rows[order[i].second].calls += rows[order[j].second].calls;
      drop[order[j].second] = true;
    }
    i = j;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!drop[i]) kept.push_back(std::move(rows[i]));
  }
  rows = std::move(kept);
}

Status read_csv_shapes(const std::string& path, const std::string& content, const ShapeListOptions& options,
                       ShapeList& list) {
  const auto file = split_csv(path, content);
  if (!file.ok()) return file.status();
  const auto header = file->header();
  if (!header) return Status::invalid("{}: is empty, expected a header and shapes", path);
  const auto operation = operation_of(path, CsvHeader(file->lines[*header].cells), options.operation);
  if (!operation.ok()) return operation.status();
  if (*operation != Operation::a16w16) {
    return Status::unsupported(
        "{}: holds shapes of {}, which comes with a later version; this one tunes a16w16", path,
        to_string(*operation));
  }
  return CsvShapeReader(*file, *header, options, list).read();
}

bool is_yaml(const std::string& path) {
  const std::string extension = to_lower(std::filesystem::path(path).extension().string());
  return extension == ".yaml" || extension == ".yml";
}

}  // namespace

Result<ShapeList> read_shape_list(const std::string& path, const ShapeListOptions& options) {
  const auto content = read_file(path);
  if (!content.ok()) return content.status();
  ShapeList list;
  list.source = path;
  const Status status = is_yaml(path) ? read_gemm_size_yaml(path, *content, options, list)
                                      : read_csv_shapes(path, *content, options, list);
  GEMMTUNE_RETURN_IF_ERROR(status);
  if (list.rows.empty()) {
    if (list.complaints.empty()) return Status::invalid("{}: has no shapes", path);
    return Status::invalid("{}: no row is usable; the first complaint: {}", path, list.complaints.front());
  }
  drop_duplicates(list.rows);
  return list;
}

std::string write_shape_list(const std::vector<ShapeRow>& rows) {
  const bool layers =
      std::any_of(rows.begin(), rows.end(), [](const ShapeRow& row) { return !row.layer.empty(); });
  std::string text = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,calls";
  text += layers ? ",layer\n" : "\n";
  const auto word = [](bool value) { return value ? "True" : "False"; };
  for (const ShapeRow& row : rows) {
    const Problem& problem = row.problem;
    text += fmt::format("{},{},{},{},{},{},{},{},{}", problem.m, problem.n, problem.k, word(problem.bias),
                        torch_name(problem.x_type), torch_name(problem.y_type), word(problem.scale_ab),
                        word(problem.bpreshuffle), row.calls);
    if (layers) text += "," + csv_cell(row.layer);
    text += '\n';
  }
  return text;
}

}  // namespace gemmtune
