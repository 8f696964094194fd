#include "backends/cpu/families/onednn/onednn_library.h"

#include <new>
#include <string_view>

#include "backends/cpu/machine/address_space.h"
#include "backends/cpu/machine/affinity.h"
#include "base/shared_library.h"

namespace gemmtune::cpu {
namespace {

constexpr std::string_view how_to_get_onednn = "apt-get install libdnnl2";

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

/// libgomp, which comes with the module, pins the thread that loads it if OMP_PROC_BIND, OMP_PLACES or
/// GOMP_CPU_AFFINITY is set: this thread, its later threads and its workers would have one core.
Result<SharedLibrary> open_module(const std::string& module_folder) {
  const ScopedAffinity kept(thread_affinity());
  return SharedLibrary::open(module_paths("libgemmtune_onednn.so", module_folder));
}

}  // namespace

std::optional<gemmtune_onednn_type> onednn_type(DataType type) {
  if (type == DataType::f32) return gemmtune_onednn_f32;
  if (type == DataType::bf16) return gemmtune_onednn_bf16;
  if (type == DataType::f16) return gemmtune_onednn_f16;
  return std::nullopt;
}

Result<std::shared_ptr<const OnednnLibrary>> OnednnLibrary::load(const std::string& module_folder,
                                                                 std::optional<Isa> cap) {
  // Its constructors allocate, and end the process if they cannot.
  constexpr std::size_t room = std::size_t{96} << 20;
  GEMMTUNE_RETURN_IF_ERROR(check_address_space("oneDNN", room));
  const auto module = open_module(module_folder);
  if (!module.ok()) return Status::not_found("{} ({})", module.message(), how_to_get_onednn);
  gemmtune_onednn_entry entry = nullptr;
  if (!module->find(GEMMTUNE_ONEDNN_ENTRY, entry)) {
    return Status::not_found("libgemmtune_onednn.so has no function " GEMMTUNE_ONEDNN_ENTRY);
  }
  const gemmtune_onednn_table* table = entry();
  if (table == nullptr || table->abi != GEMMTUNE_ONEDNN_ABI) {
    return Status::not_found(
        "libgemmtune_onednn.so is of another version of gemmtune: its table is {}, expected {}",
        table == nullptr ? 0 : table->abi, GEMMTUNE_ONEDNN_ABI);
  }
  if (cap) {
    const Status status = call_onednn(table->cap_isa, level_of(*cap));
    if (!status.ok()) return Status::not_found("{}", status.message());
  }
  return std::shared_ptr<const OnednnLibrary>(new OnednnLibrary(table));
}

OnednnLibrary::OnednnLibrary(const gemmtune_onednn_table* table) : table_(table) {
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
  problem.weight = {32, 32, x_type, 1, 0};
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
