#include "formats/triton/triton_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "base/enumerators.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/diagnostics.h"
#include "formats/json.h"
#include "formats/triton/nearest_loaders.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

/// What the text is, by its first keys: a cache of Kernel Tuner (whole, or not closed), a list of problems of
/// nvMatmulHeuristics, a trace of PyTorch's profiler, parquet; empty: none of these.
std::string_view foreign_json(std::string_view content) {
  constexpr std::size_t looked_at = 8192;
  const std::string_view begin = content.substr(0, looked_at);
  const auto has = [&](std::string_view word) { return begin.find(word) != std::string_view::npos; };
  if (has("\"tune_params_keys\"") && has("\"kernel_name\"")) {
    const bool closed = trim(content).ends_with("}}") || trim(content).ends_with("}\n}");
    return closed ? "a cache of Kernel Tuner"
                  : "a cache of Kernel Tuner that was not closed: its run did not end";
  }
  if (has("nvMatmulHeuristics") || has("nvmatmul_heuristics") ||
      (trim(begin).starts_with('[') && has("\"layout\"") && (has("\"dtype_a\"") || has("\"cta_tile_m\""))))
    return "a list of nvMatmulHeuristics";
  if (has("\"traceEvents\"") || (has("\"schemaVersion\"") && has("\"deviceProperties\"")))
    return "a trace of PyTorch's profiler; gemmtune shapes --from-log reads its GEMMs";
  return {};
}

constexpr std::size_t max_triton_bytes = std::size_t{1} << 24;

/// How far the parser has read.
struct Progress {
  std::size_t offset = 0;
  std::size_t line = 1;
};

/// Input for the parser that counts how far it has read: nlohmann states that in errors only.
class TrackingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* at, Progress* progress) : at_(at), progress_(progress) {}
  reference operator*() const { return *at_; }
  TrackingIterator& operator++() {
    ++progress_->offset;
    progress_->line += *at_ == '\n' ? 1 : 0;
    ++at_;
    return *this;
  }
  TrackingIterator operator++(int) {
    const TrackingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const TrackingIterator& a, const TrackingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  Progress* progress_;
};

/// triton_version is vLLM's.
bool is_note_key(std::string_view key) {
  return key.starts_with('_') || key.ends_with("_note") || key == "triton_version";
}

Status no_bucket(const std::string& path, const std::string& first_key) {
  return Status::invalid(
      "{}: is JSON, but no Triton config: no key is a bucket (M_LEQ_16, any …), the first is '{}'", path,
      first_key.substr(0, 60));
}

/// The parser's events to buckets and notes. Depth 1 is the file's object, depth 2 a bucket's.
class TritonReader : public nlohmann::json_sax<Json> {
 public:
  TritonReader(const std::string& content, TritonFile& file)
      : content_(content), file_(file), diagnostics_(file.path) {}

  const Progress& progress() const { return progress_; }
  Progress* progress() { return &progress_; }
  const Status& status() const { return status_; }
  std::vector<std::string> take_diagnostics() { return diagnostics_.take(); }

