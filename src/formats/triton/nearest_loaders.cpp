#include "formats/triton/nearest_loaders.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "base/text.h"

namespace gemmtune {
namespace {

enum class NamePartKind {
  number,        // decimal, without zeros in front
  device,        // up to a comma or the end; no blanks
  word,          // one of the loader's
  block,         // "128,128]"
  spaced_block,  // "128, 128]", as Python prints a list
  nothing,       // the text alone
};

struct LoaderNamePart {
  std::string_view text;
  NamePartKind kind = NamePartKind::nothing;
  bool optional = false;
};

struct LoaderRule {
  NearestLoader loader;
  std::span<const LoaderNamePart> parts;
  std::span<const std::string_view> words;
};

constexpr LoaderNamePart vllm_mixture_parts[] = {{"E=", NamePartKind::number},
                                                 {",N=", NamePartKind::number},
                                                 {",device_name=", NamePartKind::device},
                                                 {",dtype=", NamePartKind::word, true},
                                                 {",block_shape=[", NamePartKind::block, true}};
constexpr LoaderNamePart sglang_mixture_parts[] = {{"E=", NamePartKind::number},
                                                   {",N=", NamePartKind::number},
                                                   {",device_name=", NamePartKind::device},
                                                   {",dtype=", NamePartKind::word, true},
                                                   {",block_shape=[", NamePartKind::spaced_block, true},
                                                   {",per_channel_quant=True", NamePartKind::nothing, true},
                                                   {"_down", NamePartKind::nothing, true}};
constexpr LoaderNamePart vllm_block_parts[] = {{"N=", NamePartKind::number},
                                               {",K=", NamePartKind::number},
                                               {",device_name=", NamePartKind::device},
                                               {",dtype=", NamePartKind::word},
                                               {",block_shape=[", NamePartKind::block}};
constexpr LoaderNamePart sglang_block_parts[] = {{"N=", NamePartKind::number},
                                                 {",K=", NamePartKind::number},
                                                 {",device_name=", NamePartKind::device},
                                                 {",dtype=", NamePartKind::word},
                                                 {",block_shape=[", NamePartKind::spaced_block}};
constexpr LoaderNamePart dense_parts[] = {{"N=", NamePartKind::number},
                                          {",K=", NamePartKind::number},
                                          {",device_name=", NamePartKind::device},
                                          {",dtype=", NamePartKind::word}};
constexpr LoaderNamePart per_token_parts[] = {{"N=", NamePartKind::number},
                                              {",K=", NamePartKind::number},
                                              {",device_name=", NamePartKind::device},
                                              {",dtype=fp8_w8a8_per_token", NamePartKind::nothing},
                                              {",input_dtype=", NamePartKind::word},
                                              {",out_dtype=", NamePartKind::word}};
constexpr LoaderNamePart state_parts[] = {{"headdim=", NamePartKind::number},
                                          {",dstate=", NamePartKind::number},
                                          {",device_name=", NamePartKind::device},
                                          {",cache_dtype=", NamePartKind::word}};

constexpr std::string_view mixture_dtypes[] = {"fp8_w8a8",   "fp8_w8a16",  "int8_w8a8", "int8_w8a16",
                                               "int4_w4a16", "mxfp4_w4a4", "float32"};
constexpr std::string_view block_dtypes[] = {"fp8_w8a8", "int8_w8a8"};
constexpr std::string_view channel_dtypes[] = {"fp8_w8a8_channelwise"};
constexpr std::string_view torch_dtypes[] = {"float32", "float16", "bfloat16", "float8_e4m3fn",
                                             "float8_e4m3fnuz"};

constexpr LoaderRule loader_rules[] = {
    {{"vLLM", "E=e,N=n,device_name=…[,dtype=…][,block_shape=[n,k]]", true, true, false, WideBlock::clamped},
     vllm_mixture_parts,
     mixture_dtypes},
    {{"SGLang", "E=e,N=n,device_name=…[,dtype=…][,block_shape=[n, k]][,per_channel_quant=True][_down]", true,
      false, false, WideBlock::clamped},
     sglang_mixture_parts,
     mixture_dtypes},
    {{"vLLM", "N=n,K=k,device_name=…,dtype=…,block_shape=[n,k]", false, false, false,
      WideBlock::wrong_results},
     vllm_block_parts,
     block_dtypes},
    {{"SGLang", "N=n,K=k,device_name=…,dtype=…,block_shape=[n, k]", false, false, false,
      WideBlock::wrong_results},
     sglang_block_parts,
     block_dtypes},
    {{"SGLang", "N=n,K=k,device_name=…,dtype=fp8_w8a8_channelwise", false, false, true},
     dense_parts,
     channel_dtypes},
    {{"vLLM", "N=n,K=k,device_name=…,dtype=fp8_w8a8_per_token,input_dtype=…,out_dtype=…"},
     per_token_parts,
     torch_dtypes},
    {{"vLLM", "headdim=d,dstate=s,device_name=…,cache_dtype=…", false, true}, state_parts, torch_dtypes}};

/// Reads a name from its beginning.
class LoaderNameReader {
 public:
  LoaderNameReader(std::string_view stem, const LoaderRule& rule) : rest_(stem), rule_(rule) {}

