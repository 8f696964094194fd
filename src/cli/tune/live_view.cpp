#include "cli/tune/live_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/shared/console.h"

namespace gemmtune::cli {
namespace {

constexpr std::size_t bar_columns = 24;
constexpr std::size_t max_worker_lines = 16;

struct StateSign {
  ShapeState state;
  std::string_view sign;
  std::string_view word;  // in counts; empty: not counted
};
// In the order of ShapeState. Signs differ in form: they need no colors.
constexpr std::array<StateSign, 8> state_signs{{{ShapeState::waiting, "·", ""},
                                                {ShapeState::in_work, "▶", ""},
                                                {ShapeState::left, "░", "visited"},
                                                {ShapeState::tuned, "█", "tuned"},
                                                {ShapeState::keeps_default, "▄", "default"},
                                                {ShapeState::undecided, "?", "undecided"},
                                                {ShapeState::failed, "×", "failed"},
                                                {ShapeState::not_tuned, "-", "not tuned"}}};

bool is_settled(ShapeState state) { return state >= ShapeState::tuned; }

/// A bar with eighths of a column.
std::string bar(double share) {
  constexpr std::array<std::string_view, 8> eighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto filled = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 8 * bar_columns));
  std::string text;
  for (std::size_t i = 0; i < filled / 8; ++i) text += "█";
  text += eighths[filled % 8];
  text += std::string(bar_columns - filled / 8 - (filled % 8 == 0 ? 0 : 1), ' ');
  return "▕" + text + "▏";
}

/// Of the time where it can be told, else of the shapes.
double share_done(const LiveRun& run, std::size_t settled) {
  if (run.remaining && run.seconds > 0) return run.seconds / (run.seconds + *run.remaining);
  return run.shapes.empty() ? 0 : static_cast<double>(settled) / static_cast<double>(run.shapes.size());
}

std::string counts_text(const LiveRun& run) {
  std::string text = run.gain > 0 ? fmt::format("gain {:.3f}x so far", run.gain) : "no row yet";
  for (const StateSign& sign : state_signs) {
    const auto count = std::count(run.shapes.begin(), run.shapes.end(), sign.state);
    if (!sign.word.empty() && count > 0) text += fmt::format("  {} {} {}", sign.sign, count, sign.word);
  }
  return text;
}

/// A sign a shape; where there are more than columns, of each group the state that most of it has.
std::string strip(const std::vector<ShapeState>& shapes, std::size_t columns) {
  const std::size_t signs = std::min(shapes.size(), columns);
  std::string text;
  for (std::size_t i = 0; i < signs; ++i) {
    const std::size_t begin = i * shapes.size() / signs;
    const std::size_t end = (i + 1) * shapes.size() / signs;
    std::array<std::size_t, state_signs.size()> counts{};
    for (std::size_t shape = begin; shape < end; ++shape) ++counts[static_cast<std::size_t>(shapes[shape])];
    const auto most = std::ranges::max_element(counts) - counts.begin();
    text += state_signs[static_cast<std::size_t>(most)].sign;
  }
  return text;
}

std::string worker_line(const LiveWorker& worker) {
  if (worker.shape.empty())
    return fmt::format("{}  {}", worker.name, worker.doing.empty() ? "idle" : worker.doing);
  std::string text = fmt::format("{}  {}", worker.name, worker.shape);
  if (!worker.doing.empty()) text += fmt::format("  {}", worker.doing);
  if (worker.seconds >= 1) text += fmt::format(" {:.0f} s", worker.seconds);
  if (worker.candidates > 0)
    text += fmt::format("  {}", counted(static_cast<std::size_t>(worker.candidates), "candidate"));
  if (worker.ratio) return text + "  " + ratio_text(*worker.ratio);
  return text + screened_text(worker.best_microseconds, worker.default_microseconds);
}

}  // namespace

std::string ratio_text(const PairedRatio& ratio) {
  return fmt::format("{:.3f}x ({:.3f} to {:.3f} in {})", ratio.ratio, ratio.interval.low, ratio.interval.high,
                     counted(static_cast<std::size_t>(ratio.rounds), "round"));
}

std::string screened_text(std::optional<double> best_microseconds,
                          std::optional<double> default_microseconds) {
  std::string text;
  if (best_microseconds) text += fmt::format(", best {:.2f} µs", *best_microseconds);
  if (default_microseconds) text += fmt::format(", default {:.2f} µs", *default_microseconds);
  return text;
}

ShapeState state_of(const ItemReport& report) {
  if (report.state == ProblemState::failed || report.state == ProblemState::unsupported)
    return ShapeState::failed;
  if (report.row() == nullptr) return ShapeState::not_tuned;
  if (report.row()->verdict == Verdict::undecided) return ShapeState::undecided;
  return report.state == ProblemState::kept_default ? ShapeState::keeps_default : ShapeState::tuned;
}

std::vector<std::string> live_lines(const LiveRun& run, std::size_t columns) {
  const auto settled = static_cast<std::size_t>(std::ranges::count_if(run.shapes, is_settled));
  const double share = share_done(run, settled);
  std::string first = fmt::format("{} {:3.0f} %  {} of {}", bar(share), 100 * share, settled,
                                  counted(run.shapes.size(), "shape"));
  if (!run.step.empty()) first += "  " + run.step;
  if (run.remaining) first += fmt::format("  ETA {}", duration(*run.remaining));
  if (run.candidates > 0 && run.seconds > 0)
    first += fmt::format("  {:.1f} candidates/s", static_cast<double>(run.candidates) / run.seconds);
  std::vector<std::string> lines{first, counts_text(run)};
  if (run.shapes.size() > 1) lines.push_back(strip(run.shapes, columns));
  const std::size_t shown = std::min(run.workers.size(), max_worker_lines);
  for (std::size_t i = 0; i < shown; ++i) lines.push_back(worker_line(run.workers[i]));
  if (shown < run.workers.size())
    lines.push_back(fmt::format("and {}", counted(run.workers.size() - shown, "other worker")));
  for (std::string& line : lines) line = shortened(line, columns);
  return lines;
}

}  // namespace gemmtune::cli