  bool null() override {
    if (in_note_ || depth_ != 1) return scalar(nullptr, "null");
    file_.buckets.back().is_null = true;
    return true;
  }
  bool boolean(bool value) override { return scalar(value, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return number(value, fmt::format("{}", value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return wrong_number(fmt::format("{}", value));
    return number(static_cast<std::int64_t>(value), fmt::format("{}", value));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return wrong_number(text); }
  bool string(string_t& value) override { return scalar(value, value); }
  bool binary(binary_t& /*value*/) override { return fail("binary data"); }
  bool start_object(std::size_t /*elements*/) override { return open("an object"); }
  bool start_array(std::size_t /*elements*/) override { return open("a list"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    return in_note_ || (depth_ == 1 ? file_key(value) : parameter_key(value));
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& error) override {
    status_ = no_json(file_.path, content_, position, error.what());
    return false;
  }

 private:
  bool fail(std::string_view text) {
    status_ = Status::invalid("{}:{}: {}", file_.path, progress_.line, text);
    return false;
  }

  bool wrong_value(std::string_view value) {
    if (depth_ == 0) return fail("expected an object of M buckets");
    if (depth_ == 2 && parameter_ == "libraries") {
      // A file of environments, whose names may be digits alone.
      status_ = no_bucket(file_.path, key_);
      return false;
    }
    const std::string_view expected =
        depth_ == 1 ? "an object of parameters" : "a whole number, a text, null or a truth value";
    status_ = {StatusCode::invalid_argument,
               diagnostic(file_.path, progress_.line, depth_ == 1 ? key_ : parameter_, value, expected)};
    return false;
  }

  bool wrong_number(std::string_view text) {
    if (in_note_) return number(0, text);
    return wrong_value(text);
  }

  bool number(std::int64_t value, std::string_view text) {
    // A number ends where another character stands: that one is read already.
    return in_note_ && depth_ == 1 ? finish_note(progress_.offset - 1) : scalar(value, text);
  }

  bool scalar(TritonValue value, std::string_view text) {
    if (in_note_) return depth_ > 1 || finish_note(progress_.offset);
    if (depth_ != 2) return wrong_value(text);
    file_.buckets.back().config.parameters.emplace_back(parameter_, std::move(value));
    return true;
  }

  bool open(std::string_view what) {
    if (!in_note_ && (depth_ > 1 || what == "a list")) return wrong_value(what);
    if (++depth_ > max_json_depth) return fail(fmt::format("nested deeper than {} levels", max_json_depth));
    if (depth_ == 2 && !in_note_) parameters_seen_.clear();
    return true;
  }

  bool close() {
    --depth_;
    return !in_note_ || depth_ > 1 || finish_note(progress_.offset);
  }

  bool file_key(const std::string& key) {
    key_ = key;
    if (!keys_seen_.insert(key).second) note(FindingKind::duplicate_key, twice(key));
    const auto kind = parse_bucket_key(key);
    if (!kind || is_note_key(key)) return begin_note(key);
    TritonBucket& bucket = file_.buckets.emplace_back();
    bucket.key = key;
    bucket.kind = kind->first;
    bucket.bound = kind->second;
    bucket.line = progress_.line;
    return true;
  }

  bool parameter_key(const std::string& name) {
    parameter_ = name;
    if (!parameters_seen_.insert(name).second) note(FindingKind::duplicate_key, twice(name));
    return true;
  }

  void note(FindingKind kind, std::string text) {
    diagnostics_.row(progress_.line, text);
    add_finding(kind, std::move(text));
  }

  void add_finding(FindingKind kind, std::string text) {
    if (file_.findings.size() < Diagnostics::kept_at_most)
      file_.findings.push_back({kind, 0, progress_.line, std::move(text)});
  }

  static std::string twice(const std::string& key) {
    return fmt::format("'{}' stands there twice; the last one counts", key.substr(0, 60));
  }

  bool begin_note(const std::string& key) {
    if (!is_note_key(key)) {
      diagnostics_.cell(progress_.line, "bucket", key,
                        "M_LEQ_x, M_GEQ_x, any, small_M, medium_M, large_M, small, medium_Mx, large, xlarge, "
                        "xlarge_Mx or a number");
      add_finding(FindingKind::unread_key, fmt::format("'{}': no look-up reads this key", key.substr(0, 60)));
    }
    in_note_ = true;
    note_begin_ = progress_.offset;
    file_.notes.push_back({key, {}, file_.buckets.size(), progress_.line});
    return true;
  }

  bool finish_note(std::size_t end) {
    std::string_view json = trim(std::string_view(content_).substr(note_begin_, end - note_begin_));
    json.remove_prefix(1);  // the colon
    file_.notes.back().json = trim(json);
    in_note_ = false;
    return true;
  }

  const std::string& content_;
  TritonFile& file_;
  Diagnostics diagnostics_;
  Progress progress_;
  Status status_;
  std::size_t depth_ = 0;
  bool in_note_ = false;
  std::size_t note_begin_ = 0;
  std::string key_;
  std::string parameter_;
  std::unordered_set<std::string> keys_seen_;
  std::unordered_set<std::string> parameters_seen_;
};

/// The scheme a kind belongs to; nullopt: to all. `thirds` stands for `moe` too.
std::optional<TritonScheme> scheme_of(BucketKind kind) {
  switch (kind) {
    case BucketKind::m_leq:
    case BucketKind::m_geq:
      return TritonScheme::bounds;
    case BucketKind::small:
    case BucketKind::medium:
    case BucketKind::large:
    case BucketKind::xlarge:
      return TritonScheme::named;
    case BucketKind::small_m:
    case BucketKind::medium_m:
    case BucketKind::large_m:
      return TritonScheme::thirds;
    case BucketKind::nearest:
      return TritonScheme::nearest;
    case BucketKind::any:
      break;
  }
  return std::nullopt;
}

/// The first bucket of a scheme decides; those of other schemes get a diagnostic.
void decide_scheme(TritonFile& file) {
  std::optional<TritonScheme> decided;
  Diagnostics diagnostics(file.path);
  for (const TritonBucket& bucket : file.buckets) {
    const auto scheme = scheme_of(bucket.kind);
    if (!decided) decided = scheme;
    if (scheme && *scheme != *decided) {
      std::string text = fmt::format(
          "'{}' is a key of another scheme than the file's others; no look-up finds it", bucket.key);
      diagnostics.row(bucket.line, text);
      file.findings.push_back({FindingKind::unreachable, 0, bucket.line, std::move(text)});
    }
  }
  for (std::string& text : diagnostics.take()) file.diagnostics.push_back(std::move(text));
  file.scheme =
      decided.value_or(is_nearest_family(file.name.family) ? TritonScheme::nearest : TritonScheme::bounds);
  if (file.scheme == TritonScheme::thirds && file.name.family.starts_with("MOE")) {
    file.scheme = TritonScheme::moe;
  }
}

/// Blanks before the first key that begins a line; 0 where all is on one line.
int detect_indent(std::string_view content) {
  constexpr int usual = 4;
  const auto newline = trim(content).find('\n');
  if (newline == std::string_view::npos) return trim(content) == "{}" ? usual : 0;
  const auto key = content.find_first_not_of("\n\r ", newline);
  if (key == std::string_view::npos || content[key] != '"') return usual;
  const auto begin = content.rfind('\n', key);
  const auto blanks = key - begin - 1;
  return blanks >= 1 && blanks <= 16 ? static_cast<int>(blanks) : usual;
}

std::string json_value(const TritonValue& value) {
  if (std::holds_alternative<std::nullptr_t>(value)) return "null";
  if (const bool* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
  return json_ascii_string(std::get<std::string>(value));
}

std::string config_text(const TritonConfig& config, const std::string& indent) {
  if (config.parameters.empty()) return "{}";
  std::string text = "{";
  if (indent.empty()) {
    for (const auto& [name, value] : config.parameters)
      text +=
          fmt::format("{}{}: {}", text.size() == 1 ? "" : ", ", json_ascii_string(name), json_value(value));
    return text + "}";
  }
  const char* separator = "\n";
  for (const auto& [name, value] : config.parameters) {
    text +=
        fmt::format("{}{}{}{}: {}", separator, indent, indent, json_ascii_string(name), json_value(value));
    separator = ",\n";
  }
  return text + "\n" + indent + "}";
}

}  // namespace

const TritonValue* TritonConfig::find(std::string_view name) const {
  const auto at = std::find_if(parameters.rbegin(), parameters.rend(),
                               [&](const auto& parameter) { return parameter.first == name; });
  return at == parameters.rend() ? nullptr : &at->second;
}

std::optional<std::int64_t> TritonConfig::integer(std::string_view name) const {
  const TritonValue* value = find(name);
  const auto* number = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

void TritonConfig::set(std::string_view name, TritonValue value) {
  const auto known = std::find_if(parameters.rbegin(), parameters.rend(),
                                  [&](const auto& parameter) { return parameter.first == name; });
  if (known != parameters.rend()) {
    known->second = std::move(value);
  } else {
    parameters.emplace_back(name, std::move(value));
  }
}

constexpr EnumeratorNames<TritonScheme, 5> scheme_names({{TritonScheme::bounds, "bounds"},
                                                         {TritonScheme::named, "named"},
                                                         {TritonScheme::thirds, "thirds"},
                                                         {TritonScheme::moe, "moe"},
                                                         {TritonScheme::nearest, "nearest"}});
std::string_view to_string(TritonScheme scheme) { return scheme_names.of(scheme); }

std::optional<std::pair<BucketKind, std::int64_t>> parse_bucket_key(std::string_view key) {
  struct Known {
    std::string_view text;
    BucketKind kind;
  };
  constexpr Known whole[] = {
      {"any", BucketKind::any},           {"small", BucketKind::small},     {"medium", BucketKind::medium},
      {"large", BucketKind::large},       {"xlarge", BucketKind::xlarge},   {"small_M", BucketKind::small_m},
      {"medium_M", BucketKind::medium_m}, {"large_M", BucketKind::large_m},
  };
  constexpr Known with_bound[] = {
      {"M_LEQ_", BucketKind::m_leq},    {"M_GEQ_", BucketKind::m_geq},  {"small_M", BucketKind::small},
      {"medium_M", BucketKind::medium}, {"large_M", BucketKind::large}, {"xlarge_M", BucketKind::xlarge},
      {"", BucketKind::nearest},
  };
  for (const Known& known : whole) {
    if (key == known.text) return std::pair(known.kind, std::int64_t{0});
  }
  for (const Known& known : with_bound) {
    if (!key.starts_with(known.text)) continue;
    const std::string_view digits = key.substr(known.text.size());
    const auto bound = known.text.empty() ? python_int(digits) : parse_integer(digits);
    if (!bound) continue;
    if (known.text.empty() || (*bound >= 1 && fmt::format("{}", *bound) == digits))
      return std::pair(known.kind, *bound);
  }
  return std::nullopt;
}

namespace {

/// An error for JSON of another kind: it has keys, none is a bucket, and nothing in it is a parameter of a kernel.
Status check_has_buckets(const TritonFile& file, const std::string& content) {
  if (!file.buckets.empty() || content.find("\"BLOCK_") != std::string::npos) return {};
  for (const TritonNote& note : file.notes) {
    if (is_note_key(note.key)) continue;
    return no_bucket(file.path, note.key);
  }
  return {};
}

}  // namespace

Result<TritonFile> parse_triton_json(const std::string& source, const std::string& content) {
  if (trim(content).empty()) return Status::invalid("{}: empty, expected a Triton config", source);
  GEMMTUNE_RETURN_IF_ERROR(check_no_nul(source, content));
  if (const std::string_view foreign = foreign_json(content); !foreign.empty())
    return Status::invalid("{}: is {}, expected a Triton config", source, foreign);
  TritonFile file;
  file.path = source;
  file.name = parse_triton_file_name(source).value_or(TritonFileName());
  file.indent = detect_indent(content);
  file.final_newline = content.ends_with('\n');
  TritonReader reader(content, file);
  try {
    const char* begin = content.data();
    const TrackingIterator first(begin, reader.progress());
    const TrackingIterator last(begin + content.size(), reader.progress());
    if (!Json::sax_parse(first, last, &reader)) return reader.status();
  } catch (const std::bad_alloc&) {  // says nothing of the file
    throw;
  } catch (const std::exception& error) {
    return no_json(source, content, reader.progress()->offset, error.what());
  }
  GEMMTUNE_RETURN_IF_ERROR(check_has_buckets(file, content));
  file.diagnostics = reader.take_diagnostics();
  decide_scheme(file);
  return file;
}

Result<TritonFile> read_triton_json(const std::string& path) {
  GEMMTUNE_TRY(const auto content, read_file(path, max_triton_bytes));
  return parse_triton_json(path, content);
}

std::vector<const TritonBucket*> last_of_keys(const TritonFile& file) {
  std::vector<const TritonBucket*> buckets;
  std::unordered_map<std::string, std::size_t> places;
  for (const TritonBucket& bucket : file.buckets) {
    const bool is_number = bucket.kind == BucketKind::nearest;
    const auto [at, made] =
        places.try_emplace(is_number ? fmt::format("{}", bucket.bound) : bucket.key, buckets.size());
    if (made)
      buckets.push_back(&bucket);
    else
      buckets[at->second] = &bucket;
  }
  return buckets;
}

std::string write_triton_json(const TritonFile& file) {
  const std::string indent(static_cast<std::size_t>(std::max(file.indent, 0)), ' ');
  std::vector<std::string> members;
  auto note = file.notes.begin();
  for (std::size_t index = 0; index <= file.buckets.size(); ++index) {
    for (; note != file.notes.end() && (note->before <= index || index == file.buckets.size()); ++note) {
      members.push_back(json_ascii_string(note->key) + ": " + note->json);
    }
    if (index == file.buckets.size()) break;
    const TritonBucket& bucket = file.buckets[index];
    members.push_back(json_ascii_string(bucket.key) + ": " +
                      (bucket.is_null ? "null" : config_text(bucket.config, indent)));
  }
  std::string text = "{";
  if (indent.empty()) {
    for (const std::string& member : members) text += (text.size() == 1 ? "" : ", ") + member;
    return text + (file.final_newline ? "}\n" : "}");
  }
  const char* separator = "\n";
  for (const std::string& member : members) {
    text.append(separator).append(indent).append(member);
    separator = ",\n";
  }
  text += members.empty() ? "}" : "\n}";
  return file.final_newline ? text + "\n" : text;
}

}  // namespace gemmtune