  bool read(std::int64_t& block_k) {
    for (const LoaderNamePart& part : rule_.parts) {
      if (!rest_.starts_with(part.text)) {
        if (part.optional) continue;
        return false;
      }
      rest_.remove_prefix(part.text.size());
      if (!value(part.kind, block_k)) return false;
    }
    return rest_.empty();
  }

 private:
  bool value(NamePartKind kind, std::int64_t& block_k) {
    switch (kind) {
      case NamePartKind::number:
        return number().has_value();
      case NamePartKind::device:
        return device();
      case NamePartKind::word:
        return word();
      case NamePartKind::block:
      case NamePartKind::spaced_block: {
        const std::string_view comma = kind == NamePartKind::block ? "," : ", ";
        const auto n = number();
        if (!n || !rest_.starts_with(comma)) return false;
        rest_.remove_prefix(comma.size());
        const auto k = number();
        if (!k || !rest_.starts_with(']')) return false;
        rest_.remove_prefix(1);
        block_k = *k;
        return true;
      }
      case NamePartKind::nothing:
        break;
    }
    return true;
  }
  std::optional<std::int64_t> number() {
    const std::size_t end = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const std::string_view digits = rest_.substr(0, end);
    const auto value = parse_integer(digits);
    if (!value || *value < 1 || digits.front() == '0') return std::nullopt;
    rest_.remove_prefix(end);
    return value;
  }
  /// A device's name may end as SGLang's flag does; the flag is the last part of the rule.
  bool device() {
    std::size_t end = std::min(rest_.find(','), rest_.size());
    const bool may_end_in_flag = end == rest_.size() && rule_.parts.back().text == down_flag;
    if (rest_.substr(0, end).ends_with(down_flag)) {
      // No device's name ends so.
      if (!may_end_in_flag) return false;
      end -= down_flag.size();
    }
    if (end == 0 || rest_.substr(0, end).find(' ') != std::string_view::npos) return false;
    rest_.remove_prefix(end);
    return true;
  }
  bool word() {
    // The longest first: fp8_w8a8 begins other words.
    std::string_view found;
    for (const std::string_view one : rule_.words)
      if (rest_.starts_with(one) && one.size() > found.size()) found = one;
    if (found.empty()) return false;
    rest_.remove_prefix(found.size());
    return true;
  }

  static constexpr std::string_view down_flag = "_down";
  std::string_view rest_;
  const LoaderRule& rule_;
};

}  // namespace

std::vector<NearestName> loaders_of_name(std::string_view file_name) {
  constexpr std::string_view extension = ".json";
  std::vector<NearestName> names;
  if (!file_name.ends_with(extension)) return names;
  file_name.remove_suffix(extension.size());
  for (const LoaderRule& rule : loader_rules) {
    std::int64_t block_k = 0;
    if (LoaderNameReader(file_name, rule).read(block_k)) names.push_back({&rule.loader, block_k});
  }
  return names;
}

std::string forms_of_names() {
  return joined(loader_rules, "; ", [](const LoaderRule& rule) {
    return fmt::format("{}: {}.json", rule.loader.program, rule.loader.form);
  });
}

std::string vllm_device_name(std::string_view device) {
  constexpr std::string_view family = "NVIDIA_H200";
  const std::vector<std::string_view> words = split(device, '_');
  if (device == family || std::find(words.begin(), words.end(), "H200") == words.end()) return {};
  return std::string(family);
}

std::optional<std::int64_t> python_int(std::string_view text) {
  constexpr std::string_view blanks = " \t\n\r\v\f";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  bool digit_before = false;
  for (const char letter : text) {
    if (letter == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    if (letter < '0' || letter > '9') return std::nullopt;
    digit_before = true;
    value = value > (max_nearest_key - 9) / 10 ? max_nearest_key : value * 10 + (letter - '0');
  }
  if (!digit_before) return std::nullopt;
  return negative ? -value : value;
}

}  // namespace gemmtune
