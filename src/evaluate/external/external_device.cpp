#include "evaluate/external/external_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "backends/guard_bands.h"
#include "backends/library_baseline.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "evaluate/external/evaluator_reply.h"
#include "evaluate/external/opponent_device.h"
#include "evaluate/fields_json.h"

namespace gemmtune {
namespace {

constexpr std::size_t guard_bytes = 4096;
constexpr std::size_t alignment = 256;                     // of addresses
constexpr std::size_t chunk_bytes = std::size_t{1} << 26;  // that are moved at a time

Json message(std::string_view what) {
  Json json = Json::object();
  json["do"] = std::string(what);
  return json;
}

Json json_of(const Problem& problem) {
  Json json = Json::object();
  json["text"] = print(problem);
  json["operation"] = std::string(to_string(form_of(problem)));
  json["m"] = problem.m;
  json["n"] = problem.n;
  json["k"] = problem.k;
  json["batch"] = problem.batch;
  json["x_type"] = std::string(to_string(problem.x_type));
  json["w_type"] = std::string(to_string(problem.w_type));
  json["y_type"] = std::string(to_string(problem.y_type));
  json["bias"] = problem.bias;
  return json;
}

}  // namespace

Result<std::unique_ptr<Device>> open_device_of(const std::string& backend, const DeviceRequest& request,
                                               double seconds) {
  if (backend == external_backend) return ExternalDevice::open(request.text, seconds);
  auto device = open_device(backend, request);
  if (device.ok() && request.library_baseline) return with_library_baseline(std::move(*device));
  if (!device.ok() || request.opponent.empty()) return device;
  return with_opponent(std::move(*device), request.opponent, seconds);
}

/// Addresses for memory that this process cannot reach, and the evaluator's buffers behind them.
class ExternalDevice::Memory {
 public:
  explicit Memory(EvaluatorProcess& process) : process_(process) {}

  /// A new buffer at an address of its own, which is reserved and unmapped.
  Result<std::byte*> allocate(std::size_t bytes) {
    const std::size_t room = round_up(std::max<std::size_t>(bytes, 1), alignment);
    void* const address = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return Status::out_of_memory("no addresses for a buffer of {} bytes", bytes);
    Json allocate = message("allocate");
    allocate["buffer"] = ++buffers_;
    allocate["bytes"] = room;
    if (const auto reply = process_.ask(std::move(allocate)); !reply.ok()) {
      munmap(address, room);
      return reply.status();
    }
    auto* const begin = static_cast<std::byte*>(address);
    blocks_[begin] = {buffers_, room};
    allocated_ += room;
    return begin;
  }
  void free(std::byte* begin) {
    const auto found = blocks_.find(begin);
    Json free = message("free");
    free["buffer"] = found->second.number;
    (void)process_.ask(std::move(free));
    munmap(begin, found->second.bytes);
    allocated_ -= found->second.bytes;
    blocks_.erase(found);
  }
  /// [buffer, offset]; an error for an address that is in no buffer.
  Result<Json> place_of(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    auto found = blocks_.upper_bound(const_cast<std::byte*>(at));
    if (found != blocks_.begin()) {
      --found;
      if (at < found->first + found->second.bytes) {
        Json place = Json::array();
        place.push_back(found->second.number);
        place.push_back(at - found->first);
        return place;
      }
    }
    return Status::invalid("an address that is none of the evaluator's buffers");
  }
  std::size_t allocated() const { return allocated_; }

 private:
  struct Block {
    std::size_t number = 0;
    std::size_t bytes = 0;
  };
  EvaluatorProcess& process_;
  std::map<std::byte*, Block> blocks_;
  std::size_t buffers_ = 0;
  std::size_t allocated_ = 0;
};

class ExternalDevice::RemoteBuffer final : public Buffer {
 public:
  RemoteBuffer(ExternalDevice& device, std::byte* block, std::size_t bytes, std::size_t guard)
      : device_(device), block_(block), bytes_(bytes), guard_(guard) {}
  ~RemoteBuffer() override {
    device_.memory_->free(block_);
    device_.rotation_.clear();  // another buffer may get its address
  }
  void* data() const override { return block_ + guard_; }
  std::size_t bytes() const override { return bytes_; }

