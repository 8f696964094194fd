#include "mutated_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text.h"
#include "formats/csv/csv.h"

namespace gemmtune::test {
namespace {

constexpr std::size_t max_rows = 60;

/// A table as cells, without quotes' meaning: each keeps its bytes.
struct Cells {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

std::vector<std::string> cells_of(std::string_view line) {
  const RawRow raw(line);
  std::vector<std::string> cells;
  for (std::size_t index = 0; index < raw.size(); ++index) cells.emplace_back(raw[index]);
  return cells;
}

/// Rows that lie beside each other, so that sizes and kernels repeat, and some from elsewhere.
Cells sample_of(Generator& generator, const std::string& text) {
  Cells cells;
  std::vector<std::string_view> lines;
  CsvCells scratch;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!is_blank_or_comment(line) && scratch.split(line)) lines.push_back(line);
  }
  if (lines.empty()) return cells;
  cells.header = cells_of(without_mark(lines.front()));
  lines.erase(lines.begin());
  if (lines.empty()) return cells;
  const std::size_t first = generator.below(lines.size());
  const std::size_t count = 1 + generator.below(std::min(max_rows, lines.size()));
  for (std::size_t index = 0; index < count; ++index) {
    const bool elsewhere = generator.one_in(6);
    const std::size_t at = elsewhere ? generator.below(lines.size()) : (first + index) % lines.size();
    cells.rows.push_back(cells_of(lines[at]));
  }
  return cells;
}

/// What a cell of a column may become; empty: nothing for it.
std::vector<std::string> words_for(const std::string& column) {
  if (column == "us" || column == "us1" || column == "us2")
    return {"0", "0.0", "-1", "inf", "nan", "", "0.000001", "5.0", "5.0", "7.25", "7.25", "900"};
  if (column == "errratio" || column == "err_ratio") return {"0.0", "0.01", "0.06", "0.5", "", "nan"};
  if (column == "err1" || column == "err2") return {"0.0%", "3%", "12%", "0.5", ""};
  if (column == "m" || column == "token")
    return {"1",  "2",  "15", "16",  "17",   "31",   "32",    "33",    "48",     "64",
            "80", "96", "65", "256", "8192", "9000", "32768", "65536", "131072", "1073741824"};
  if (column == "n" || column == "k") return {"512", "1024", "8192", "200000"};
  if (column == "gfx") return {"gfx950", "gfx950", "gfx942", "gfx1250", "", "gfx942:sramecc+", "x86-amx"};
  if (column == "cu_num") return {"256", "256", "304", "80", "120", ""};
  if (column == "_tag") return {"", "flydsl_fallback", "exact", "decode"};
  if (column == "act_type")
    return {"ActivationType.Silu", "ActivationType.Gelu", "ActivationType.Swiglu", "Silu"};
  if (column == "bias" || column == "scaleab" || column == "bpreshuffle")
    return {"False", "True", "false", "0", "1", ""};
  if (column == "run_1stage" || column == "flat" || column == "xbf16")
    return {"0", "1", "True", "perhaps", ""};
  if (column == "q_dtype_w") return {"torch.int8", "torch.float8_e4m3fn", "torch.uint32", "nvfp4_bf16"};
  if (column == "m_from") return {"", "", "1", "2", "8", "17", "33", "0", "-3", "many"};
  if (column == "accuracy") return {"", "fp32", "tensor_core"};
  if (column == "kernelname" || column == "kernelname1")
    return {"a", "b", "\"c,d\"", "tiled_r1_wpanel16", "onednn_r1_wonednn"};
  if (column == "libtype") return {"asm", "ck", "triton", "tiled"};
  if (column == "splitk" || column == "ksplit" || column == "solidx" || column == "kernelid")
    return {"0", "1", "4", ""};
  return {};
}

void set_cell(std::vector<std::string>& row, std::size_t column, std::string text) {
  if (row.size() <= column) row.resize(column + 1);
  row[column] = std::move(text);
}

void change_rows(Generator& generator, Cells& cells) {
  auto& rows = cells.rows;
  const std::size_t at = generator.below(rows.size());
  const std::size_t column = generator.below(cells.header.size());
  const std::string name = to_lower(trim(cells.header[column]));
  switch (generator.below(8)) {
    case 0: {  // a second row of the key
      std::vector<std::string> copy = rows[at];
      for (std::size_t index = 0; index < cells.header.size(); ++index) {
        const std::string of = to_lower(trim(cells.header[index]));
        const bool value = of == "us" || of == "kernelname" || of == "kernelname1" || of == "_tag";
        if (value && !generator.one_in(3)) set_cell(copy, index, generator.pick(words_for(of)));
      }
      rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(generator.below(rows.size() + 1)), copy);
      break;
    }
    case 7: {  // of one key a row of another tag, and a faster one of the first
      const auto at_column = [&](std::string_view of) {
        const auto column = std::find(cells.header.begin(), cells.header.end(), of);
        return static_cast<std::size_t>(column - cells.header.begin());
      };
      const std::size_t tag = at_column("_tag");
      const std::size_t time = at_column("us");
      if (tag == cells.header.size() || time == cells.header.size()) break;
      std::vector<std::string> other = rows[at];
      std::vector<std::string> faster = rows[at];
      set_cell(other, tag, "other");
      set_cell(faster, time, generator.pick<std::string>({"12.5", "40", "90", "0"}));
      rows.push_back(std::move(other));
      rows.push_back(std::move(faster));
      break;
    }
    case 1:
      rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2:
      std::swap(rows[at], rows[generator.below(rows.size())]);
      break;
    case 3: {
      const std::vector<std::string>& other = rows[generator.below(rows.size())];
      set_cell(rows[at], column, column < other.size() ? other[column] : std::string());
      break;
    }
    case 4:  // one cell too few or too many
      if (generator.one_in(4)) rows[at].resize(generator.below(rows[at].size() + 2));
      break;
    default:
      if (const auto words = words_for(name); !words.empty())
        set_cell(rows[at], column, generator.pick(words));
      break;
  }
}

