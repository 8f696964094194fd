#include "formats/parquet/parquet.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/child_process.h"
#include "base/descriptor.h"
#include "base/file.h"

namespace gemmtune {
namespace {

constexpr int exit_no_pyarrow = 3;
constexpr int exit_refused = 4;
constexpr int tick_milliseconds = 100;
constexpr double patience_seconds = 2;

/// Reads the file that is its standard input. pyarrow before 15 takes types of Python out of a file (CVE-2023-47248).
constexpr const char* script = R"(
import os, sys

def end(code, text):
    sys.stderr.write(text)
    sys.stderr.flush()
    os._exit(code)

try:
    import pyarrow, pyarrow.csv, pyarrow.parquet
except ImportError as error:
    end(3, str(error))
if int(pyarrow.__version__.split(".")[0]) < 15:
    end(3, "pyarrow is " + pyarrow.__version__ + ", expected 15 or later")
try:
    table = pyarrow.parquet.ParquetFile(os.fdopen(os.dup(0), "rb"))
    for field in table.schema_arrow:
        if pyarrow.types.is_nested(field.type):
            end(4, "column " + field.name + " is of " + str(field.type) + ", expected numbers or texts")
    writer = None
    def write(batch):
        global writer
        columns = [one.dictionary_decode() if pyarrow.types.is_dictionary(one.type) else one for one in batch.columns]
        batch = pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)
        if writer is None:
            writer = pyarrow.csv.CSVWriter(sys.stdout.buffer, batch.schema)
        writer.write(batch)
    for batch in table.iter_batches(batch_size=65536, use_threads=False):
        write(batch)
    if writer is None:
        write(pyarrow.RecordBatch.from_pylist([], schema=table.schema_arrow))
    writer.close()
    sys.stdout.buffer.flush()
except BaseException as error:
    end(4, type(error).__name__ + ": " + str(error))
)";

/// Memory that holds the content, at its begin.
Result<Descriptor> memory_of(std::string_view content) {
  Descriptor memory(memfd_create("gemmtune table", MFD_CLOEXEC));
  if (!memory.ok()) return Status::io("no memory for a table: {}", std::strerror(errno));
  while (!content.empty()) {
    const ssize_t written = write(memory.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Status::io("no memory for a table: {}", std::strerror(errno));
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (lseek(memory.get(), 0, SEEK_SET) != 0)
    return Status::io("no memory for a table: {}", std::strerror(errno));
  return memory;
}

/// Appends what is there; false once the other side is closed.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 1 << 16> chunk;
  for (;;) {
    const ssize_t got = read(descriptor, chunk.data(), chunk.size());
    if (got > 0) {
      text.append(chunk.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }
}

/// A started Python and what it wrote.
class PythonOutput {
 public:
  PythonOutput(pid_t pid, Descriptor output, Descriptor errors)
      : process_(pid, true), output_(std::move(output)), errors_(std::move(errors)) {}

  /// Why reading was given up; empty: Python ended.
  std::string read_all(const ParquetReader& reader) {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration<double>(reader.seconds);
    for (;;) {
      std::array<pollfd, 2> waiting{{{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}}};
      poll(waiting.data(), waiting.size(), tick_milliseconds);
      words_.read_from(errors_.get());
      // A child of it may hold the output open.
      const bool gone = process_.has_ended();
      if (!read_some(output_.get(), text_) || gone) return {};
      if (text_.size() > reader.max_bytes)
        return fmt::format("its CSV has more than {} bytes", reader.max_bytes);
      if (Clock::now() > until) return fmt::format("not read within {:.3g} s", reader.seconds);
    }
  }
  ProcessEnding end() {
    const int status = process_.wait(patience_seconds);
    words_.read_from(errors_.get());
    return process_ending(status, words_);
  }
  void kill() { process_.kill(); }
  std::string take_text() { return std::move(text_); }

 private:
  ChildProcess process_;
  Descriptor output_;
  Descriptor errors_;
  std::string text_;
  LastWords words_;
};

Status no_reader(const std::string& source, const std::string& why) {
  return Status::invalid(
      "{}: is parquet, which a Python with pyarrow reads: {}; set GEMMTUNE_PYTHON to one that has pyarrow, "
      "or convert the file: {}",
      source, why, parquet_command(source));
}

Result<PythonOutput> start_python(const std::string& program, std::string_view content,
                                  std::size_t address_space) {
  GEMMTUNE_TRY(auto memory, memory_of(content));
  GEMMTUNE_TRY(auto output, make_pipe());
  GEMMTUNE_TRY(auto errors, make_pipe());
  const Descriptor high_memory = lifted_copy(memory.get());
  const Descriptor high_output = lifted_copy(output.theirs.get());
  const Descriptor high_errors = lifted_copy(errors.theirs.get());
  const std::array descriptors{high_memory.get(), high_output.get(), high_errors.get()};
  std::string name = program;
  std::string isolated = "-I";
  std::string command = "-c";
  std::string text = script;
  const std::array<char*, 5> words{name.data(), isolated.data(), command.data(), text.data(), nullptr};
  const pid_t pid = start_program(words.data(), descriptors, address_space);
  if (pid < 0) return Status::not_found("{}: {}", program, std::strerror(errno));
  return PythonOutput(pid, std::move(output.ours), std::move(errors.ours));
}

}  // namespace

bool is_parquet(std::string_view content) { return content.starts_with("PAR1"); }

std::string parquet_command(const std::string& path) {
  constexpr std::string_view others = "._/-+=,@:[]";
  const bool is_plain = std::ranges::all_of(path, [&](char one) {
    const bool word = (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9');
    return word || others.find(one) != std::string_view::npos;
  });
  return fmt::format(
      "python3 -c \"import pandas; pandas.read_parquet('{}').to_csv('table.csv', index=False)\"",
      is_plain ? path : "FILE");
}

Result<std::string> csv_of_parquet(const std::string& source, std::string_view content,
                                   const ParquetReader& reader) {
  const std::string wanted = reader.python.empty() ? std::string("python3") : reader.python;
  const std::string program = wanted.find('/') == std::string::npos ? find_program(wanted) : wanted;
  if (program.empty()) return no_reader(source, fmt::format("no {} in a folder of PATH", wanted));
  auto python = start_python(program, content, reader.address_space);
  if (python.code() == StatusCode::not_found) return no_reader(source, python.message());
  if (!python.ok()) return python.status();
  if (const std::string why = python->read_all(reader); !why.empty()) {
    python->kill();
    python->end();
    return Status::invalid("{}: {}; convert it: {}", source, why, parquet_command(source));
  }
  const ProcessEnding ending = python->end();
  if (ending.signal == 0 && ending.exit_code == 0) return python->take_text();
  if (ending.signal == 0 && ending.exit_code == exit_no_pyarrow)
    return no_reader(source, fmt::format("{}: {}", program, ending.last_words));
  if (ending.signal == 0 && ending.exit_code == exit_refused)
    return Status::invalid("{}: pyarrow refuses it: {}", source, ending.last_words);
  return Status::invalid("{}: {} did not read it: {}", source, program, ending_text(ending));
}

Result<std::string> read_text_of_table(const std::string& path, const ParquetReader& reader) {
  auto content = read_file(path);
  if (!content.ok() || !is_parquet(*content)) return content;
  return csv_of_parquet(path == "-" ? "standard input" : path, *content, reader);
}

}  // namespace gemmtune
