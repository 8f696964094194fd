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
  std::string team;                              // DeviceInfo's
  std::map<std::string, std::string> libraries;  // name → version
};

/// The environments that one tuned file's rows name, by hash.
class EnvironmentNotes {
 public:
  /// Of the tuned file at `path`. A missing .env.json is no notes; a damaged one is an error that names it.
  static Result<EnvironmentNotes> read(const std::string& path);
  /// `object`: {"device": "…", "team": "openmp", "libraries": {"onednn": "2.6.3"}, …}, as the tuner writes it.
  void add(const std::string& env, std::string_view object);

  /// Empty where a row of this `env` was measured on such a device with the same library major versions and on the same
  /// team of threads, or names no environment (other tools' rows); else what differs, in words. Rows of any team suit a
  /// `callback`: nothing but the program could measure on it.
  std::string difference(const std::string& env, const DeviceInfo& device) const;
  /// The same of a row that must say where it was measured: an environment that names no device model differs.
  std::string certain_difference(const std::string& env, const DeviceInfo& device) const;
  /// The device model of a row's environment; empty if it is not known.
  std::string model(const std::string& env) const;

 private:
  std::map<std::string, RowEnvironmentNote> notes_;
};

}  // namespace gemmtune
