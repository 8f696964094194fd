#include "backends/cpu/families/onednn/onednn_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <utility>

#include "backends/cpu/machine/address_space.h"
#include "backends/cpu/machine/load_time_setting.h"
#include "base/file.h"
#include "base/shared_library.h"
#include "base/text.h"

namespace gemmtune::cpu {
namespace {

constexpr std::string_view how_to_get_onednn =
    "apt-get install libdnnl2, or pip install onednn-cpu-gomp in the environment of a Python";
constexpr const char* onednn3_file = "libdnnl.so.3";
constexpr const char* module3_file = "libgemmtune_onednn3.so";

/// The dates of the tags of oneDNN's repository.
struct ReleaseLine {
  std::string_view line;
  int year;
};
constexpr std::array release_lines{
    ReleaseLine{"2.5", 2021},  ReleaseLine{"2.6", 2022},  ReleaseLine{"2.7", 2022},
    ReleaseLine{"3.0", 2022},  ReleaseLine{"3.1", 2023},  ReleaseLine{"3.2", 2023},
    ReleaseLine{"3.3", 2023},  ReleaseLine{"3.4", 2024},  ReleaseLine{"3.5", 2024},
    ReleaseLine{"3.6", 2024},  ReleaseLine{"3.7", 2025},  ReleaseLine{"3.8", 2025},
    ReleaseLine{"3.9", 2025},  ReleaseLine{"3.10", 2025}, ReleaseLine{"3.11", 2026},
    ReleaseLine{"3.12", 2026}, ReleaseLine{"3.13", 2026},
};

gemmtune_onednn_isa level_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return gemmtune_onednn_sse41;
    case Isa::avx2:
      return gemmtune_onednn_avx2;
    case Isa::avx512:
      return gemmtune_onednn_avx512;
    case Isa::avx512bf16:
      return gemmtune_onednn_avx512_bf16;
    case Isa::amx:
      break;
  }
  return gemmtune_onednn_amx;
}

using Table = const gemmtune_onednn_table*;

Result<Table> checked(Table table, std::string_view module) {
  if (table != nullptr && table->abi == GEMMTUNE_ONEDNN_ABI) return table;
  return Status::not_found("{} is of another version of gemmtune: its table is {}, expected {}", module,
                           table == nullptr ? 0 : table->abi, GEMMTUNE_ONEDNN_ABI);
}

/// A folder that was named to hold libdnnl.so.3 need not have our modules.
Result<SharedLibrary> open_module(const char* file, const std::string& folder) {
  const bool is_for_onednn =
      file_exists(join_path(folder, onednn3_file)) && !file_exists(join_path(folder, file));
  return SharedLibrary::open(module_paths(file, is_for_onednn ? std::string() : folder));
}

/// Opens files by libgemmtune_onednn3.so.
class Onednn3 {
 public:
  explicit Onednn3(const OnednnPlaces& places) : places_(places) {}

  /// Null where there is none that can be used.
  Table first() {
    std::vector<std::string> folders = places_.folders;
    if (!places_.module_folder.empty()) folders.insert(folders.begin(), places_.module_folder);
    for (const std::string& folder : folders) {
      const std::string path = join_path(folder, onednn3_file);
      // A relative path is of the working folder, where others may have put a library.
      if (!path.starts_with('/') || !file_exists(path)) continue;
      if (Table table = open(path)) return table;
    }
    return open(onednn3_file);
  }
  const std::string& passed_over() const { return passed_over_; }

 private:
  Table open(const std::string& path) {
    const bool is_name = path.find('/') == std::string::npos;
    gemmtune_onednn3_entry entry = nullptr;
    if (const Status found = find(entry); !found.ok()) {
      if (!is_name) note(path, found.message());
      return nullptr;
    }
    char text[512] = "";
    const Table table = entry(path.c_str(), gemmtune_onednn_why{text, sizeof text});
    if (table == nullptr) {
      const bool is_absent = is_name && std::string_view(text).starts_with(path + ": cannot open");
      if (!is_absent) note(path, text);
      return nullptr;
    }
    const auto known = checked(table, module3_file);
    if (!known.ok()) note(path, known.message());
    return known.ok() ? *known : nullptr;
  }

  Status find(gemmtune_onednn3_entry& entry) {
    GEMMTUNE_TRY(const auto module, open_module(module3_file, places_.module_folder));
    if (module.find(GEMMTUNE_ONEDNN3_ENTRY, entry)) return {};
    return Status::not_found("{} has no function " GEMMTUNE_ONEDNN3_ENTRY, module3_file);
  }

  void note(const std::string& path, std::string_view reason) {
    passed_over_ += passed_over_.empty() ? "" : "; ";
    passed_over_ += reason.starts_with(path) ? std::string(reason) : fmt::format("{}: {}", path, reason);
  }

  const OnednnPlaces& places_;
  std::string passed_over_;
};

