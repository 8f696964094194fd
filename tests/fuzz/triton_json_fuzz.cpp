#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/triton/bucket_rows.h"
#include "formats/triton/triton_audit.h"
#include "formats/triton/triton_json.h"
#include "formats/triton/triton_lookup.h"
#include "fuzz/expectation.h"

namespace gemmtune {
namespace {

void look_up(const TritonFile& file) {
  for (const std::int64_t m : {1, 33, 300, 5000}) {
    const auto match = find_bucket(file, m);
    if (match) (void)apply_split_k(match->bucket->config, 7168);
    for (const BucketSpan& span : bucket_spans(file))
      if (span.m_from <= m && m <= span.m) fuzz::demand(match && match->bucket == span.bucket, "one answer");
  }
  (void)audit_triton_files({&file, 1});
  if (const auto rows = rows_to_run(file); rows.ok())
    fuzz::demand(rows->size() == bucket_spans(file).size(), "a row a span");
}

bool same_but_lines(const TritonFile& a, const TritonFile& b) {
  if (a.scheme != b.scheme || a.buckets.size() != b.buckets.size() || a.notes.size() != b.notes.size())
    return false;
  for (std::size_t index = 0; index < a.notes.size(); ++index) {
    const TritonNote& note = b.notes[index];
    if (a.notes[index].key != note.key || a.notes[index].json != note.json ||
        a.notes[index].before != note.before)
      return false;
  }
  for (std::size_t index = 0; index < a.buckets.size(); ++index) {
    if (a.buckets[index].key != b.buckets[index].key) return false;
    if (a.buckets[index].config != b.buckets[index].config) return false;
  }
  return true;
}

}  // namespace
}  // namespace gemmtune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  for (const char* source : {"gfx950-GEMM-A8W8_BLOCKSCALE.json", "gfx942-MOE-FP8_W8A8.json",
                             "x86-amx-BATCHED_GEMM-A8W8-B=2-N=64-K=100.json"}) {
    const auto file = parse_triton_json(source, content);
    if (!file.ok()) continue;
    look_up(*file);
    const auto again = parse_triton_json(source, write_triton_json(*file));
    fuzz::demand(again.ok(), "what was written is read: " + again.message());
    fuzz::demand(same_but_lines(*again, *file), "what was written says the same");
  }
  (void)parse_triton_file_name(content);
  return 0;
}
