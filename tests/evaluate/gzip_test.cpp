// Compressed recordings: what gzip wrote, whole, joined, cut off, damaged, too large.
#include "evaluate/replay/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(bytes.size() - stream.avail_out);
  deflateEnd(&stream);
  return bytes;
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i * 7919) + "\n";
  return text;
}

constexpr std::size_t enough = 1 << 24;

TEST(Gzip, WhatWasCompressedComesBack) {
  for (const std::string& text : {std::string(), std::string("one"), lines(50000)}) {
    const std::string bytes = gzip(text);
    ASSERT_TRUE(is_gzip(bytes));
    const auto back = gunzip(bytes, enough);
    ASSERT_TRUE(back.ok()) << back.message();
    EXPECT_EQ(*back, text);
  }
  EXPECT_FALSE(is_gzip(lines(3)));
  EXPECT_FALSE(is_gzip(""));
}

TEST(Gzip, JoinedFilesAreOneText) {
  const auto back = gunzip(gzip(lines(20000)) + gzip("end\n"), enough);
  ASSERT_TRUE(back.ok()) << back.message();
  EXPECT_EQ(*back, lines(20000) + "end\n");
}

TEST(Gzip, CutOffDamagedOrTooLargeIsAnError) {
  const std::string bytes = gzip(lines(20000));
  for (const std::size_t kept : {std::size_t{3}, std::size_t{12}, bytes.size() / 2, bytes.size() - 1})
    EXPECT_THAT(gunzip(bytes.substr(0, kept), enough).message(), HasSubstr("cut off")) << kept;
  std::string damaged = bytes;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // of the checksum
  EXPECT_THAT(gunzip(damaged, enough).message(), HasSubstr("compressed data: "));
  EXPECT_FALSE(gunzip(bytes + "rubbish", enough).ok());
  EXPECT_THAT(gunzip(bytes, 1000).message(), HasSubstr("more than 1000 bytes"));
}

}  // namespace
}  // namespace gemmtune
