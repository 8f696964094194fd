// The recorded spaces of tests/data/recordings, for tests that replay them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evaluate/replay/recording.h"
#include "evaluate/replay/replay_device.h"
#include "measure/statistics.h"

namespace gemmtune::testing {

/// GEMMTUNE_SOAK=1: all seeds; else the first of them.
inline std::vector<std::uint64_t> seeds(std::vector<std::uint64_t> all, std::size_t otherwise) {
  const char* soak = std::getenv("GEMMTUNE_SOAK");
  if (soak == nullptr || std::string_view(soak) == "0") all.resize(otherwise);
  return all;
}

/// A recording and its device, which lists spaces: both made once.
struct Recorded {
  explicit Recorded(Recording read) : recording(std::move(read)), device(recording) {}
  Recording recording;
  ReplayDevice device;
};
using RecordedList = std::deque<Recorded>;

inline RecordedList recordings_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::directory_iterator(GEMMTUNE_TEST_DATA + folder)) {
    if (file.path().extension() == ".gz") paths.push_back(file.path());
  }
  std::sort(paths.begin(), paths.end());
  RecordedList read;
  for (const std::string& path : paths) {
    auto recording = read_recording(path);
    EXPECT_TRUE(recording.ok()) << recording.message();
    if (recording.ok()) read.emplace_back(std::move(*recording));
  }
  return read;
}

inline RecordedList& recordings() {
  static RecordedList all = recordings_in("/recordings");
  return all;
}

/// Spaces of GPU families: smaller ones, of samples that hardly differ.
inline RecordedList& gpu_recordings() {
  static RecordedList all = recordings_in("/recordings/gpu");
  return all;
}

inline std::map<std::string, double> true_times(const RecordedProblem& problem) {
  std::map<std::string, std::vector<double>> samples;
  for (const RecordedScreening& call : problem.screenings) {
    auto& of = samples[call.candidate];
    of.insert(of.end(), call.outcome.microseconds.begin(), call.outcome.microseconds.end());
  }
  std::map<std::string, double> times;
  for (const auto& [name, values] : samples) {
    if (!values.empty()) times[name] = median(values);
  }
  return times;
}

inline double fastest(const std::map<std::string, double>& times) {
  double least = INFINITY;
  for (const auto& [name, time] : times) least = std::min(least, time);
  return least;
}

/// Figures, where somebody asks for them.
template <typename... Values>
void say(fmt::format_string<Values...> text, Values&&... values) {
  if (std::getenv("GEMMTUNE_VERBOSE") != nullptr)
    fmt::print("{}\n", fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace gemmtune::testing
