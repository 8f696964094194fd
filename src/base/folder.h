// What is in a folder.
#pragma once

#include <string>
#include <vector>

namespace gemmtune {

/// The paths of a folder's entries, sorted; none if it cannot be read. (Iterators of std::filesystem end the
/// process if there is no memory.)
std::vector<std::string> paths_in(const std::string& folder);
/// The same without folders, pipes, sockets and devices, which nobody named: reading a pipe would wait for ever.
std::vector<std::string> files_in(const std::string& folder);

/// How another user than this one and root may put files into the folder ("its owner is user 1001", "its mode is
/// 0777"). Empty if none may, and for a folder that is not there.
std::string why_others_may_write(const std::string& folder);

}  // namespace gemmtune
