// backend.h: what gemmtune asks of a machine. A backend finds devices; a device holds memory, kernel families
// and a clock; a family says which problems it takes and builds kernels; a kernel runs. Backends time,
// measure/ decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/team.h"
#include "base/status.h"
#include "candidates/config.h"
#include "candidates/space.h"
#include "problem/accuracy.h"
#include "problem/problem.h"

namespace gemmtune {

/// A library that a backend looked for.
struct Library {
  std::string name;
  std::string version;           // empty where it was not found
  std::string why;               // why it is missing and how to get it; empty where it was found
  std::string path;              // the file; empty where it was not found
  int year = 0;                  // of the version's release; 0: not known
  std::string passed_over = {};  // files that were tried before and cannot be used, each with its reason

  /// "oneDNN 2.6.3 (2022)".
  std::string text() const;
};

struct DeviceInfo {
  std::string backend;  // "cpu", "cuda", "hip"
  std::string name;     // what --device takes: "cpu:0-1"
  std::string model;    // "AMD EPYC …"
  std::string gfx;      // the tables' architecture: x86-avx2, sm_90, gfx942
  int cu_num = 0;       // compute units: cores in the set, multiprocessors
  std::string bus_id;   // where a GPU is plugged in, "0000:19:00.0"; empty: partitions of the machine's CPUs
  std::string team;     // whose threads run a CPU's kernels: "openmp", "own", "callback"; empty: it is no CPU
  std::vector<Library> libraries;
  std::string opponent = {};  // the family of an evaluator that candidates are compared with; empty: none
  std::string opponent_text = {};  // "PyTorch 2.13.0, PyTorch's oneDNN 3.12.0"

  /// What is behind a family that others are compared with: the library with its version, "oneDNN 2.6.3 (2022)", or the
  /// opponent; empty for a family of ours.
  std::string vendor_text(std::string_view family) const;
};

/// Pointers of one call; all live on the kernel's device. Leading dimensions are in elements; weights and
/// scales are dense. Shapes and scale types: problem/operands.h. m == 0 never reaches a kernel.
struct Operands {
  const void* x = nullptr;
  const void* w = nullptr;        // in the kernel's weight layout; w1 of fused_moe
  const void* bias = nullptr;     // bias1 of fused_moe; null where the problem has none
  const void* x_scale = nullptr;  // of the shapes' ScaleType; null where the operand has no scales
  const void* w_scale = nullptr;
  void* y = nullptr;
  std::int64_t ldx = 0;  // ≥ k; of a column-major x from column to column, ≥ m
  std::int64_t ldy = 0;  // ≥ n; ≥ k of fused_moe
  /// Of rows with a scale each: 1. 0: one scale for all rows (of all batches).
  std::int64_t x_scale_step = 1;
  std::int64_t w_scale_step = 1;
  /// Of batched operations: elements from batch to batch of x and y; ≥ m · ldx, m · ldy.
  std::int64_t x_batch_stride = 0;
  std::int64_t y_batch_stride = 0;
  // Of fused_moe:
  const void* w2 = nullptr;
  const void* w2_scale = nullptr;
  const float* bias2 = nullptr;
  const std::int32_t* topk_ids = nullptr;  // [M, routed_topk()]: 0 … routed_experts() − 1
  const float* topk_weights = nullptr;     // [M, routed_topk()]
  // A float32 for each matrix where the shapes' scales are global, and int8 zero points where they have them
  // (problem/operands.h).
  const void* x_global_scale = nullptr;
  const void* w_global_scale = nullptr;
  const void* w_zero_points = nullptr;
  const void* w2_global_scale = nullptr;
  const void* w2_zero_points = nullptr;

