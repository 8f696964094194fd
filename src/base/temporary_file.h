// Files that become an output by a rename, and what killed processes left of them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/status.h"

namespace gemmtune {

/// A file "<output>.<6 hexadecimal digits>.tmp", removed by the destructor. Its process holds a lock of it: one without a
/// lock is a dead process's.
class TemporaryFile {
 public:
  /// A new, empty one, whose mode follows the umask. Leftovers beside the same output are removed first.
  static Result<TemporaryFile> beside(const std::string& output);
  TemporaryFile(TemporaryFile&& other) noexcept
      : path_(std::exchange(other.path_, {})), descriptor_(std::move(other.descriptor_)) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }
  /// Renames it over `output`; false: errno says why. Allocates nothing.
  bool replace(const std::string& output);

 private:
  TemporaryFile(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;  // empty: nothing is left to remove
  Descriptor descriptor_;
};

/// Removes this user's temporary files of dead processes from a folder: those of the output of this name, of all where it is
/// empty. How many there were.
int remove_leftovers(const std::string& folder, std::string_view output_name = {});

}  // namespace gemmtune
