#include "resolve/errata.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backends/traits.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/text.h"
#include "formats/errata/erratum_file.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view no_errata = "none";

/// Adds the erratum, in place of one of the same name.
void add(Erratum erratum, std::vector<Erratum>& errata) {
  const auto same =
      std::ranges::find_if(errata, [&](const Erratum& one) { return one.name == erratum.name; });
  if (same == errata.end()) {
    errata.push_back(std::move(erratum));
  } else {
    *same = std::move(erratum);
  }
}

/// The *.json files of a folder, by name; `place` itself if it is no folder.
Result<std::vector<std::string>> files_of(const std::string& place) {
  std::error_code error;
  if (!fs::is_directory(place, error)) return std::vector{place};
  if (::access(place.c_str(), R_OK | X_OK) != 0) {
    return Status::io("{}: {}", place, std::generic_category().message(errno));
  }
  std::vector<std::string> files = files_in(place);
  std::erase_if(files, [](const std::string& file) { return !file.ends_with(".json"); });
  return files;
}

Status add_files(const std::string& place, std::vector<Erratum>& errata) {
  GEMMTUNE_TRY(const auto files, files_of(place));
  for (const std::string& file : files) {
    GEMMTUNE_TRY(const auto text, read_file(file));
    GEMMTUNE_TRY(auto erratum, parse_erratum(file, text));
    add(std::move(erratum), errata);
  }
  return {};
}

/// The version of the library behind a family; empty for a family without one.
std::string_view library_version(const DeviceInfo& device, std::string_view family) {
  for (const Library& library : device.libraries) {
    if (to_lower(library.name) == family) return library.version;
  }
  return {};
}

bool covers(const Erratum& erratum, const DeviceInfo& device) {
  const auto& architectures = erratum.architectures;
  const bool architecture = architectures.empty() || std::find(architectures.begin(), architectures.end(),
                                                               device.gfx) != architectures.end();
  return architecture && covers_version(erratum, library_version(device, erratum.family));
}

}  // namespace

KnownErrata load_errata(const std::string& place) {
  KnownErrata known;
  if (place == no_errata) return known;
  for (const ErratumText& shipped : shipped_errata()) {
    auto erratum = parse_erratum(std::string(shipped.source), std::string(shipped.text));
    if (!erratum.ok()) {
      known.status = erratum.status();
      return known;
    }
    add(std::move(erratum).value(), known.errata);
  }
  if (place.empty()) return known;
  std::vector<Erratum> all = known.errata;
  if (const Status status = add_files(place, all); !status.ok()) {
    known.status = Status(status.code(), fmt::format("GEMMTUNE_ERRATA: {}", status.message()));
    return known;
  }
  known.errata = std::move(all);
  return known;
}

const KnownErrata& known_errata() {
  static const KnownErrata known = load_errata(read_environment().errata);
  return known;
}

DeviceErrata::DeviceErrata(const DeviceInfo& device, const KnownErrata& known) : architecture_(device.gfx) {
  for (const Erratum& erratum : known.errata) {
    if (covers(erratum, device)) list_.push_back(&erratum);
  }
}

const Erratum* DeviceErrata::find(const Problem& problem, const Candidate& candidate) const {
  const auto found = std::ranges::find_if(
      list_, [&](const Erratum* erratum) { return holds(*erratum, architecture_, problem, candidate); });
  return found == list_.end() ? nullptr : *found;
}

Status check_errata(const Device& device, const Problem& problem, const Candidate& candidate) {
  const Erratum* const erratum = DeviceErrata(device.info()).find(problem, candidate);
  if (erratum == nullptr) return {};
  return Status::unsupported("{}: {}", candidate.kernel_name(), describe(*erratum));
}

Result<Candidate> usable_default(const Device& device, const Problem& problem, AccuracyPolicy policy) {
  GEMMTUNE_TRY(auto candidate, default_kernel(device, problem, policy));
  GEMMTUNE_RETURN_IF_ERROR(check_errata(device, problem, candidate));
  return candidate;
}

Result<Fallback> usable_fallback(const Device& device, const Problem& problem, const KernelFilter& allowed) {
  GEMMTUNE_TRY(auto first, device.fallback(problem));
  const DeviceErrata errata(device.info());
  const Erratum* const erratum = errata.find(problem, first);
  if (erratum == nullptr && (!allowed || allowed(first))) return Fallback{std::move(first), {}};
  const std::string passed =
      erratum == nullptr ? std::string() : fmt::format("{}: {}", first.kernel_name(), describe(*erratum));
  GEMMTUNE_TRY(
      auto other,
      choose_fallback(traits_of(device.info()).families, device, problem, [&](const Candidate& candidate) {
        return errata.find(problem, candidate) == nullptr && (!allowed || allowed(candidate));
      }));
  return Fallback{std::move(other), passed};
}

}  // namespace gemmtune