  friend bool operator==(const Operands&, const Operands&) = default;
};

/// Where a call runs. A CPU's handle is an Executor (backends/cpu); a GPU's is its stream. Null: the device's
/// own.
struct Stream {
  void* handle = nullptr;
};

/// A kernel bound to one problem (its M included) and one config. Immutable: any number of threads may call
/// run at once, each with a workspace of its own.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::size_t workspace_bytes() const = 0;  // 64-byte aligned by the caller
  virtual WeightLayout weight_layout() const = 0;
  /// y = x · wᵀ (+ bias). A CPU's kernel has finished on return, a GPU's is enqueued. Allocates nothing,
  /// takes no lock that it holds while computing. Operands were checked by the caller.
  virtual Status run(const Operands& operands, void* workspace, Stream stream) const = 0;
};

/// A group of related kernels: the libtype of a tuned file. Purely virtual, so that a decorator cannot forget a function: a
/// family derives from LeafFamily, a decorator from ForwardingFamily (backends/forwarding_family.h).
class KernelFamily {
 public:
  virtual ~KernelFamily() = default;
  virtual std::string_view name() const = 0;
  /// Raised whenever a config's text would mean another kernel than before.
  virtual int revision() const = 0;
  /// What a kernel of this family is made of beside its config: changes whenever its source or its compiler
  /// flags do. A failure that was met under another identity may be gone.
  virtual std::string identity() const = 0;
  /// Vendor libraries before ours before plain references: decides ties.
  virtual int tie_rank() const = 0;
  /// ok, or `unsupported` with the reason, "<subject>: <detail>" (backends/refusal.h), without the family's
  /// name. A problem with weight_layout `any` is taken if any packed layout of the family fits.
  virtual Status accepts(const Problem& problem) const = 0;
  /// The packed layout that this family reads for a pre-shuffled problem; nullopt: plain weights only.
  virtual std::optional<WeightLayout> packed_layout(const Problem& problem) const = 0;
  /// Requires accepts(problem).ok(). The keys do not depend on the problem.
  virtual Space space(const Problem& problem) const = 0;
  /// What an exhaustive search goes through: wider than space() where a library knows more than it proposes.
  /// All of it can be built.
  virtual Space exhaustive_space(const Problem& problem) const = 0;
  virtual Config default_config(const Problem& problem) const = 0;
  /// What runs if a user asks the library for its fast accumulation; without one the default.
  virtual Config fast_config(const Problem& problem) const = 0;
  /// The class of a kernel's sums and roundings. Kernels that leave fp8 sums to a tensor core or round an operand are not `fp32`.
  virtual Accuracy accuracy(const Problem& problem, const Config& config) const = 0;
  /// A promise: kernels of one text, of whatever families and M, are of one bit class, because they add the products of an
  /// element in the same order. Verification holds it against every kernel. Empty: none is made.
  virtual std::string sum_order(const Problem& problem, const Config& config) const = 0;
  /// Compiles or creates; may be slow. Requires accepts(problem).ok() and a complete config without a build
  /// refusal of space(problem): Device::build() checks both, a family does not.
  virtual Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const = 0;
  /// What a Triton config holds of the config where another program launches the kernel. None: gemmtune does, and the file
  /// holds its kernelName.
  virtual std::vector<LauncherParameter> launcher_parameters(const Config& config) const = 0;
  /// For the cost model: a config's rank before it is measured, smaller is tried first. 0: no opinion.
  virtual double predicted_microseconds(const Problem& problem, const Config& config) const = 0;
  /// Resources for ties: smaller wins (threads, workspace, splits).
  virtual std::int64_t resources(const Problem& problem, const Config& config) const = 0;
  /// Kernels of one pool are measured together: a pool's idle spin poisons the next one ("own", "openmp",
  /// "openblas").
  virtual std::string_view thread_pool() const = 0;
};