/// By libgemmtune_onednn.so.
Result<Table> open_linked(const std::string& module_folder) {
  const auto module = open_module("libgemmtune_onednn.so", module_folder);
  if (!module.ok()) return Status::not_found("{} ({})", module.message(), how_to_get_onednn);
  gemmtune_onednn_entry entry = nullptr;
  if (!module->find(GEMMTUNE_ONEDNN_ENTRY, entry)) {
    return Status::not_found("libgemmtune_onednn.so has no function " GEMMTUNE_ONEDNN_ENTRY);
  }
  return checked(entry(), "libgemmtune_onednn.so");
}

struct OpenedOnednn {
  Table table = nullptr;
  std::string passed_over;
};

/// libgomp, which comes with oneDNN, pins the thread that loads it if OMP_PROC_BIND, OMP_PLACES or
/// GOMP_CPU_AFFINITY is set: this thread, its later threads and its workers would have one core.
Result<OpenedOnednn> open_onednn(const OnednnPlaces& places, bool bounded_spin) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const ScopedAffinity kept(thread_affinity());
  const BoundedOpenmpSpin spin(bounded_spin);
  Onednn3 newer(places);
  if (Table table = newer.first()) return OpenedOnednn{table, newer.passed_over()};
  const auto linked = open_linked(places.module_folder);
  if (linked.ok()) return OpenedOnednn{*linked, newer.passed_over()};
  if (newer.passed_over().empty()) return linked.status();
  return Status::not_found("{}; {}", linked.message(), newer.passed_over());
}

}  // namespace

std::optional<gemmtune_onednn_type> onednn_type(DataType type) {
  if (type == DataType::f32) return gemmtune_onednn_f32;
  if (type == DataType::bf16) return gemmtune_onednn_bf16;
  if (type == DataType::f16) return gemmtune_onednn_f16;
  return std::nullopt;
}

int onednn_release_year(std::string_view version) {
  const std::string_view line = version.substr(0, version.find('.', version.find('.') + 1));
  const auto found = std::find_if(release_lines.begin(), release_lines.end(),
                                  [&](const ReleaseLine& one) { return one.line == line; });
  return found == release_lines.end() ? 0 : found->year;
}

Result<std::shared_ptr<const OnednnLibrary>> OnednnLibrary::load(const OnednnPlaces& places,
                                                                 std::optional<Isa> cap, bool bounded_spin) {
  // Its constructors allocate, and end the process if they cannot.
  constexpr std::size_t room = std::size_t{96} << 20;
  GEMMTUNE_RETURN_IF_ERROR(check_address_space("oneDNN", room));
  GEMMTUNE_TRY(auto opened, open_onednn(places, bounded_spin));
  if (cap) {
    const Status status = call_onednn(opened.table->cap_isa, level_of(*cap));
    if (!status.ok()) return Status::not_found("{}", status.message());
  }
  return std::shared_ptr<const OnednnLibrary>(new OnednnLibrary(opened.table, std::move(opened.passed_over)));
}

OnednnLibrary::OnednnLibrary(const gemmtune_onednn_table* table, std::string passed_over)
    : table_(table), passed_over_(std::move(passed_over)) {
  for (int x = 0; x < types; ++x) {
    for (int y = 0; y < types; ++y) {
      for (const bool bias : {false, true}) {
        refusals_[x][y][bias ? 1 : 0] =
            probe(static_cast<gemmtune_onednn_type>(x), static_cast<gemmtune_onednn_type>(y), bias);
      }
    }
  }
}

std::string OnednnLibrary::probe(gemmtune_onednn_type x_type, gemmtune_onednn_type y_type, bool bias) const {
  gemmtune_onednn_problem problem{};
  problem.weight = {32, 32, x_type, 1, 0, nullptr};
  problem.m = 16;
  problem.y_type = y_type;
  problem.bias = bias ? 1 : 0;
  gemmtune_onednn_matmul* matmul = nullptr;
  const Status status = call_onednn(table_->create, &problem, &matmul);
  if (status.code() == StatusCode::out_of_memory) throw std::bad_alloc();  // it would be known for good
  if (!status.ok()) return status.message();
  const std::string implementation = table_->implementation(matmul);
  table_->destroy(matmul);
  return implementation.starts_with("ref") ? "oneDNN has only its reference code for it" : std::string();
}

std::string OnednnLibrary::path() const { return SharedLibrary::file_of(table_->library_address()); }

Status OnednnLibrary::takes(DataType x_type, DataType y_type, bool bias) const {
  const auto x = onednn_type(x_type);
  const auto y = onednn_type(y_type);
  if (!x || !y) return Status::unsupported("oneDNN has no code for it");
  const std::string& refusal = refusals_[*x][*y][bias ? 1 : 0];
  return refusal.empty() ? Status() : Status::unsupported("{}", refusal);
}

void OnednnLibrary::pin_team(const CoreList& cores) const {
  table_->pin_team(cores.data(), static_cast<int>(cores.size()));
}

}  // namespace gemmtune::cpu
