#include "backends/gpu/jit/kernel_cache.h"

#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>

#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/temporary_file.h"
#include "base/text.h"

namespace gemmtune::gpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view extension = ".kernel";
constexpr std::string_view magic = "gemmtune-kernel-1";
constexpr unsigned folder_mode = 0755;  // whatever the umask: nobody else may write

/// A warning that each kernel would repeat.
void warn_once(const std::string& text) {
  static std::mutex lock;
  static std::set<std::string> said;
  const std::lock_guard held(lock);
  if (said.insert(text).second) log(LogLevel::warning, "{}", text);
}

/// Every part with its length before it, so that no two lists have the same text.
std::string key_text(const Compiler& compiler, const Source& source, std::string_view architecture,
                     std::span<const DeviceFile> all) {
  std::string text;
  const auto add = [&](std::string_view part) { text += fmt::format("{}:{};", part.size(), part); };
  add(compiler.identity());
  add(compiler.flags(architecture));
  add(architecture);
  add(source.kernel);
  for (const std::string& define : source.defines) add(define);
  add(source.text);
  for (const DeviceFile& file : included_files(source.text, all)) {
    add(file.path);
    add(file.text);
  }
  return text;
}

std::string title_of(const Compiler& compiler, const Source& source, std::string_view architecture) {
  std::string title = fmt::format("{} {} {}", source.name, architecture, compiler.version());
  for (const std::string& define : source.defines) title += " " + define;
  for (char& letter : title)
    if (letter == '\n') letter = ' ';
  return title;
}

// magic, title, three numbers, a line each; then log and code.
std::string print_file(const std::string& title, const Binary& binary) {
  return fmt::format("{}\n{}\n{} {} {}\n{}{}", magic, title, binary.log.size(), binary.code.size(),
                     short_hash(binary.log + binary.code, 16), binary.log, binary.code);
}

struct Parsed {
  std::string_view title;
  std::string_view log;
  std::string_view code;
};

std::optional<std::string_view> take_line(std::string_view& text) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const auto line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

std::optional<Parsed> parse_file(std::string_view text) {
  if (take_line(text) != magic) return std::nullopt;
  const auto title = take_line(text);
  const auto numbers = take_line(text);
  if (!title || !numbers) return std::nullopt;
  const auto words = split(*numbers, ' ');
  if (words.size() != 3) return std::nullopt;
  const auto log_bytes = parse_integer(words[0]);
  const auto code_bytes = parse_integer(words[1]);
  if (!log_bytes || !code_bytes || *log_bytes < 0 || *code_bytes <= 0) return std::nullopt;
  if (static_cast<std::uint64_t>(*log_bytes) + static_cast<std::uint64_t>(*code_bytes) != text.size() ||
      short_hash(text, 16) != words[2]) {
    return std::nullopt;
  }
  const auto log = static_cast<std::size_t>(*log_bytes);
  return Parsed{*title, text.substr(0, log), text.substr(log)};
}

}  // namespace

std::string cache_key(const Compiler& compiler, const Source& source, std::string_view architecture,
                      std::span<const DeviceFile> all) {
  const std::string text = key_text(compiler, source, architecture, all);
  return short_hash(text, 16) + short_hash("second " + text, 16);
}

void KernelCache::leave_source(const Compiler& compiler, const Source& source,
                               std::string_view architecture) const {
  if (source_folder_.empty()) return;
  const std::string path = join_path(
      source_folder_,
      fmt::format("{}_{}.cu", source.name, cache_key(compiler, source, architecture).substr(0, 16)));
  if (file_exists(path)) return;
  std::string text = fmt::format("// {}, for {}\n", source.kernel, architecture);
  for (const std::string& define : source.defines) {
    const auto equals = define.find('=');
    text += fmt::format("#define {} {}\n", define.substr(0, equals),
                        equals == std::string::npos ? "1" : define.substr(equals + 1));
  }
  Status left = make_folders(source_folder_);
  if (left.ok()) left = write_file_atomically(path, text + resolved_text(source.text));
  if (!left.ok()) log(LogLevel::warning, "sources of kernels: {}", left.message());
}

Result<Binary> KernelCache::get(const Compiler& compiler, const Source& source,
                                std::string_view architecture) const {
  leave_source(compiler, source, architecture);
  if (folder_.empty()) return compiler.compile(source, architecture);
  if (const Status status = check_folder(); !status.ok()) {
    warn_once(status.message() + "; kernels are compiled and not kept");
    return compiler.compile(source, architecture);
  }
  const std::string path =
      (fs::path(folder_) / (cache_key(compiler, source, architecture) + std::string(extension))).string();
  if (!rebuild_ && file_exists(path)) {
    auto found = kept(path, compiler, architecture);
    if (found.ok()) return found;
    log(LogLevel::warning, "{}: {}; it is removed and compiled again", path, found.message());
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  GEMMTUNE_TRY(auto binary, compiler.compile(source, architecture));
  Status written = make_folders(folder_, folder_mode);
  if (written.ok())
    written = write_file_atomically(path, print_file(title_of(compiler, source, architecture), binary));
  if (!written.ok()) log(LogLevel::warning, "kernel cache: {}", written.message());
  return binary;
}

Result<Binary> KernelCache::kept(const std::string& path, const Compiler& compiler,
                                 std::string_view architecture) const {
  const auto content = read_regular_file(path);
  if (!content.ok()) return Status::invalid("is not a kernel of this cache");
  const auto parsed = parse_file(*content);
  if (!parsed) return Status::invalid("is not a kernel of this cache");
  Binary binary{std::string(parsed->code), std::string(parsed->log)};
  if (const Status status = compiler.check(binary, architecture); !status.ok())
    return Status::invalid("holds {}", status.message());
  return binary;
}

Status KernelCache::check_folder() const {
  const std::string why = why_others_may_write(folder_);
  if (why.empty()) return {};
  return Status::invalid(
      "the kernel cache {}: others may write it ({}), and what it holds is run; expected a folder of this "
      "user alone (chmod go-w, or GEMMTUNE_CACHE_DIR)",
      folder_, why);
}

std::vector<CompiledKernel> KernelCache::list() const {
  std::vector<CompiledKernel> entries;
  for (const std::string& path : paths_in(folder_)) {
    const fs::path file = path;
    if (file.extension() != extension) continue;
    const auto content = read_regular_file(path);
    const auto parsed = content.ok() ? parse_file(*content) : std::nullopt;
    CompiledKernel entry;
    entry.file = file.filename().string();
    entry.title = parsed ? std::string(parsed->title) : "damaged";
    entry.bytes = content.ok() ? content->size() : 0;
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<int> KernelCache::clear() const {
  remove_leftovers(folder_);
  int removed = 0;
  for (const CompiledKernel& entry : list()) {
    std::error_code error;
    fs::remove(fs::path(folder_) / entry.file, error);
    if (error) return Status::io("{}/{}: {}", folder_, entry.file, error.message());
    ++removed;
  }
  return removed;
}

}  // namespace gemmtune::gpu