/// A family of kernels, with what most of them answer. Not for decorators.
class LeafFamily : public KernelFamily {
 public:
  int revision() const override { return 1; }
  std::string identity() const override { return std::string(name()) + " r" + std::to_string(revision()); }
  Space exhaustive_space(const Problem& problem) const override { return space(problem); }
  Config fast_config(const Problem& problem) const override { return default_config(problem); }
  Accuracy accuracy(const Problem&, const Config&) const override { return Accuracy::fp32; }
  std::string sum_order(const Problem&, const Config&) const override { return {}; }
  std::vector<LauncherParameter> launcher_parameters(const Config&) const override { return {}; }
  double predicted_microseconds(const Problem&, const Config&) const override { return 0; }
  std::int64_t resources(const Problem&, const Config&) const override { return 0; }
  std::string_view thread_pool() const override { return "own"; }
};

enum class Placement {
  plain,
  guarded,   // canary bands before and after; see Buffer::guards_intact
  page_end,  // the last byte lies before an unreadable page: a read past the end faults
  pool,      // huge pages where there are, touched once: the cold weights
};

/// Device memory; freed by the destructor. Host-visible on a CPU only.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual std::size_t bytes() const = 0;
  /// ok, or how many bytes before or after the buffer were overwritten. Always ok for other placements.
  virtual Status guards_intact() const { return {}; }
};

/// How one sample is taken: `launches` back-to-back calls over the rotation, one after another. `eager`: a GPU
/// enqueues each of them instead of a graph of all; a CPU has no graphs. `parallel_pass`: an elementwise pass over a few
/// MiB on the team of the kernels, as programs have one between their products. `processor_time`: on a CPU, without
/// what the threads waited for processors that other programs had. Threads of libraries that wait must sleep, not spin.
struct SampleRequest {
  const Kernel* kernel = nullptr;
  std::span<const Operands> rotation;  // call i uses rotation[(first + i) % size]
  std::size_t first = 0;
  int launches = 1;
  void* workspace = nullptr;
  bool eager = false;
  bool parallel_pass = false;  // on a CPU: before each call, and not counted
  bool processor_time = false;
};

/// What one launch costs in a batch of them: the whole device's energy in that time, idle power included.
struct EnergySample {
  double microseconds = 0;
  double joules = 0;
};

/// A candidate that its family can build for a problem.
struct CheckedCandidate {
  const KernelFamily* family = nullptr;
  Problem problem;
  Candidate candidate;
  Config config;  // the candidate's, complete: every key has a value
};

class OutputChecker;
struct RandomFill;
struct SiluAndMul;
struct DeviceTraits;

