// In which environment a row was measured, and whether that is this one: reads <tuned file>.env.json.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "base/status.h"
#include "tuned/entry.h"

namespace gemmtune {

/// What stands behind one `env` hash, as far as dispatch compares it. Absent members compare equal.
struct RowEnvironmentNote {
  std::string model;                             // of the device
  std::map<std::string, std::string> libraries;  // name → version
};

/// The environments that one tuned file's rows name, by hash.
class EnvironmentNotes {
 public:
  /// Of the tuned file at `path`. A missing .env.json is no notes; a damaged one is an error that names it.
  static Result<EnvironmentNotes> read(const std::string& path);
  /// `object`: {"device": "…", "libraries": {"onednn": "2.6.3"}, …}, as the tuner writes it.
  void add(const std::string& env, std::string_view object);

  /// Empty where a row of this `env` was measured on such a device with the same library major versions, or
  /// names no environment (other tools' rows); else what differs, in words.
  std::string difference(const std::string& env, const DeviceInfo& device) const;

 private:
  std::map<std::string, RowEnvironmentNote> notes_;
};

}  // namespace gemmtune
