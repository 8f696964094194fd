#include "evaluate/replay/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>

namespace gemmtune {
namespace {

constexpr std::size_t chunk_bytes = 1 << 16;
constexpr int gzip_window_bits = 15 + 16;  // the largest window; 16: a gzip header, no zlib header

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.substr(0, 3) == "\x1f\x8b\x08"; }

Result<std::string> gunzip(std::string_view bytes, std::size_t limit) {
  z_stream stream{};
  if (inflateInit2(&stream, gzip_window_bits) != Z_OK) return Status::internal("zlib cannot be started");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::string text;
  std::string chunk(chunk_bytes, '\0');
  std::size_t given = 0;  // bytes of the input that the stream has, or had
  int state = Z_OK;
  while (state != Z_STREAM_END || given - stream.avail_in < bytes.size()) {
    if (state == Z_STREAM_END) inflateReset(&stream);  // the next of joined files
    if (stream.avail_in == 0) {
      if (given == bytes.size()) return Status::invalid("compressed data: cut off");
      const std::size_t more = std::min<std::size_t>(bytes.size() - given, std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + given));
      stream.avail_in = static_cast<uInt>(more);
      given += more;
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    state = inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
      return Status::invalid("compressed data: {}", stream.msg != nullptr ? stream.msg : "damaged");
    text.append(chunk.data(), chunk.size() - stream.avail_out);
    if (text.size() > limit) return Status::invalid("compressed data: more than {} bytes", limit);
  }
  return text;
}

}  // namespace gemmtune