/// Purely virtual, as KernelFamily: a device derives from LeafDevice.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::span<const KernelFamily* const> families() const = 0;
  const KernelFamily* find_family(std::string_view name) const;
  /// Why there is no family of this name: its library is missing, or no backend has it (then it names those
  /// there are).
  Status missing_family(std::string_view name) const;

  /// KernelFamily::identity() with the version of the library behind the family; the bare name where there is
  /// no such family.
  std::string family_identity(std::string_view name) const;

  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) = 0;
  virtual Status copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual Status copy_out(void* host, const void* device, std::size_t bytes) = 0;
  /// Both on the device; they must not overlap. Through the host where a backend has no shorter way.
  virtual Status copy_within(void* to, const void* from, std::size_t bytes) = 0;
  virtual Status fill(void* device, int byte, std::size_t bytes) = 0;
  /// Waits for all work and reports a fault that happened since the last call.
  virtual Status synchronize() = 0;
  /// ok until a fault made the device unusable for the rest of the process; then that fault.
  virtual Status health() const = 0;
  /// What it does just now, for the record beside results: clocks in MHz, temperature, reasons to throttle.
  virtual std::map<std::string, double> observe() = 0;

  /// Bytes of a weight in `layout`, and the packing itself (both pointers on the device).
  virtual Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const = 0;
  virtual Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain,
                             void* packed) = 0;
  /// The inverse: the packed weight as plain [N, K].
  virtual Status unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                               void* plain) const = 0;

  /// Writes random elements (verify/random_fill.h) to device memory. `unsupported` if the device has no
  /// random fill: then the host fills and copies.
  virtual Status fill_random(void* to, const RandomFill& recipe) = 0;
  /// y = silu(gate) · up (backends/silu_and_mul.h), by the rules of Kernel::run(). Requires a checked call. A GPU's first call of a
  /// type compiles a kernel: `not_found` if that is to do while the stream is being captured.
  virtual Status silu_and_mul(const SiluAndMul& call, Stream stream) = 0;
  /// Compares outputs of this problem where they lie (backends/output_checker.h). `unsupported` where the
  /// device or the problem has no such way, `out_of_memory`: then the host compares copies of them.
  virtual Result<std::unique_ptr<OutputChecker>> output_checker(const Problem& problem) = 0;

  /// The candidates of `problem` that will be built next, in this order: a device that compiles at run time
  /// begins with them on other cores. Replaces what an earlier call named and has not begun; none: nothing
  /// more is begun. Returns at once; what fails, fails in build().
  virtual void compile_ahead(const Problem& problem, std::span<const Candidate> candidates) = 0;

  /// One sample: the time of one launch in microseconds, averaged over request.launches.
  virtual Result<double> sample(const SampleRequest& request) = 0;
  /// ok if the device counts the joules that it takes; else what was looked for, and why it cannot be read.
  virtual Status counts_energy() = 0;
  /// A batch: launches as in sample(), again and again for at least `seconds`, behind some that are not counted. Requires
  /// counts_energy().
  virtual Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) = 0;
  /// True where the time of one call alone means something: samples are then taken call by call, kernels in
  /// turns. A GPU times a graph of many launches instead.
  virtual bool times_single_calls() const = 0;
  /// From now on processor_waits() counts.
  virtual void begin_processor_waits() = 0;
  /// How long this process's threads waited for processors that others had, summed over threads, in microseconds, since
  /// begin_processor_waits(), the last call or gather_threads(). 0 where calls need no processor, or the system does not
  /// tell.
  virtual double processor_waits() = 0;
  /// Waits until the threads of kernels have processors at the same time. False if they did not within some milliseconds.
  virtual bool gather_threads() = 0;
  /// A kernel that reads the first `bytes` of Operands::w and nothing else: no kernel of a weight of that size can be
  /// much faster. Null if the device has none.
  virtual std::unique_ptr<Kernel> reading_kernel(std::size_t bytes) const = 0;
  /// The effective last-level cache in bytes, probed once a process; the cold pool is twice that.
  virtual std::size_t last_level_cache_bytes() = 0;
  virtual std::size_t free_memory_bytes() = 0;
  /// Called before a group of samples of this pool: parks the others and waits until they are idle.
  virtual void quiesce(std::string_view thread_pool) = 0;

  /// Called before a plan is made: a CPU looks which OpenMP runtime the program has loaded by now. info() and kernels,
  /// also those made before, go by it from then on. Safe from any thread.
  virtual void look_for_threads() = 0;

  /// True while `stream` is recorded into a graph; with a null handle: any stream of the calling thread, as
  /// far as the device can tell. What would disturb the recording (online tuning) then waits for a later
  /// call.
  virtual bool is_capturing(Stream stream) const = 0;

  /// A small problem that the fallback does: what a new process tries before anything else.
  virtual Problem probe_problem() const = 0;

  /// What a user without gemmtune gets; speed-ups are against it. `not_found` where there is no vendor
  /// kernel.
  virtual Result<Candidate> baseline(const Problem& problem) const = 0;
  /// What dispatch runs on a miss; for every accepted problem there is one. Never `reference`.
  virtual Result<Candidate> fallback(const Problem& problem) const = 0;

  /// The class of the candidate's sums: fp32 for a family that is not here.
  Accuracy accuracy(const Candidate& candidate, const Problem& problem) const;

  /// A kernelName of a table: the family and its config for this problem, or why it cannot run here.
  Result<CheckedCandidate> checked(std::string_view kernel_name, const Problem& problem) const;
  /// `not_found` without the family, `unsupported` with the reason if it does not take the problem, the
  /// revision or the config, `invalid` for a key that it does not have.
  Result<CheckedCandidate> checked(const Candidate& candidate, const Problem& problem) const;
  /// checked() where no kernel is built.
  Result<Candidate> resolve(std::string_view kernel_name, const Problem& problem) const;
  /// `checked` is of this device.
  Result<std::unique_ptr<Kernel>> build(const CheckedCandidate& checked) const;
  /// Errors as of checked().
  Result<std::unique_ptr<Kernel>> build(const Candidate& candidate, const Problem& problem) const;
};

