// The events of a run (`gemmtune tune --events`) as what a report is made of, while the run goes on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/report_tables.h"
#include "formats/json_fwd.h"

namespace gemmtune::cli {

class EventReader {
 public:
  /// `path`: of the events, for messages and as the file of the rows.
  explicit EventReader(std::string path) : path_(std::move(path)) {}

  /// Reads what was appended since the last call. A file that is not there yet has nothing. True: something is new. A line that
  /// is no event is left out; an error where it is the first one, because the file is another then.
  Result<bool> read();
  /// A line of the events, without its end; read() takes those of the file. An error as of read().
  Status add_line(const std::string& line);
  /// What was left out since the last call, a line each.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  std::size_t skipped() const { return skipped_; }
  bool there() const { return there_; }
  bool ended() const { return ended_; }
  /// What is known of the newest run of the file.
  void fill(ReportInputs& inputs) const;

 private:
  struct Shape {
    std::string problem;  // as the event has it
    std::string last;     // candidate
    bool in_work = false;
    bool done = false;
  };
  Status take(const std::string& line);
  Status take_row(const Json& event, std::size_t index);
  void take_candidate(const Json& event, std::size_t index);
  void begin(const Json& event);

  std::string path_;
  std::uint64_t offset_ = 0;
  std::size_t line_ = 0;
  std::size_t skipped_ = 0;  // lines
  std::vector<std::string> notes_;
  std::string gfx_;
  int cu_num_ = 0;
  bool there_ = false;
  bool begun_ = false;
  bool ended_ = false;
  std::size_t waiting_ = 0;
  std::size_t candidates_ = 0;
  std::map<std::size_t, Shape> shapes_;
  std::map<std::size_t, TunedEntry> rows_;
  Measurements measurements_;
};

}  // namespace gemmtune::cli
