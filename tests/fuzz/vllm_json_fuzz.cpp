#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/all_formats.h"
#include "formats/triton/nearest_audit.h"
#include "formats/triton/triton_json.h"
#include "fuzz/expectation.h"

// Configs of vLLM and SGLang: buckets by the nearest M, shapes in the name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  for (const char* source :
       {"N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
        "E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"}) {
    const auto file = parse_triton_json(source, content);
    if (!file.ok()) continue;
    (void)audit_nearest_file(*file, 0);
    (void)audit_nearest_pairs({&*file, 1});
    const Format& format = detect_format(source, content);
    if (format.read == nullptr || format.write == nullptr) continue;
    auto rows = format.read(source, content, {});
    if (!rows.ok()) continue;
    const auto written = write_rows(format, *rows, {});
    if (!written.ok()) continue;
    const auto again = format.read(source, *written, {});
    fuzz::demand(again.ok(), "what was written is read: " + again.message());
    // Buckets by bounds become keys at both ends of their intervals, and `any` and M_GEQ_x get keys that are rows.
    if (file->scheme == TritonScheme::nearest)
      fuzz::demand(again->entries.size() <= rows->entries.size(), "no row is added");
    auto rows_again = *again;
    const auto stable = write_rows(format, rows_again, {});
    fuzz::demand(stable.ok() && *stable == *written, "what was written is written again as it is");
  }
  return 0;
}
