// The page: tables as one HTML file that needs nothing beside it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/report/report_table.h"

namespace gemmtune::cli {

struct ReportPage {
  std::string title;
  std::string subtitle;
  std::string made;         // when, UTC
  int refresh_seconds = 0;  // 0: the page is final
};

std::string page_html(const ReportPage& page, std::span<const ReportTable> tables);

/// Texts of src/cli/report/page, embedded at build.
std::string_view report_style();
std::string_view report_script();

}  // namespace gemmtune::cli
