// The fields of a Hugging Face config.json, read so that the first bad one is named.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/json.h"
#include "problem/problem.h"

namespace gemmtune {

/// nullptr where `object` is none, or the key is absent or null.
const Json* member(const Json& object, const char* key);

/// The language model's part of a config: of the root, or of text_config, language_config, llm_config or
/// thinker_config.text_config where one of them has the sizes. A field that is missing, of a wrong type or
/// out of range is remembered: status() names the first, and 1, false or an empty list stands in for its
/// value.
class ModelFields {
 public:
  /// Errors: text that is no JSON, with its line; a document that is no object. `path` stands in messages.
  static Result<ModelFields> parse(const std::string& path, const std::string& content);

  const std::string& path() const { return path_; }
  /// Present and not null.
  bool has(const char* key) const { return find(key) != nullptr; }
  /// Of the language model; nullptr where absent or null.
  const Json* find(const char* key) const;
  /// Of the language model, else of the whole; nullptr where absent or null.
  const Json* find_anywhere(const char* key) const;

  /// A whole number from 1 to max_dimension: that of the first key present.
  std::int64_t number(std::initializer_list<const char*> keys);
  /// A whole number from `least` to max_dimension, or `otherwise` where the key is absent.
  std::int64_t number_or(const char* key, std::int64_t otherwise, std::int64_t least = 1);
  /// false where absent.
  bool flag(const char* key);
  /// Of the language model, else of the whole; empty where absent.
  std::string text(const char* key);
  /// Whole numbers of at least 0; empty where absent.
  std::vector<std::int64_t> numbers(const char* key);
  /// torch_dtype or dtype: bf16 where absent.
  DataType type();

  /// The text of an error: "path: text_config.hidden_size = 0, expected …".
  std::string named(const char* key, std::string_view expected) const;
  /// Remembers a text where it is the first.
  void refuse(std::string text);
  const Status& status() const { return status_; }

 private:
  ModelFields(std::string path, Json root);

  std::string path_;
  std::unique_ptr<const Json> root_;
  const Json* config_ = nullptr;  // root_ or a part of it
  std::string prefix_;            // "text_config." where config_ is that part
  Status status_;
};

}  // namespace gemmtune