void change_columns(Generator& generator, Cells& cells) {
  const auto for_all = [&](const auto& change) {
    change(cells.header, true);
    for (auto& row : cells.rows) change(row, false);
  };
  const std::size_t width = cells.header.size();
  const std::size_t column = generator.below(width);
  switch (generator.below(4)) {
    case 0:
      if (width > 4)
        for_all([&](auto& row, bool) {
          if (column < row.size()) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
        });
      break;
    case 1: {
      const std::size_t other = generator.below(width);
      for_all([&](auto& row, bool) {
        row.resize(std::max({row.size(), column + 1, other + 1}));
        std::swap(row[column], row[other]);
      });
      break;
    }
    default: {
      const std::string name = generator.pick<std::string>({"m_from", "m_from", "accuracy", "_tag", "mood"});
      if (std::find(cells.header.begin(), cells.header.end(), name) != cells.header.end()) return;
      for_all([&](auto& row, bool header) {
        row.resize(width);
        const auto words = words_for(name);
        row.push_back(header ? name : words.empty() ? std::string("fine") : generator.pick(words));
      });
    }
  }
}

std::string text_of(Generator& generator, const Cells& cells) {
  const std::string end = generator.one_in(6) ? "\r\n" : "\n";
  const auto line_of = [](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t index = 0; index < row.size(); ++index) line += (index == 0 ? "" : ",") + row[index];
    return line;
  };
  std::string text = generator.one_in(8) ? "\xEF\xBB\xBF" : "";
  text += line_of(cells.header) + end;
  for (const auto& row : cells.rows) {
    if (generator.one_in(20)) text += (generator.one_in(2) ? "# by hand" : "") + end;
    text += line_of(row) + end;
  }
  if (generator.one_in(8)) text.resize(text.size() - end.size());
  return text;
}

}  // namespace

std::string mutated_table(Generator& generator, const std::string& text) {
  Cells cells = sample_of(generator, text);
  if (cells.rows.empty()) return text;
  if (generator.one_in(2)) change_columns(generator, cells);
  const std::size_t changes = 1 + generator.below(2 * cells.rows.size() + 4);
  for (std::size_t change = 0; change < changes && !cells.rows.empty(); ++change)
    change_rows(generator, cells);
  std::string mutated = text_of(generator, cells);
  return generator.one_in(10) ? generator.damaged(std::move(mutated)) : mutated;
}