  Status write_guards() {
    const std::vector<std::byte> band = guard_band(guard_);
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_in(block_, band.data(), guard_));
    return device_.copy_in(block_ + guard_ + bytes_, band.data(), guard_);
  }
  Status guards_intact() const override {
    std::vector<std::byte> before(guard_);
    std::vector<std::byte> after(guard_);
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_out(before.data(), block_, guard_));
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_out(after.data(), block_ + guard_ + bytes_, guard_));
    return check_guard_bands(before, after, bytes_);
  }

 private:
  ExternalDevice& device_;
  std::byte* block_;
  std::size_t bytes_;
  std::size_t guard_;
};

class ExternalDevice::RemoteKernel final : public Kernel {
 public:
  RemoteKernel(EvaluatorProcess& process, const Memory& memory, std::size_t number)
      : process_(process), memory_(memory), number_(number) {}
  ~RemoteKernel() override {
    Json release = message("release");
    release["kernel"] = number_;
    (void)process_.ask(std::move(release));
  }

  std::size_t number() const { return number_; }
  std::size_t workspace_bytes() const override { return 0; }  // the evaluator has its own
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands& operands, void*, Stream) const override {
    Json run = message("run");
    run["kernel"] = number_;
    GEMMTUNE_TRY(run["operands"], operands_json(operands, memory_));
    return process_.ask(std::move(run)).status();
  }

  static Result<Json> operands_json(const Operands& operands, const Memory& memory) {
    Json json = Json::object();
    const std::pair<const char*, const void*> pointers[] = {{"x", operands.x},
                                                            {"w", operands.w},
                                                            {"bias", operands.bias},
                                                            {"x_scale", operands.x_scale},
                                                            {"w_scale", operands.w_scale},
                                                            {"x_global_scale", operands.x_global_scale},
                                                            {"w_global_scale", operands.w_global_scale},
                                                            {"w_zero_points", operands.w_zero_points},
                                                            {"y", operands.y}};
    for (const auto& [name, pointer] : pointers) {
      if (pointer == nullptr) continue;
      auto place = memory.place_of(pointer);
      if (!place.ok()) return Status::invalid("{}: {}", name, place.message());
      json[name] = std::move(*place);
    }
    json["ldx"] = operands.ldx;
    json["ldy"] = operands.ldy;
    json["x_scale_step"] = operands.x_scale_step;
    json["w_scale_step"] = operands.w_scale_step;
    json["x_batch_stride"] = operands.x_batch_stride;
    json["y_batch_stride"] = operands.y_batch_stride;
    return json;
  }

 private:
  EvaluatorProcess& process_;
  const Memory& memory_;
  std::size_t number_;
};

class ExternalDevice::Family final : public LeafFamily {
 public:
  Family(EvaluatorProcess& process, const Memory& memory, const EvaluatorHello& hello)
      : process_(process), memory_(memory), hello_(hello) {}

  std::string_view name() const override { return hello_.family; }
  int revision() const override { return hello_.revision; }
  std::string identity() const override { return hello_.identity; }
  int tie_rank() const override { return 0; }
  Accuracy accuracy(const Problem&, const Config&) const override { return hello_.accuracy; }

  Status accepts(const Problem& problem) const override {
    if (is_packed(problem)) return refusal::refuse(refusal::layout, "plain weights only");
    if (problem.e8m0_scales) return refusal::refuse(refusal::types, "float32 scales only");
    GEMMTUNE_RETURN_IF_ERROR(refusal::check_order(problem));
    Status why =
        refusal::refuse(refusal::operation, "{} is not among the evaluator's", to_string(form_of(problem)));
    for (const EvaluatorProblems& one : hello_.problems) {
      if (one.operation != form_of(problem)) continue;
      why = refusal_of(one, problem);
      if (why.ok()) break;
    }
    return why;
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }

