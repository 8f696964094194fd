#include "formats/shards/shard_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/json.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_shard_file_bytes = std::size_t{256} << 20;
constexpr int shard_file_version = 1;

std::optional<std::size_t> part_number(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto number = parse_integer(text);
  if (!number || *number < 1 || *number > static_cast<std::int64_t>(max_shards)) return std::nullopt;
  return static_cast<std::size_t>(*number);
}

std::optional<Shard> shard_of_words(std::string_view text, std::string_view between) {
  const auto at = text.find(between);
  if (at == std::string_view::npos) return std::nullopt;
  const auto index = part_number(text.substr(0, at));
  const auto count = part_number(text.substr(at + between.size()));
  if (!index || !count || *index > *count) return std::nullopt;
  return Shard{*index, *count};
}

/// Where the ending of a file's name begins, its point included; the end of the path where it has none.
std::size_t ending_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const auto point = path.find_last_of('.');
  return point == std::string::npos || point <= name ? path.size() : point;
}

/// Members of a JSON object, each of which must be there and of its type.
class Members {
 public:
  Members(const std::string& source, const Json& json) : source_(source), json_(json) {}

  std::string text(const char* name) {
    const Json* value = find(name, "a text");
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    fail(value, name, "a text");
    return {};
  }
  std::int64_t number(const char* name) {
    const Json* value = find(name, "a whole number");
    if (value != nullptr && value->is_number_integer() && value->get<std::int64_t>() >= 0)
      return value->get<std::int64_t>();
    fail(value, name, "a whole number of at least 0");
    return 0;
  }
  bool has(const char* name) const { return json_.contains(name); }
  const Json* list(const char* name) {
    const Json* value = find(name, "a list");
    if (value != nullptr && value->is_array()) return value;
    fail(value, name, "a list");
    return nullptr;
  }
  Status status() const { return status_; }

 private:
  const Json* find(const char* name, const char* expected) {
    const auto found = json_.is_object() ? json_.find(name) : json_.end();
    if (json_.is_object() && found != json_.end()) return &*found;
    if (status_.ok()) status_ = Status::invalid("{}: no '{}', expected {}", source_, name, expected);
    return nullptr;
  }
  void fail(const Json* value, const char* name, const char* expected) {
    if (value != nullptr && status_.ok())
      status_ = Status::invalid("{}: '{}' is {}, expected {}", source_, name, json_line(*value), expected);
  }

  const std::string& source_;
  const Json& json_;
  Status status_;
};

Result<ShardShape> shape_of(const std::string& source, const Json& json) {
  Members members(source, json);
  ShardShape shape;
  shape.position = static_cast<std::size_t>(members.number("position"));
  const std::string text = members.text("problem");
  shape.state = members.text("state");
  shape.reason = members.text("reason");
  GEMMTUNE_RETURN_IF_ERROR(members.status());
  auto problem = parse_problem(text);
  if (!problem.ok()) return Status::invalid("{}: problem '{}': {}", source, text, problem.message());
  shape.problem = *problem;
  return shape;
}

}  // namespace

std::string to_string(const Shard& shard) { return fmt::format("{}/{}", shard.index, shard.count); }

std::optional<Shard> parse_shard(std::string_view text) { return shard_of_words(text, "/"); }

std::string shard_path(const std::string& path, const Shard& shard) {
  const std::size_t ending = ending_of(path);
  return fmt::format("{}.{}of{}{}", path.substr(0, ending), shard.index, shard.count, path.substr(ending));
}

std::optional<Shard> shard_of_path(const std::string& path) {
  // The words of the name between points, the last one first: its ending may be the shard itself.
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (int words = 0; words < 2; ++words) {
    const auto point = name.find_last_of('.');
    if (point == std::string::npos) return std::nullopt;
    if (const auto shard = shard_of_words(std::string_view(name).substr(point + 1), "of")) return shard;
    name.resize(point);
  }
  return std::nullopt;
}

std::string shard_file_path(const std::string& tuned_file) { return tuned_file + ".shard.json"; }

Result<ShardFile> read_shard_file(const std::string& tuned_file) {
  const std::string path = shard_file_path(tuned_file);
  GEMMTUNE_TRY(const auto content, read_file(path, max_shard_file_bytes));
  return parse_shard_file(path, content);
}

Result<ShardFile> parse_shard_file(const std::string& path, const std::string& content) {
  GEMMTUNE_TRY(const auto json, parse_json_object(path, content));
  Members members(path, json);
  if (const auto version = members.number("version"); members.status().ok() && version != shard_file_version)
    return Status::unsupported("{}: version {}, this gemmtune knows {}", path, version, shard_file_version);
  ShardFile file;
  file.shard.index = static_cast<std::size_t>(members.number("shard"));
  file.shard.count = static_cast<std::size_t>(members.number("shards"));
  file.list = members.text("list");
  file.shapes_in_list = static_cast<std::size_t>(members.number("shapes_in_list"));
  file.options = members.text("options");
  file.m_from = members.number("m_from");
  file.m_to = members.number("m_to");
  file.gfx = members.text("gfx");
  const std::int64_t cu_num = members.number("cu_num");
  file.cu_num = static_cast<int>(std::min<std::int64_t>(cu_num, std::numeric_limits<int>::max()));
  file.environment = members.text("env");
  file.state = members.text("state");
  const Json* shapes = members.list("shapes");
  // Files of version 0.1.0 have none: then the shapes say it.
  const std::string operation = members.has("operation") ? members.text("operation") : "";
  GEMMTUNE_RETURN_IF_ERROR(members.status());
  if (file.shard.index < 1 || file.shard.index > file.shard.count || file.shard.count > max_shards)
    return Status::invalid("{}: shard {}, expected one from 1 to the number of shards", path,
                           to_string(file.shard));
  for (const Json& one : *shapes) {
    GEMMTUNE_TRY(auto shape, shape_of(path, one));
    file.shapes.push_back(std::move(shape));
  }
  if (!file.shapes.empty()) file.operation = form_of(file.shapes.front().problem);
  if (!operation.empty()) {
    const auto known = parse_operation(operation);
    if (!known)
      return Status::invalid("{}: 'operation' is '{}', expected the name of an operation", path, operation);
    file.operation = *known;
  }
  return file;
}

std::string print_shard_file(const ShardFile& file) {
  OrderedJson json = {{"version", shard_file_version},
                      {"shard", file.shard.index},
                      {"shards", file.shard.count},
                      {"operation", to_string(file.operation)},
                      {"list", file.list},
                      {"shapes_in_list", file.shapes_in_list},
                      {"options", file.options},
                      {"m_from", file.m_from},
                      {"m_to", file.m_to},
                      {"gfx", file.gfx},
                      {"cu_num", file.cu_num},
                      {"env", file.environment},
                      {"state", file.state},
                      {"shapes", OrderedJson::array()}};
  for (const ShardShape& shape : file.shapes) {
    json["shapes"].push_back({{"position", shape.position},
                              {"problem", print(shape.problem)},
                              {"state", shape.state},
                              {"reason", shape.reason}});
  }
  return json_document(json);
}

Status write_shard_file(const std::string& tuned_file, const ShardFile& file) {
  return write_file_atomically(shard_file_path(tuned_file), print_shard_file(file));
}

}  // namespace gemmtune
