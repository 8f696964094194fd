#include "cli/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gemmtune::cli {
namespace {

constexpr std::size_t rows_in_html = 200;
/// A table of a section. Folded are those that a chart shows, and those that only a question leads to.
struct PageTable {
  std::string_view id;
  bool folded = false;
};

/// One part of the page: shown where one of its tables has rows. sections.js draws the charts into the elements of these ids.
struct PageSection {
  std::string_view id;
  std::string_view title;
  std::string_view lead;
  std::array<PageTable, 5> tables;
  std::array<std::string_view, 2> charts;
};

constexpr bool folded = true;
constexpr PageSection page_sections[] = {
    {"next", "What to do next", "", {{{"next_steps"}}}, {}},
    {"gain",
     "What was gained",
     "",
     {{{"run"}, {"in_work"}, {"summary"}, {"by_m"}, {"workload", folded}}},
     {"chart-by-m"}},
    {"lines",
     "Speed-up by M",
     "A line for each weight (N × K). Whiskers: the row's 95 % interval, else that of paired rounds in a "
     "journal, else what the spread of the row's own time leaves. Rows that were not compared stand on the "
     "axis.",
     {{{"rows"}}},
     {"chart-lines"}},
    {"workload",
     "Where the time goes",
     "Captured calls times the µs of the row that answers.",
     {{{"workload_shapes", folded}}},
     {"chart-workload"}},
    {"roofline",
     "Roofline",
     "Each row at its operations a byte; the hollow mark below or above is the default kernel on the same "
     "shape.",
     {{{"roofs", folded}}},
     {"chart-roofline", "chart-floor"}},
    {"ties", "How sure the choice is", "", {{{"libtypes"}, {"ties", folded}}}, {"chart-ties"}},
    {"search",
     "The search",
     "",
     {{{"search_by_candidates", folded}, {"search_by_seconds", folded}}},
     {"chart-candidates", "chart-seconds"}},
    {"candidates",
     "All candidates",
     "Any two of time, order, error and the kernels' settings against each other; a color a family.",
     {{{"candidates", folded}}},
     {"chart-scatter"}},
    {"parameters", "What each parameter is worth", "", {{{"parameters", folded}}}, {"chart-parameters"}},
    {"failures", "Failures by kind and family", "", {{{"failures", folded}}}, {"chart-failures"}},
    {"accuracy", "Accuracy", "", {{{"accuracy"}, {"errors"}}}, {}},
    {"beside", "Two files side by side", "", {{{"side_by_side"}}}, {}},
    {"base", "Against the base", "", {{{"changes_summary"}, {"changes"}}}, {"chart-changes"}},
    {"coverage", "Coverage of the workload", "", {{{"misses"}, {"coverage", folded}}}, {"chart-coverage"}},
    {"audit", "Audit", "", {{{"findings_summary"}, {"findings", folded}}}, {}},
    {"environment", "Environment", "", {{{"environment", folded}, {"runs"}, {"files"}}}, {}},
    {"rows", "All rows", "", {{{"rows"}, {"competitors", folded}}}, {}},
};

const ReportTable* find_table(std::span<const ReportTable> tables, std::string_view id) {
  const auto found = std::ranges::find_if(tables, [&](const ReportTable& table) { return table.id() == id; });
  return found != tables.end() ? &*found : nullptr;
}

std::string section_html(const PageSection& section, std::span<const ReportTable> tables) {
  std::string content;
  for (const std::string_view chart : section.charts) {
    if (!chart.empty()) content += fmt::format("<div class=\"chart\" id=\"{}\"></div>\n", chart);
  }
  bool any = false;
  for (const auto& [id, is_folded] : section.tables) {
    const ReportTable* table = id.empty() ? nullptr : find_table(tables, id);
    if (table == nullptr) continue;
    any = true;
    // The lines are drawn from all rows, whose table stands at the end.
    if (id == "rows" && section.id != "rows") continue;
    content += table->html(rows_in_html, is_folded);
  }
  if (!any) return {};
  return fmt::format("<section id=\"{}\"><h2>{}</h2>{}\n{}</section>\n", section.id, section.title,
                     section.lead.empty() ? "" : fmt::format("<p class=\"lead\">{}</p>", section.lead),
                     content);
}

}  // namespace

std::string page_html(const ReportPage& page, std::span<const ReportTable> tables) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'unsafe-inline'\">\n";
  if (page.refresh_seconds > 0)
    html += fmt::format("<noscript><meta http-equiv=\"refresh\" content=\"{}\"></noscript>\n",
                        page.refresh_seconds);
  html += fmt::format("<title>{}</title>\n<style>\n{}</style></head>\n<body data-refresh=\"{}\">\n",
                      html_text(page.title), report_style(), page.refresh_seconds);
  html += fmt::format("<header><h1>{}</h1><p>{}</p><nav id=\"contents\"></nav></header>\n<main>\n",
                      html_text(page.title), html_text(page.subtitle));
  // What to do comes before the figures.
  html += section_html(page_sections[0], tables) + "<div id=\"cards\"></div>\n";
  for (const PageSection& section : std::span(page_sections).subspan(1))
    html += section_html(section, tables);
  html += fmt::format(
      "</main>\n<footer>gemmtune {}, {}. Every number of this page stands in its data block as JSON; "
      "<code>gemmtune report --csv FOLDER</code> writes the same as CSV.</footer>\n",
      GEMMTUNE_VERSION, html_text(page.made));
  html += "<script type=\"application/json\" id=\"report-data\">\n{\"tables\":[\n";
  for (std::size_t i = 0; i < tables.size(); ++i) html += (i == 0 ? "" : ",\n") + tables[i].json();
  return html + fmt::format("\n]}}</script>\n<script>\n{}</script>\n</body></html>\n", report_script());
}

}  // namespace gemmtune::cli