  Space space(const Problem& problem) const override {
    Space space;
    for (const EvaluatorParameter& one : hello_.parameters) {
      Parameter parameter = one.parameter;
      parameter.absent = hello_.defaults.empty() ? parameter.values.front()
                                                 : std::string(hello_.defaults.front().word(parameter.key));
      space.add(std::move(parameter));
    }
    for (const EvaluatorRule& rule : hello_.rules) {
      Constraint constraint{
          rule.name,
          [this, &rule, problem](const Config& config) { return refusal_of(rule, problem, config); },
          rule.rule};
      for (const EvaluatorParameter& one : hello_.parameters) {
        const auto& names = rule.refuses.names();
        if (std::find(names.begin(), names.end(), one.name) != names.end())
          constraint.reads.push_back(one.parameter.key);
      }
      constraint.on = rule.on;
      space.add(std::move(constraint));
    }
    return space;
  }

  Config default_config(const Problem& problem) const override {
    const Space space = this->space(problem);
    for (const Config& config : hello_.defaults)
      if (space.build_refusal(config).empty()) return config;
    const std::vector<Config> first = space.enumerate(1);
    if (!first.empty()) return first.front();
    return hello_.defaults.empty() ? Config() : hello_.defaults.front();
  }

  std::vector<LauncherParameter> launcher_parameters(const Config& config) const override {
    std::vector<LauncherParameter> parameters;
    for (const EvaluatorParameter& one : hello_.parameters) {
      const Json* value = one.value_of(config.word(one.parameter.key));
      if (value == nullptr) continue;
      LauncherParameter& parameter = parameters.emplace_back(LauncherParameter{one.name, {}});
      if (value->is_string()) {
        parameter.value = value->get<std::string>();
      } else {
        parameter.value = value->get<std::int64_t>();
      }
    }
    return parameters;
  }

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    Json build = message("build");
    build["kernel"] = ++kernels_;
    build["problem"] = json_of(problem);
    build["config"] = hello_.settings(config);
    if (const auto reply = process_.ask(std::move(build)); !reply.ok()) return reply.status();
    return std::make_unique<RemoteKernel>(process_, memory_, kernels_);
  }

 private:
  static Status refusal_of(const EvaluatorProblems& problems, const Problem& problem) {
    const auto allowed = [](const std::vector<DataType>& types, DataType type) {
      return types.empty() || std::find(types.begin(), types.end(), type) != types.end();
    };
    if (!allowed(problems.x_types, problem.x_type) || !allowed(problems.w_types, problem.w_type) ||
        !allowed(problems.y_types, problem.y_type))
      return refusal::refuse(refusal::types, "{} x {} to {} is not among the evaluator's",
                             to_string(problem.x_type), to_string(problem.w_type), to_string(problem.y_type));
    if (problem.bias && !problems.bias) return refusal::refuse(refusal::operation, "no bias");
    if (!problems.condition) return {};
    const auto value =
        problems.condition->evaluate([&](std::string_view name) { return dimension(problem, name); });
    if (value.value_or(0) != 0) return {};
    return refusal::refuse(refusal::size, "the evaluator requires {}", problems.condition->text());
  }
  std::string refusal_of(const EvaluatorRule& rule, const Problem& problem, const Config& config) const {
    const auto value = rule.refuses.evaluate([&](std::string_view name) -> std::optional<std::int64_t> {
      for (const EvaluatorParameter& one : hello_.parameters)
        if (one.name == name) return one.number_of(config.word(one.parameter.key));
      return dimension(problem, name);
    });
    if (!value) return rule.refuses.text() + " has no value";
    return *value == 0 ? "" : rule.reason;
  }

  EvaluatorProcess& process_;
  const Memory& memory_;
  const EvaluatorHello& hello_;
  mutable std::size_t kernels_ = 0;
};

ExternalDevice::ExternalDevice(std::unique_ptr<EvaluatorProcess> process, EvaluatorHello hello)
    : process_(std::move(process)),
      hello_(std::move(hello)),
      memory_(std::make_unique<Memory>(*process_)),
      family_(std::make_unique<Family>(*process_, *memory_, hello_)) {
  families_.push_back(family_.get());
}

