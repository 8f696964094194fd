#include "backends/cpu/cpu_device.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/machine/cache_probe.h"
#include "backends/cpu/machine/memory.h"
#include "backends/cpu/machine/reading_kernel.h"
#include "backends/cpu/machine/system_limits.h"
#include "backends/cpu/machine/timer.h"
#include "backends/cpu/silu_and_mul.h"
#include "backends/cpu/threads/gather.h"
#include "backends/cpu/threads/idle_threads.h"
#include "backends/default_kernels.h"
#include "backends/silu_and_mul.h"
#include "backends/traits.h"

namespace gemmtune::cpu {
namespace {

/// libgomp spins for about 4 ms after its last region; OpenBLAS and our pool are asleep long before.
constexpr auto pool_gap = std::chrono::milliseconds(5);
constexpr auto longest_pool_gap = std::chrono::milliseconds(100);
constexpr auto longest_gathering = std::chrono::milliseconds(10);
constexpr double uncounted_seconds = 0.1;  // in front of an energy batch: clocks settle

PoolOptions pool_options(const CpuDeviceOptions& options) {
  PoolOptions pool;
  pool.threads = static_cast<int>(options.cores.cores.size());
  pool.pin = options.pin_threads;
  if (options.cores.named || options.pin_threads) pool.cores = options.cores.cores;
  return pool;
}

FamilyRequest family_request(const CpuDeviceOptions& options) {
  return {detect_isa(options.isa_cap), options.isa_cap,        options.cores.cores,
          options.module_folder,       options.onednn_folders, options.serves};
}

Status check_pointers(const void* a, const void* b, std::size_t bytes) {
  if (bytes == 0 || (a != nullptr && b != nullptr)) return {};
  return Status::invalid("copy of {} bytes from or to a null pointer", bytes);
}

/// The problem of a weight in oneDNN's form; its M does not matter.
Problem as_onednn_weight(Problem problem) {
  problem.m = 1;
  problem.weight_layout = WeightLayout::onednn;
  return problem;
}

}  // namespace

DeviceInfo describe_device(const CoreList& cores, Isa isa, Team team, std::vector<Library> libraries) {
  DeviceInfo info;
  info.backend = "cpu";
  info.name = "cpu:" + print_core_list(cores);
  info.model = cpu_model_name();
  info.gfx = gfx_name(isa);
  info.cu_num = static_cast<int>(cores.size());
  info.team = to_string(team);
  info.libraries = std::move(libraries);
  return info;
}

CpuDevice::CpuDevice(const CpuDeviceOptions& options)
    : cores_(options.cores.cores),
      level_(detect_isa(options.isa_cap)),
      pin_threads_(options.pin_threads),
      last_level_cache_mib_(options.last_level_cache_mib),
      powercap_folder_(options.powercap_folder),
      serves_(options.serves),
      team_(options.team, pool_options(options)),
      families_(make_families(family_request(options), team_)) {
  for (const Team team : {Team::own, Team::openmp, Team::callback})
    infos_[static_cast<std::size_t>(team)] = describe_device(cores_, level_, team, families_.libraries);
  for (const auto& family : families_.families) family_pointers_.push_back(family.get());
}

Result<std::unique_ptr<CpuDevice>> CpuDevice::open(const CpuDeviceOptions& options) {
  std::unique_ptr<CpuDevice> device(new CpuDevice(options));
  // After the families: a library of theirs may bring the runtime.
  GEMMTUNE_RETURN_IF_ERROR(device->team_.look(options.serves));
  return device;
}

void CpuDevice::look_for_threads() { (void)team_.look(serves_); }

Result<std::unique_ptr<Buffer>> CpuDevice::allocate(std::size_t bytes, Placement placement) {
  return allocate_memory(bytes, placement);
}

Status CpuDevice::copy_in(void* device, const void* host, std::size_t bytes) {
  GEMMTUNE_RETURN_IF_ERROR(check_pointers(device, host, bytes));
  if (bytes > 0) std::memcpy(device, host, bytes);
  return {};
}

Status CpuDevice::copy_out(void* host, const void* device, std::size_t bytes) {
  return copy_in(host, device, bytes);
}

Status CpuDevice::fill(void* device, int byte, std::size_t bytes) {
  GEMMTUNE_RETURN_IF_ERROR(check_pointers(device, device, bytes));
  if (bytes > 0) std::memset(device, byte, bytes);
  return {};
}

/// ok where a weight of the problem (its M left out) can be in `layout` here.
Status CpuDevice::check_layout(const Problem& problem, WeightLayout layout) const {
  Problem weight = problem;
  weight.m = 1;
  weight.weight_layout = layout;
  GEMMTUNE_RETURN_IF_ERROR(check(weight));
  if (layout == WeightLayout::any)
    return Status::invalid(
        "weight layout any: a packed weight needs one of plain, panel16, onednn, aiter16x16");
  if (layout != WeightLayout::plain && is_mixture(problem)) {
    return Status::unsupported("weight layout {}: weights of fused_moe are plain", to_string(layout));
  }
  if (layout != WeightLayout::onednn)
    GEMMTUNE_RETURN_IF_ERROR(cpu::check_layout(operand_shapes(problem).w, layout));
  if (layout == WeightLayout::onednn && families_.onednn == nullptr) {
    return Status::unsupported("weight layout onednn: oneDNN is not on this machine: {}",
                               info().libraries.front().why);
  }
  return {};
}

Result<std::size_t> CpuDevice::packed_bytes(const Problem& problem, WeightLayout layout) const {
  GEMMTUNE_RETURN_IF_ERROR(check_layout(problem, layout));
  if (layout == WeightLayout::onednn) return families_.onednn->packed_bytes(as_onednn_weight(problem));
  // check() holds a plain weight below 2⁴⁷ bytes; panel16 pads it to at most 512 times that: no overflow.
  const MatrixShape shape = operand_shapes(problem).w;
  const std::int64_t bytes =
      layout == WeightLayout::plain ? weight_bytes(problem) : shape.count * layout_bytes(shape, layout);
  if (bytes > max_tensor_bytes) {
    return Status::invalid("a weight of {} x {} in layout {} needs {} bytes, more than 2^47", problem.n,
                           problem.k, to_string(layout), bytes);
  }
  return static_cast<std::size_t>(bytes);
}

Status CpuDevice::pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) {
  GEMMTUNE_TRY(const auto bytes, packed_bytes(problem, layout));
  GEMMTUNE_RETURN_IF_ERROR(check_pointers(plain, packed, bytes));
  // Kernels read a weight from memory at its rate, and small pages lower it (docs/lab/cpu_pages.md).
  prefer_huge_pages(packed, bytes);
  if (layout == WeightLayout::onednn) return families_.onednn->pack(as_onednn_weight(problem), plain, packed);
  if (layout == WeightLayout::plain) return copy_in(packed, plain, bytes);
  pack_matrices(operand_shapes(problem).w, layout, plain, packed);
  return {};
}