namespace {

std::string bucket_key(Generator& generator, TritonScheme scheme) {
  switch (scheme) {
    case TritonScheme::nearest:
      return generator.pick<std::string>(
          {"1", "2", "3", "8", "16", "17", "24", "64", "100", "128", "512", "4096", "01", " 8", "-4", "1_0"});
    case TritonScheme::thirds:
    case TritonScheme::moe:
      return generator.pick<std::string>({"small_M", "medium_M", "large_M", "any"});
    case TritonScheme::named:
      return generator.pick<std::string>({"small", "small_M16", "medium", "medium_M32", "medium_M64",
                                          "medium_M128", "large", "large_M256", "xlarge", "xlarge_M512",
                                          "any"});
    case TritonScheme::bounds:
      break;
  }
  return generator.pick<std::string>({"M_LEQ_1", "M_LEQ_4", "M_LEQ_8", "M_LEQ_16", "M_LEQ_31", "M_LEQ_32",
                                      "M_LEQ_64", "M_LEQ_100", "M_LEQ_256", "M_LEQ_4096", "M_LEQ_8192",
                                      "M_GEQ_256", "M_GEQ_4096", "M_GEQ_8192", "any"});
}

void change_buckets(Generator& generator, TritonFile& file) {
  std::vector<TritonBucket>& buckets = file.buckets;
  const std::size_t at = generator.below(buckets.size());
  switch (generator.below(7)) {
    case 0:
      std::swap(buckets[at], buckets[generator.below(buckets.size())]);
      break;
    case 1: {
      TritonBucket copy = buckets[at];
      copy.config.set("BLOCK_SIZE_M", std::int64_t{16} << generator.below(4));
      if (generator.one_in(2)) copy.key = bucket_key(generator, file.scheme);
      buckets.insert(buckets.begin() + static_cast<std::ptrdiff_t>(generator.below(buckets.size() + 1)),
                     copy);
      break;
    }
    case 2:
      if (buckets.size() > 1) buckets.erase(buckets.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 3:
      if (generator.one_in(3)) buckets[at].is_null = true;
      break;
    case 4:
      buckets[at].config.set("num_warps", std::int64_t{1} << generator.below(4));
      break;
    case 5:
      if (generator.one_in(3))
        buckets[at].key = bucket_key(generator, static_cast<TritonScheme>(generator.below(5)));
      break;
    default:
      buckets[at].key = bucket_key(generator, file.scheme);
      break;
  }
}

}  // namespace

MutatedConfig mutated_config(Generator& generator, TritonFile file) {
  MutatedConfig mutated;
  mutated.path = file.path.substr(file.path.rfind('/') + 1);
  if (generator.one_in(4)) {
    mutated.path =
        generator.pick<std::string>({"gfx950-MOE-FP8_W8A8.json", "gfx942-GEMM-A16W16-N=512-K=1024.json",
                                     "gfx950-GEMM-AFP4WFP4_PRESHUFFLED-N=64-K=128.json",
                                     "gfx950-BATCHED_GEMM-AFP4WFP4.json", "E=8,N=64,device_name=X.json",
                                     "N=512,K=1024,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json"});
  }
  const std::size_t changes = 1 + generator.below(8);
  for (std::size_t change = 0; change < changes && !file.buckets.empty(); ++change)
    change_buckets(generator, file);
  if (generator.one_in(3)) {
    file.notes.push_back({generator.pick<std::string>({"_why", "made_note", "triton_version", "_problem"}),
                          "\"by hand\"", generator.below(file.buckets.size() + 1)});
    std::stable_sort(file.notes.begin(), file.notes.end(),
                     [](const TritonNote& a, const TritonNote& b) { return a.before < b.before; });
  }
  file.indent = generator.pick<int>({0, 1, 2, 4, 4});
  file.final_newline = !generator.one_in(3);
  mutated.text = write_triton_json(file);
  if (generator.one_in(8)) mutated.text = generator.damaged(std::move(mutated.text));
  return mutated;
}

}  // namespace gemmtune::test