ExternalDevice::~ExternalDevice() = default;

Result<std::unique_ptr<Device>> ExternalDevice::open(const std::string& command, double seconds) {
  GEMMTUNE_TRY(auto process, EvaluatorProcess::start(command));
  Json ask = message("hello");
  ask["protocol"] = evaluator_protocol;
  GEMMTUNE_TRY(const auto reply, process->ask(std::move(ask), seconds));
  auto hello = parse_hello(reply);
  if (!hello.ok())
    return Status(hello.code(), fmt::format("evaluator '{}': hello: {}", command, hello.message()));
  hello->device.backend = external_backend;
  hello->device.name = command;
  return std::unique_ptr<Device>(new ExternalDevice(std::move(process), std::move(*hello)));
}

Result<std::unique_ptr<Buffer>> ExternalDevice::allocate(std::size_t bytes, Placement placement) {
  const std::size_t guard = placement == Placement::guarded ? guard_bytes : 0;
  if (bytes > hello_.memory_bytes)
    return Status::out_of_memory("cannot allocate {} bytes of {}'s memory", bytes, hello_.family);
  GEMMTUNE_TRY(const auto block, memory_->allocate(bytes + 2 * guard));
  auto buffer = std::make_unique<RemoteBuffer>(*this, block, bytes, guard);
  if (guard > 0) GEMMTUNE_RETURN_IF_ERROR(buffer->write_guards());
  return buffer;
}

// `direction`: "write" takes `from`, "read" fills `to`.
Status ExternalDevice::move_bytes(std::string_view direction, const void* device, std::size_t bytes,
                                  const void* from, void* to) {
  for (std::size_t done = 0; done < bytes; done += chunk_bytes) {
    const std::size_t chunk = std::min(chunk_bytes, bytes - done);
    std::byte* const shared = process_->memory().at_least(chunk);
    if (shared == nullptr) return Status::out_of_memory("no shared memory of {} bytes", chunk);
    GEMMTUNE_TRY(const auto place, memory_->place_of(static_cast<const std::byte*>(device) + done));
    if (from != nullptr) std::memcpy(shared, static_cast<const std::byte*>(from) + done, chunk);
    Json move = message(direction);
    move["at"] = place;
    move["bytes"] = chunk;
    if (const auto reply = process_->ask(std::move(move)); !reply.ok()) return reply.status();
    if (to != nullptr) std::memcpy(static_cast<std::byte*>(to) + done, shared, chunk);
  }
  return {};
}

Status ExternalDevice::copy_in(void* device, const void* host, std::size_t bytes) {
  return move_bytes("write", device, bytes, host, nullptr);
}

Status ExternalDevice::copy_out(void* host, const void* device, std::size_t bytes) {
  return move_bytes("read", device, bytes, nullptr, host);
}

Status ExternalDevice::copy_within(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  Json copy = message("copy");
  for (const auto& [name, pointer] : {std::pair<const char*, const void*>{"from", from}, {"to", to}}) {
    GEMMTUNE_TRY(copy[name], memory_->place_of(pointer));
  }
  copy["bytes"] = bytes;
  return process_->ask(std::move(copy)).status();
}

Status ExternalDevice::fill(void* device, int byte, std::size_t bytes) {
  if (bytes == 0) return {};
  GEMMTUNE_TRY(const auto place, memory_->place_of(device));
  Json fill = message("fill");
  fill["at"] = place;
  fill["bytes"] = bytes;
  fill["value"] = byte & 0xff;
  return process_->ask(std::move(fill)).status();
}

Result<std::size_t> ExternalDevice::packed_bytes(const Problem& problem, WeightLayout layout) const {
  if (layout != WeightLayout::plain)
    return Status::unsupported("weight layout {}: an evaluator has plain weights", to_string(layout));
  return static_cast<std::size_t>(weight_bytes(problem));
}

