#include "cli/shared/console.h"

#include <gtest/gtest.h>

namespace gemmtune::cli {
namespace {

TEST(Console, WidthCountsCodePoints) {
  EXPECT_EQ(width("µs"), 2U);
  EXPECT_EQ(width(""), 0U);
}

TEST(Console, ShortenedInTheMiddle) {
  EXPECT_EQ(shortened("tiled_r1_mr8_nr32", 17), "tiled_r1_mr8_nr32");
  EXPECT_EQ(shortened("tiled_r1_mr8_nr32", 9), "tile…nr32");
  EXPECT_EQ(width(shortened("µµµµµµµµµµ", 5)), 5U);
  EXPECT_EQ(shortened("abc", 1), "a");
}

TEST(TextTable, AlignsAndShrinksOnlyWhatMay) {
  TextTable table({{"name", false, true}, {"µs", true, false}});
  table.add({"a_rather_long_kernel_name_that_goes_on_and_on", "1.25"});
  table.add({"short", "10.00"});
  const std::string whole = table.text(0);
  EXPECT_NE(whole.find("a_rather_long_kernel_name_that_goes_on_and_on   1.25\n"), std::string::npos) << whole;
  EXPECT_NE(whole.find("short" + std::string(42, ' ') + "10.00\n"), std::string::npos) << whole;
  const std::string narrow = table.text(30);
  for (std::size_t begin = 0; begin < narrow.size();) {
    const std::size_t end = narrow.find('\n', begin);
    EXPECT_LE(width(narrow.substr(begin, end - begin)), 30U) << narrow;
    begin = end + 1;
  }
  EXPECT_NE(narrow.find("…"), std::string::npos);
}

TEST(TextTable, LeavesColumnsOutBeforeItCutsOthers) {
  TextTable table({{"shape"},
                   {"layer", false, true, 1},
                   {"verdict"},
                   {"empty", false, false, 1},
                   {"kernel", false, true, 2}});
  table.add({"128x128256x4096", "lm_head", "undecided", "", "tiled_r1_mr8_nr32_kc512_mc96_nc4096"});
  EXPECT_EQ(table.text(0),
            "shape            layer    verdict    kernel\n"
            "128x128256x4096  lm_head  undecided  tiled_r1_mr8_nr32_kc512_mc96_nc4096\n");
  EXPECT_EQ(table.text(52),
            "shape            layer    verdict    kernel\n"
            "128x128256x4096  lm_head  undecided  tiled_r…_nc4096\n");
  EXPECT_EQ(table.text(40), "shape            layer    verdict\n128x128256x4096  lm_head  undecided\n");
  EXPECT_EQ(table.text(10), "shape            verdict\n128x128256x4096  undecided\n")
      << "sizes and verdicts stay";
}

TEST(Console, Durations) {
  EXPECT_EQ(duration(1.26), "1.3 s");
  EXPECT_EQ(duration(108.4), "108 s");
  EXPECT_EQ(duration(185), "3 min 5 s");
  EXPECT_EQ(duration(7260), "2 h 1 min");
}

}  // namespace
}  // namespace gemmtune::cli