Status CpuDevice::unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                                void* plain) const {
  GEMMTUNE_TRY(const auto bytes, packed_bytes(problem, layout));
  GEMMTUNE_RETURN_IF_ERROR(check_pointers(plain, packed, bytes));
  if (layout == WeightLayout::onednn)
    return families_.onednn->unpack(as_onednn_weight(problem), packed, plain);
  if (layout == WeightLayout::plain) {
    std::memcpy(plain, packed, bytes);
  } else {
    unpack_matrices(operand_shapes(problem).w, layout, packed, plain);
  }
  return {};
}

Status CpuDevice::silu_and_mul(const SiluAndMul& call, Stream stream) {
  cpu::silu_and_mul(call, level_,
                    stream.handle == nullptr ? static_cast<Executor&>(team_) : executor_of(stream));
  return {};
}

Result<double> CpuDevice::sample(const SampleRequest& request) {
  const std::lock_guard lock(sampling_);
  ProcessorClock clock(team_);
  const Stream stream{request.processor_time ? &clock : static_cast<Executor*>(&team_)};
  const std::function<void()> before_each = [this] { run_parallel_pass(); };
  const auto time = [&] {
    return time_batch(request, stream, request.parallel_pass ? before_each : nullptr,
                      request.processor_time ? &clock : nullptr);
  };
  if (!pin_threads_) return time();
  const ScopedAffinity on_first_core({cores_.front()});
  // libgomp may start workers in the middle of a sample, and they inherit the caller's cores: so it keeps the
  // whole set. It stays on the first core all the same, for the workers are pinned to the others.
  const bool on_openmp = active_pool_ == "openmp" || team_.openmp() != nullptr;
  const ScopedAffinity for_new_workers(on_openmp ? cores_ : CoreList());
  return time();
}

