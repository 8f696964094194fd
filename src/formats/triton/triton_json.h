// Triton kernel configs: one JSON object of M buckets a file, each an object of launch parameters. AITER's, and vLLM's and
// SGLang's, whose keys are numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "tuned/finding.h"

namespace gemmtune {

using TritonValue = std::variant<std::nullptr_t, bool, std::int64_t, std::string>;

/// A kernel's parameters in the file's order; unknown ones are kept.
struct TritonConfig {
  std::vector<std::pair<std::string, TritonValue>> parameters;

  /// Of two with one name the last, as Python reads them; nullptr where there is none.
  const TritonValue* find(std::string_view name) const;
  std::optional<std::int64_t> integer(std::string_view name) const;
  /// Replaces what find() gives, or appends.
  void set(std::string_view name, TritonValue value);
  friend bool operator==(const TritonConfig&, const TritonConfig&) = default;
};

enum class BucketKind {
  m_leq,     // M_LEQ_<bound>
  m_geq,     // M_GEQ_<bound>
  any,       // any
  small,     // small, small_M<bound>
  medium,    // medium, medium_M<bound>
  large,     // large, large_M<bound>
  xlarge,    // xlarge, xlarge_M<bound>
  small_m,   // small_M
  medium_m,  // medium_M
  large_m,   // large_M
  nearest,   // <bound>, as Python's int() reads it: vLLM's and SGLang's
};

struct TritonBucket {
  std::string key;
  BucketKind kind = BucketKind::any;
  std::int64_t bound = 0;  // the number in the key; 0: none
  TritonConfig config;
  std::size_t line = 0;  // 1-based, of the key
  bool is_null = false;  // null in place of an object: SGLang's word for its default kernel
  friend bool operator==(const TritonBucket&, const TritonBucket&) = default;
};

/// Which keys a file's look-up knows; `any` belongs to all of them.
enum class TritonScheme {
  bounds,   // M_LEQ_x, M_GEQ_x: AITER since December 2025
  named,    // small, medium_M32, large, xlarge_M512 …: AITER before
  thirds,   // small_M up to 256, medium_M up to 2048, large_M: the a8w8-blockscale tuner
  moe,      // small_M below 256, medium_M below 1024, large_M: mixture-of-experts files
  nearest,  // the key that is nearest to M: vLLM, SGLang
};

std::string_view to_string(TritonScheme scheme);

/// A key that no look-up uses, its value as it stands in the file.
struct TritonNote {
  std::string key;
  std::string json;
  std::size_t before = 0;  // index of the bucket that follows it
  std::size_t line = 0;    // 1-based
  friend bool operator==(const TritonNote&, const TritonNote&) = default;
};

/// What a file's path says of its content; empty where it says nothing.
struct TritonFileName {
  std::string arch;            // gfx950, MI300X …; NVIDIA_H200 of TritonScheme::nearest
  std::string family;          // GEMM-A8W8_BLOCKSCALE …
  std::string specialisation;  // "N=2112-K=7168", "N4=512-N16=256-K=7168" …; empty: a default file
  std::optional<std::int64_t> n;
  std::optional<std::int64_t> k;  // of the FP4 families: logical elements, twice the bytes
  std::optional<std::int64_t> b;
  std::optional<std::int64_t> e{};  // experts; gemmtune's, of files MOE-…
  friend bool operator==(const TritonFileName&, const TritonFileName&) = default;
};

struct TritonFile {
  std::string path;
  TritonScheme scheme = TritonScheme::bounds;
  TritonFileName name;
  std::vector<TritonBucket> buckets;
  std::vector<TritonNote> notes;         // keys "…_note" and "_…", and unknown keys
  std::vector<std::string> diagnostics;  // file:line: unknown keys, duplicates, keys of another scheme
  std::vector<Finding> findings;         // the same for an audit
  int indent = 4;                        // blanks a level; 0: all on one line
  bool final_newline = true;
};

/// The bucket's kind and bound; nullopt for a key that no scheme knows. Bounds are as AITER prints them: M_LEQ_08 is no key.
/// A number alone is what Python's int() takes for one.
std::optional<std::pair<BucketKind, std::int64_t>> parse_bucket_key(std::string_view key);

/// Errors name file:line: what is no JSON, a bucket that is no object, a parameter that is neither a whole
/// number nor a text, null or a truth value. Unknown keys, keys twice and keys of a scheme that is not the
/// file's are diagnostics.
Result<TritonFile> read_triton_json(const std::string& path);
/// `source` stands in messages and is taken apart as the file's name.
Result<TritonFile> parse_triton_json(const std::string& source, const std::string& content);

/// The buckets that look-up can find: of several with one key (of numbers with one value) the last, in the place of the first,
/// as Python's dictionaries keep them.
std::vector<const TritonBucket*> last_of_keys(const TritonFile& file);

/// As Python's json.dump prints it, with the file's indentation and final newline. What
/// parse_triton_json() then reads has the same buckets and notes.
std::string write_triton_json(const TritonFile& file);

}  // namespace gemmtune