Status ExternalDevice::pack_weight(const Problem& problem, WeightLayout layout, const void* plain,
                                   void* packed) {
  const auto bytes = packed_bytes(problem, layout);
  return bytes.ok() ? copy_within(packed, plain, *bytes) : bytes.status();
}

void ExternalDevice::compile_ahead(const Problem& problem, std::span<const Candidate> candidates) {
  if (!hello_.compiles_ahead) return;
  Json compile = message("compile");
  compile["problem"] = json_of(problem);
  compile["configs"] = Json::array();
  for (const Candidate& candidate : candidates)
    compile["configs"].push_back(hello_.settings(candidate.config));
  (void)process_->ask(std::move(compile));  // a hint: what fails, fails in build()
}

Result<Json> ExternalDevice::ask_launches(std::string_view what, const SampleRequest& request,
                                          double seconds) {
  if (rotation_.empty() ||
      !std::equal(rotation_.begin(), rotation_.end(), request.rotation.begin(), request.rotation.end())) {
    Json rotation = message("rotation");
    rotation["rotation"] = rotations_ + 1;
    rotation["operands"] = Json::array();
    for (const Operands& operands : request.rotation) {
      GEMMTUNE_TRY(auto json, RemoteKernel::operands_json(operands, *memory_));
      rotation["operands"].push_back(std::move(json));
    }
    if (const auto reply = process_->ask(std::move(rotation)); !reply.ok()) return reply.status();
    rotation_.assign(request.rotation.begin(), request.rotation.end());
    ++rotations_;
  }
  Json sample = message(what);
  if (seconds > 0) sample["seconds"] = seconds;
  sample["kernel"] = static_cast<const RemoteKernel*>(request.kernel)->number();
  sample["rotation"] = rotations_;
  sample["first"] = request.rotation.empty() ? 0 : request.first % request.rotation.size();
  sample["launches"] = request.launches;
  return process_->ask(std::move(sample));
}

Result<double> ExternalDevice::sample(const SampleRequest& request) {
  const auto reply = ask_launches("sample", request, 0);
  return reply.ok() ? number_of_reply(*reply, "sample", "microseconds", min_sample_microseconds,
                                      max_sample_microseconds)
                    : reply.status();
}

Status ExternalDevice::counts_energy() {
  if (hello_.counts_energy) return {};
  return Status::unsupported("the evaluator of {} counts no joules: its hello has no \"energy\": true",
                             hello_.family);
}

Result<EnergySample> ExternalDevice::sample_energy(const SampleRequest& request, double seconds) {
  GEMMTUNE_RETURN_IF_ERROR(counts_energy());
  GEMMTUNE_TRY(const auto reply, ask_launches("energy", request, seconds));
  GEMMTUNE_TRY(const auto microseconds, number_of_reply(reply, "energy", "microseconds",
                                                        min_sample_microseconds, max_sample_microseconds));
  GEMMTUNE_TRY(const auto joules,
               number_of_reply(reply, "energy", "joules", min_sample_joules, max_sample_joules));
  return EnergySample{microseconds, joules};
}

std::size_t ExternalDevice::free_memory_bytes() {
  return hello_.memory_bytes - std::min(hello_.memory_bytes, memory_->allocated());
}

Problem ExternalDevice::probe_problem() const {
  const EvaluatorProblems& first = hello_.problems.front();
  Problem problem = default_problem(first.operation);
  problem.m = hello_.probe_m;
  problem.n = hello_.probe_n;
  problem.k = hello_.probe_k;
  if (!first.x_types.empty()) {
    set_types(problem, first.x_types.front());
    problem.y_type = default_y_type(problem.operation, problem.x_type);
  }
  if (!first.w_types.empty()) problem.w_type = first.w_types.front();
  if (!first.y_types.empty()) problem.y_type = first.y_types.front();
  return problem;
}

Result<Candidate> ExternalDevice::fallback(const Problem& problem) const {
  const Status accepted = family_->accepts(problem);
  if (!accepted.ok()) return Status::not_found("{}: {}", hello_.family, accepted.message());
  return Candidate{hello_.family, hello_.revision, family_->default_config(problem)};
}

}  // namespace gemmtune
