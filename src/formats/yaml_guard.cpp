#include "formats/yaml_guard.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <exception>
#include <new>
#include <sstream>

namespace gemmtune {
namespace {

constexpr std::size_t max_depth = 16;  // of brackets or indentation; a list of maps needs two

/// yaml-cpp recurses once a level: deep nesting is refused before it overflows the stack.
Status check_text(const std::string& source, const std::string& content, std::string_view expected) {
  std::size_t depth = 0;
  std::size_t line = 1;
  std::size_t run = 0;  // of "- " at the beginning of a line: each opens a level
  bool at_begin = true;
  for (const char character : content) {
    if (character == '\0') return Status::invalid("{}:{}: a NUL byte, expected text", source, line);
    if (character == '\n') {
      ++line;
      run = 0;
      at_begin = true;
      continue;
    }
    if (character == '[' || character == '{') ++depth;
    if ((character == ']' || character == '}') && depth > 0) --depth;
    if (at_begin && (character == '-' || character == '?')) ++run;
    if (character != ' ' && character != '-' && character != '?') at_begin = false;
    if (depth > max_depth || run > max_depth) {
      return Status::invalid("{}:{}: nested deeper than {} levels, expected {}", source, line, max_depth,
                             expected);
    }
  }
  return {};
}

/// Finds where a document begins, and its first anchor or alias, by which a short text becomes a huge tree.
class AliasFinder : public YAML::EventHandler {
 public:
  std::size_t line() const { return line_; }    // 0: there is none
  std::size_t begin() const { return begin_; }  // the line where the document begins

  void OnDocumentStart(const YAML::Mark& mark) override {
    begin_ = static_cast<std::size_t>(std::max(0, mark.line)) + 1;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { see(mark, anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { see(mark, anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                const std::string& /*value*/) override {
    see(mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    see(mark, anchor);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    see(mark, anchor);
  }
  void OnMapEnd() override {}

 private:
  void see(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0 && line_ == 0) line_ = static_cast<std::size_t>(std::max(0, mark.line)) + 1;
  }

  std::size_t line_ = 0;
  std::size_t begin_ = 0;
};

Result<YAML::Node> load(const std::string& source, const std::string& content, std::string_view expected) {
  if (content.size() > max_yaml_bytes) {
    return Status::invalid("{}: {} bytes, expected at most {} of YAML", source, content.size(),
                           max_yaml_bytes);
  }
  GEMMTUNE_RETURN_IF_ERROR(check_text(source, content, expected));
  try {
    std::istringstream stream(content);
    YAML::Parser parser(stream);
    AliasFinder finder;
    parser.HandleNextDocument(finder);
    if (finder.line() != 0) {
      return Status::invalid("{}:{}: an anchor or alias, expected {}", source, finder.line(), expected);
    }
    AliasFinder second;
    if (parser.HandleNextDocument(second))
      return Status::invalid("{}:{}: a second document, expected one", source, second.begin());
    return YAML::Load(content);
  } catch (const YAML::Exception& error) {
    return Status::invalid("{}:{}: no YAML: {}", source, error.mark.line + 1, error.msg);
  } catch (const std::bad_alloc&) {  // says nothing of the file
    throw;
  } catch (const std::exception& error) {
    return Status::invalid("{}: no YAML: {}", source, error.what());
  }
}

}  // namespace

Result<YAML::Node> load_yaml_list(const std::string& source, const std::string& content) {
  GEMMTUNE_TRY(auto root, load(source, content, "a list of maps"));
  if (root.IsNull()) return YAML::Node(YAML::NodeType::Sequence);
  if (root.IsSequence()) return root;
  return Status::invalid("{}:{}: expected a list of maps with M, N and K", source, yaml_line(root));
}

Result<YAML::Node> load_yaml_map(const std::string& source, const std::string& content,
                                 std::string_view expected) {
  GEMMTUNE_TRY(auto root, load(source, content, expected));
  if (root.IsNull()) return YAML::Node(YAML::NodeType::Map);
  if (root.IsMap()) return root;
  return Status::invalid("{}:{}: expected {}", source, yaml_line(root), expected);
}

std::size_t yaml_line(const YAML::Node& node) {
  return static_cast<std::size_t>(std::max(0, node.Mark().line)) + 1;
}

}  // namespace gemmtune