void CpuDevice::begin_processor_waits() {
  const std::lock_guard lock(sampling_);
  waits_.begin();
}

double CpuDevice::processor_waits() {
  const std::lock_guard lock(sampling_);
  return waits_.since_last();
}

bool CpuDevice::gather_threads() {
  const std::lock_guard lock(sampling_);
  const bool are_ours = active_pool_ == (team_.openmp() == nullptr ? "own" : "openmp");
  const bool together = !are_ours || cpu::gather_threads(team_, longest_gathering);
  waits_.since_last();
  return together;
}

void CpuDevice::run_parallel_pass() {
  constexpr std::int64_t rows = 64;
  constexpr std::int64_t columns = 8192;
  if (pass_in_.empty()) {
    pass_in_.assign(rows * columns, 0.5F);
    pass_out_.assign(rows * columns, 0);
  }
  const SiluAndMul pass{DataType::f32,    rows,    columns, pass_in_.data(), pass_in_.data(),
                        pass_out_.data(), columns, columns, columns};
  cpu::silu_and_mul(pass, level_, team_);
}

Result<EnergySample> CpuDevice::sample_energy(const SampleRequest& request, double seconds) {
  GEMMTUNE_TRY(const auto counter, EnergyCounter::open(powercap_folder_));
  SampleRequest part = request;
  std::int64_t calls = 0;
  const auto run_for = [&](double wanted) -> Result<double> {
    double taken = 0;
    for (calls = 0; taken < wanted; calls += part.launches) {
      const Result<double> microseconds = sample(part);
      if (!microseconds.ok()) return microseconds;
      taken += 1e-6 * *microseconds * part.launches;
      part.first += static_cast<std::size_t>(part.launches);
    }
    return taken;
  };
  GEMMTUNE_RETURN_IF_ERROR(run_for(uncounted_seconds).status());
  GEMMTUNE_TRY(const auto before, counter.read());
  GEMMTUNE_TRY(const double taken, run_for(seconds));
  GEMMTUNE_TRY(const auto after, counter.read());
  const double joules = counter.joules(before, after);
  if (joules <= 0)
    return Status::internal("the energy counters in {} did not move in {:.3g} s", powercap_folder_, taken);
  return EnergySample{1e6 * taken / static_cast<double>(calls), joules / static_cast<double>(calls)};
}

std::unique_ptr<Kernel> CpuDevice::reading_kernel(std::size_t bytes) const {
  return make_reading_kernel(bytes);
}

std::map<std::string, double> CpuDevice::observe() {
  return {{"last_level_cache_mib", static_cast<double>(last_level_cache_bytes()) / (1 << 20)}};
}

std::size_t CpuDevice::last_level_cache_bytes() {
  return last_level_cache_mib_ > 0 ? static_cast<std::size_t>(last_level_cache_mib_) << 20
                                   : effective_last_level_cache(cores_);
}

std::size_t CpuDevice::free_memory_bytes() { return cpu::free_memory_bytes(); }

void CpuDevice::quiesce(std::string_view thread_pool) {
  const std::lock_guard lock(sampling_);
  if (active_pool_ == thread_pool) return;
  active_pool_ = thread_pool;
  std::this_thread::sleep_for(pool_gap);
  // The tuner has the process for itself; in a service other threads have other work.
  if (!pin_threads_) return;
  wait_until_other_threads_sleep(longest_pool_gap);
  if (team_.openmp() != nullptr) {
    team_.pin_openmp_team(cores_);
  } else if (thread_pool == "openmp" && families_.onednn != nullptr) {
    families_.onednn->pin_team(cores_);
  }
}

Result<Candidate> CpuDevice::baseline(const Problem& problem) const {
  return choose_baseline(traits_of(info()).families, *this, problem);
}

Result<Candidate> CpuDevice::fallback(const Problem& problem) const {
  return choose_fallback(traits_of(info()).families, *this, problem);
}

}  // namespace gemmtune::cpu