/// A device that does by itself what it does, with errors for what not every device can. What has a quiet answer (health,
/// observe, compile_ahead, times_single_calls, quiesce, look_for_threads, is_capturing) each device says. Not for decorators.
class LeafDevice : public Device {
 public:
  Status copy_within(void* to, const void* from, std::size_t bytes) override;
  Status unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                       void* plain) const override;
  Status fill_random(void* to, const RandomFill& recipe) override;
  Status silu_and_mul(const SiluAndMul& call, Stream stream) override;
  Result<std::unique_ptr<OutputChecker>> output_checker(const Problem& problem) override;
  Status counts_energy() override;
  Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) override;
  std::unique_ptr<Kernel> reading_kernel(std::size_t bytes) const override;
  void begin_processor_waits() override {}
  double processor_waits() override { return 0; }
  bool gather_threads() override { return true; }
  Problem probe_problem() const override;
};

struct DeviceRequest {
  std::string text;     // "cpu", "cpu:0-15", "cuda:0"; empty: the backend's default
  int threads = 0;      // 0: all cores of the set
  std::string isa_cap;  // GEMMTUNE_CPU_ISA
  std::string module_folder;
  std::vector<std::string> onednn_folders;  // of libdnnl.so.3, in this order: Environment::onednn_folders
  std::string kernel_cache_folder;          // of kernels compiled at run time; empty: none is kept
  bool rebuild_kernels = false;             // GEMMTUNE_REBUILD: compiles although the cache has them
  std::string source_folder;                // sources of such kernels are left here; empty: nowhere
  int compile_threads = 0;                  // that compile ahead; 0: all cores but one
  bool pin_threads = false;                 // the tuner pins, service never does
  bool serves = false;                      // for dispatch: threads of vendor libraries do not spin for long
  Team team = Team::automatic;              // of a CPU
  int last_level_cache_mib = 0;             // of a CPU's last-level cache; 0: as reported and probed
  std::string powercap_folder;              // of a CPU's energy counters; empty: /sys/class/powercap
  std::string opponent;  // command of an evaluator whose kernels are the baseline; empty: the device's own
  bool library_baseline =
      false;  // the vendor's library is the baseline, also where an untuned call runs another
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Of its devices; callers use traits_of() (backends/traits.h).
  virtual const DeviceTraits& traits() const = 0;
  /// ok, or why there is no device of this backend here. Takes milliseconds: loads a driver at most.
  virtual Status available() const = 0;
  /// The reason at length, with the libraries that a device would use: may load them. Empty if available.
  virtual std::string why_absent() const { return available().message(); }
  virtual std::vector<DeviceInfo> devices(const DeviceRequest& request) const = 0;
  virtual Result<std::unique_ptr<Device>> open(const DeviceRequest& request) const = 0;
};

/// Every backend of this build, the preferred one first (GPU backends that are not available are listed too).
std::span<const Backend* const> all_backends();
/// By --backend ("auto": the first available) and --device.
Result<std::unique_ptr<Device>> open_device(std::string_view backend, const DeviceRequest& request);
/// The names of all devices of that backend that are equal to its first one in gfx and cu_num; a machine's cores
/// are one device, whose name is empty.
Result<std::vector<std::string>> equal_devices(std::string_view backend, const DeviceRequest& request);

}  // namespace gemmtune
