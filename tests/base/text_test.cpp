#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gemmtune {
namespace {

TEST(Text, IntegersAreWholeTexts) {
  EXPECT_EQ(parse_integer(" 12 "), 12);
  EXPECT_EQ(parse_integer("12.0"), 12);
  EXPECT_EQ(parse_integer("-3"), -3);
  EXPECT_EQ(parse_integer("9223372036854775807"), INT64_MAX);
  for (const char* bad :
       {"", " ", "12x", "1e3", "12.5", "9223372036854775808", "+-3", "0x10", "1 2", ".0", "12."}) {
    EXPECT_EQ(parse_integer(bad), std::nullopt) << bad;
  }
}

TEST(Text, NumbersReadScientificAndInfinity) {
  EXPECT_EQ(parse_number("1e3"), 1000.0);
  EXPECT_EQ(parse_number("7.9191"), 7.9191);
  EXPECT_TRUE(std::isinf(*parse_number("inf")));
  EXPECT_TRUE(std::isnan(*parse_number("NaN")));
  for (const char* bad : {"", "abc", "1.2.3", "1,5", "1e999"})
    EXPECT_EQ(parse_number(bad), std::nullopt) << bad;
}

TEST(Text, BoolsInEverySpelling) {
  for (const char* yes : {"True", "true", "TRUE", "1", " True\t"}) EXPECT_EQ(parse_bool(yes), true) << yes;
  for (const char* no : {"False", "false", "FALSE", "0"}) EXPECT_EQ(parse_bool(no), false) << no;
  for (const char* bad : {"", "yes", "2"}) EXPECT_EQ(parse_bool(bad), std::nullopt) << bad;
}

TEST(Text, FloatsPrintAsPythonPrintsThem) {
  EXPECT_EQ(python_float(7.91909, 4), "7.9191");
  EXPECT_EQ(python_float(10, 4), "10.0");
  EXPECT_EQ(python_float(0.125, 2), "0.12");  // half to even on the binary value
  EXPECT_EQ(python_float(2.675, 2), "2.67");  // 2.675 is below the half in binary
  EXPECT_EQ(python_float(0, 2), "0.0");
  EXPECT_EQ(python_float(INFINITY, 4), "inf");
  EXPECT_EQ(python_float(0.00004, 4), "0.0");
  EXPECT_EQ(python_float(0.0001, 4), "0.0001");
  EXPECT_EQ(python_float(123456789.5, 1), "123456789.5");
}

TEST(Text, TheNearestWordIsFewEditsAway) {
  constexpr std::string_view known[] = {"budget", "batch", "output", "tune"};
  EXPECT_EQ(nearest_word("buget", known), "budget");
  EXPECT_EQ(nearest_word("Bugdet", known), "budget");  // two letters swapped are one edit
  EXPECT_EQ(nearest_word("tunes", known), "tune");
  EXPECT_EQ(nearest_word("tune", known), "tune");
  EXPECT_EQ(nearest_word("polish", known), "");
  EXPECT_EQ(nearest_word("", known), "");
  EXPECT_EQ(nearest_word(std::string(1000, 'b'), known), "");
}

TEST(Text, SplitKeepsEmptyParts) {
  const auto parts = split("a::b:", ':');
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[1], "");
  EXPECT_EQ(parts[3], "");
}

TEST(Text, PrintableSpellsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("plain µs – 1.5× …\n\tnext"), "plain µs – 1.5× …\n\tnext");
  EXPECT_EQ(printable("\x1b[31mred\x1b]0;title\x07"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(printable("over\rwritten\b\x7f"), "over\\x0dwritten\\x08\\x7f");
  EXPECT_EQ(printable(std::string_view("nul\0end", 7)), "nul\\x00end");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // C1: CSI in one character
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "gpj.exe"),
            "\\u202egpj.exe");  // right to left
  EXPECT_EQ(printable("\x9b"
                      "31m \xff \xc3"),
            "\\x9b31m \\xff \\xc3");  // no UTF-8
  EXPECT_EQ(printable("\xc0\x80 \xed\xa0\x80"), "\\xc0\\x80 \\xed\\xa0\\x80");
  EXPECT_EQ(printable_word("a\tb\nc"), "a\\x09b\\x0ac");
  // No byte of any text is obeyed.
  for (int byte = 0; byte < 256; ++byte) {
    for (const unsigned char each : printable_word(std::string(1, static_cast<char>(byte)))) {
      EXPECT_TRUE(each >= 0x20 && each < 0x7f) << byte;
    }
  }
}

}  // namespace
}  // namespace gemmtune
