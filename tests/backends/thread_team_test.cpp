// Which threads run the kernels of a CPU: one team in a process, found among the runtimes that are loaded. Each case is a
// process of its own, which this program starts from itself: a runtime that is loaded stays.
#include "backends/cpu/threads/thread_team.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "support/processes.h"
#include "support/subprocess.h"
#include "support/temporary_folder.h"

namespace gemmtune::cpu {
namespace {

constexpr int threads = 3;  // of a team, on any machine
std::string failure;        // of this process's role; the first one

void expect(bool holds, const std::string& what) {
  if (!holds && failure.empty()) failure = what;
}

/// True if as many threads run within ten seconds. Those that a smaller team leaves over end by
/// themselves: libgomp does not wait for them.
bool settles_at(std::size_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (test::threads_of_this_process() != count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// How many threads run after those that are left over have had time to end.
std::size_t settled_threads() {
  std::size_t count = test::threads_of_this_process();
  for (int look = 0; look < 20; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    count = std::min(count, test::threads_of_this_process());
  }
  return count;
}

PoolOptions of_threads(int count) { return {count, {}, false}; }

/// A copy of the system's libgomp under other names: a runtime of its own, as a wheel brings one.
std::string copy_of_libgomp() {
  const std::string name = "libgomp.so.1";
  std::string bytes = test::read_text(std::getenv("LIBGOMP"));
  for (auto at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + 1))
    bytes.replace(at, name.size(), "libgomp-a1.1");
  const std::string path = std::string(std::getenv("SCRATCH")) + "/libgomp-a1.1";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

/// The runtime of a role: libgomp, or another one whose path the test gives.
std::string runtime_library() {
  const char* const other = std::getenv("RUNTIME");
  return other != nullptr && *other != '\0' ? other : "libgomp.so.1";
}

/// One that is not the libgomp which oneDNN brings.
std::string other_runtime_library() {
  const std::string library = runtime_library();
  return library == "libgomp.so.1" ? copy_of_libgomp() : library;
}

bool load(const std::string& path) { return dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr; }

/// Each part of calls with different numbers of parts ran once.
bool runs_all_parts(Executor& executor) {
  for (const std::int64_t parts : {0, 1, 2, 3, 4, 7, 64, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(parts));
    executor.run_parts(parts, [&](std::int64_t part) { runs[static_cast<std::size_t>(part)].fetch_add(1); });
    if (!std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run == 1; })) return false;
  }
  return true;
}

/// The threads that take parts which are long enough for each of them.
std::set<std::thread::id> threads_of(Executor& executor) {
  std::vector<std::thread::id> ids(64);
  executor.run_parts(64, [&](std::int64_t part) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ids[static_cast<std::size_t>(part)] = std::this_thread::get_id();
  });
  return {ids.begin(), ids.end()};
}

void in_region_of(const OpenmpRuntime& runtime, const std::function<void()>& body) {
  runtime.functions.parallel([](void* data) { (*static_cast<const std::function<void()>*>(data))(); },
                             const_cast<std::function<void()>*>(&body), 2, 0);
}

// ---- The roles of a process.

void no_runtime() {
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() == nullptr, "a runtime was found where none is loaded");
  expect(team.threads() == threads && runs_all_parts(team), "our own pool does not run");
  // The thread sanitizer has one of its own.
  expect(test::threads_of_this_process() >= threads, "our own pool is not started");
}

void loaded_later() {
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() == nullptr, "a runtime was found where none is loaded");
  expect(load(runtime_library()) && team.openmp() == nullptr, "a runtime is found without a look");
  expect(team.look().ok() && team.openmp() != nullptr, "the runtime that is loaded by now was not found");
  expect(runs_all_parts(team), "the runtime's team does not run");
}

void one_team() {
  expect(load(runtime_library()), "no runtime");
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() != nullptr, "the loaded runtime was not found");
  const gemmtune_openmp_functions& openmp = team.openmp()->functions;
  openmp.set_threads(threads);
  expect(team.threads() == threads, "the team has another size than the runtime gives");
  expect(runs_all_parts(team), "parts were left out or ran twice");
  expect(threads_of(team).size() == threads, "the team does not run on all its threads");
  expect(test::threads_of_this_process() == threads, "there are other threads than the team's");
  openmp.set_threads(2);
  expect(team.threads() == 2 && threads_of(team).size() == 2, "a new size does not count at the next call");
  openmp.set_threads(64);
  expect(team.threads() == threads, "a call uses more threads than the device has");
  openmp.set_threads(1);
  expect(team.threads() == 1 && threads_of(team).size() == 1, "a team of one is more");
}

void nested() {
  expect(load(runtime_library()), "no runtime");
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() != nullptr, "the loaded runtime was not found");
  std::atomic<bool> alone{true};
  in_region_of(*team.openmp(), [&] {
    const auto used = threads_of(team);
    if (team.threads() != 1 || used != std::set{std::this_thread::get_id()}) alone = false;
  });
  expect(alone, "a call from inside a region uses other threads");
  std::atomic<int> inner{0};
  team.run_parts(4, [&](std::int64_t) { team.run_parts(3, [&](std::int64_t) { inner.fetch_add(1); }); });
  expect(inner == 12, "a call from inside a part lost parts");
}

void two_runtimes() {
  const std::string copy = copy_of_libgomp();
  expect(load(copy) && load(GEMMTUNE_OPENMP_USER), "cannot load the runtimes");
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() != nullptr, "the loaded runtimes were not found");
  expect(team.openmp()->path != copy,
         "the runtime that is loaded first is chosen, not the one that a library needs");
  void* const handle = dlopen(copy.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  expect(handle != nullptr, "the copy is not loaded");
  OpenmpRuntime other;
  other.functions.parallel =
      reinterpret_cast<decltype(other.functions.parallel)>(dlsym(handle, "GOMP_parallel"));
  std::atomic<bool> alone{true};
  in_region_of(other, [&] {
    if (threads_of(team) != std::set{std::this_thread::get_id()}) alone = false;
  });
  expect(alone, "a call from inside the other runtime's region uses other threads");
  expect(runs_all_parts(team), "parts were left out or ran twice");
}

void call_from_eight_threads(ThreadTeam& team) {
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      for (int call = 0; call < 100; ++call) {
        std::vector<std::int64_t> own(8, 0);
        team.run_parts(8, [&](std::int64_t part) { own[static_cast<std::size_t>(part)] += part + 1; });
        sum.fetch_add(std::accumulate(own.begin(), own.end(), std::int64_t{0}));
        if (call % 10 == 0) (void)team.look();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  expect(sum == 8 * 100 * 36, "parts were lost");
}

void eight_callers() {
  expect(load(runtime_library()), "no runtime");
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() != nullptr, "the loaded runtime was not found");
  call_from_eight_threads(team);
}

/// A child made by fork() ends by itself and says ok.
void expect_child(const std::string& what, const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) continue;
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
}

void fork_after_calls() {
  expect(load(runtime_library()), "no runtime");
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() != nullptr, "the loaded runtime was not found");
  team.openmp()->functions.set_threads(threads);
  expect(runs_all_parts(team), "parts were left out or ran twice");
  expect_child("the child of a caller hangs",
               [&] { return team.threads() == threads && runs_all_parts(team); });
  expect_child("another thread of the child hangs", [&] {
    bool right = false;
    std::thread([&] { right = runs_all_parts(team); }).join();
    return right && runs_all_parts(team);
  });
  expect_child("a child with a team of its own hangs", [&] {
    ThreadTeam own(Team::automatic, of_threads(threads));
    return own.look().ok() && runs_all_parts(own);
  });
  expect(runs_all_parts(team), "the parent does not go on");
}

void fork_after_the_programs_regions() {
  expect(load(runtime_library()), "no runtime");
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.openmp() != nullptr, "the loaded runtime was not found");
  in_region_of(*team.openmp(), [] {});
  expect_child("the child of a program with a team hangs", [&] { return runs_all_parts(team); });
}

void first_call_in_a_child() {
  expect(load(runtime_library()), "no runtime");
  void* const handle = dlopen(runtime_library().c_str(), RTLD_LAZY);
  OpenmpRuntime runtime;
  runtime.functions.parallel =
      reinterpret_cast<decltype(runtime.functions.parallel)>(dlsym(handle, "GOMP_parallel"));
  in_region_of(runtime, [] {});
  expect_child("a child that is the first to call hangs", [&] {
    ThreadTeam team(Team::automatic, of_threads(threads));
    return team.look().ok() && team.openmp() != nullptr && runs_all_parts(team);
  });
}

std::unique_ptr<Device> open_cpu(Team team) {
  DeviceRequest request;
  request.team = team;
  request.serves = true;
  auto device = open_device("cpu", request);
  expect(device.ok(), device.ok() ? "" : device.message());
  return device.ok() ? std::move(*device) : nullptr;
}

/// A product on the family's default kernel, of small whole numbers: exact in every type.
class Product {
 public:
  Product(Device& device, const char* family, DataType type = DataType::f32, std::int64_t m = 64,
          WeightLayout layout = WeightLayout::plain)
      : x_(static_cast<std::size_t>(m * k)), w_(n * k), y_(static_cast<std::size_t>(m * n)) {
    problem_.m = m;
    problem_.n = n;
    problem_.k = k;
    problem_.x_type = problem_.w_type = type;
    problem_.y_type = DataType::f32;
    problem_.weight_layout = layout;
    const KernelFamily* const found = device.find_family(family);
    if (found == nullptr || !found->accepts(problem_).ok()) return;
    auto kernel = device.build({family, found->revision(), found->default_config(problem_)}, problem_);
    expect(kernel.ok(), kernel.ok() ? "" : kernel.message());
    if (!kernel.ok()) return;
    kernel_ = std::move(*kernel);
    workspace_ = std::move(device.allocate(kernel_->workspace_bytes() + 64, Placement::plain)).value();
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] = static_cast<float>(i % 5) - 2;
    stored_x_ = stored(x_, type);
    stored_w_ = stored(w_, type);
    if (layout == WeightLayout::plain) return;
    packed_ = std::move(device.allocate(*device.packed_bytes(problem_, layout), Placement::plain)).value();
    expect(device.pack_weight(problem_, layout, stored_w_.data(), packed_->data()).ok(),
           "the weight is not packed");
  }
  bool ready() const { return kernel_ != nullptr; }
  bool is_right() {
    std::fill(y_.begin(), y_.end(), -77.0F);
    Operands operands;
    operands.x = stored_x_.data();
    operands.w = packed_ ? packed_->data() : static_cast<const void*>(stored_w_.data());
    operands.y = y_.data();
    operands.ldx = k;
    operands.ldy = n;
    if (!kernel_->run(operands, workspace_->data(), {}).ok()) return false;
    for (std::int64_t row = 0; row < problem_.m; row += 7) {
      for (std::int64_t column = 0; column < n; column += 3) {
        float sum = 0;
        for (std::int64_t i = 0; i < k; ++i)
          sum += x_[static_cast<std::size_t>(row * k + i)] * w_[static_cast<std::size_t>(column * k + i)];
        if (y_[static_cast<std::size_t>(row * n + column)] != sum) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::int64_t n = 512;
  static constexpr std::int64_t k = 512;

  static std::vector<std::byte> stored(const std::vector<float>& values, DataType type) {
    std::vector<std::byte> bytes;
    for (const float value : values) {
      const auto word = std::bit_cast<std::array<std::byte, 4>>(value);
      // The upper half of a float is its bf16 (on little-endian machines).
      bytes.insert(bytes.end(), word.begin() + (type == DataType::bf16 ? 2 : 0), word.end());
    }
    return bytes;
  }

  Problem problem_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<Buffer> workspace_;
  std::unique_ptr<Buffer> packed_;
  std::vector<float> x_;
  std::vector<float> w_;
  std::vector<float> y_;
  std::vector<std::byte> stored_x_;
  std::vector<std::byte> stored_w_;
};

/// The libgomp that comes with oneDNN is none of the program's.
void brought_by_onednn() {
  const auto device = open_cpu(Team::automatic);
  if (!device) return;
  expect(device->info().team == "own", "the team is " + device->info().team);
  const auto asked = open_cpu(Team::openmp);
  expect(asked && asked->info().team == "openmp",
         "Team::openmp does not take a runtime that oneDNN has brought");
}

void kernels_follow() {
  const auto device = open_cpu(Team::automatic);
  if (!device) return;
  Product product(*device, "tiled");
  expect(product.ready() && product.is_right() && device->info().team == "own",
         "the first plan does not run");
  expect(load(other_runtime_library()), "no other runtime");
  device->look_for_threads();
  expect(device->info().team == "openmp", "the runtime that is loaded by now was not found");
  expect(product.is_right(), "a kernel that was made before does not run on the runtime");
}

/// The program's runtime is another libgomp than that of oneDNN's module.
void onednn_in_the_same_team() {
  expect(load(other_runtime_library()), "no other runtime");
  const auto device = open_cpu(Team::automatic);
  if (!device) return;
  expect(device->info().team == "openmp", "the program's runtime was not found");
  if (device->info().cu_num < 2) return;
  const auto runtime = programs_openmp();
  runtime->functions.set_threads(device->info().cu_num);
  Product own(*device, "tiled");
  expect(own.is_right(), "a kernel of ours is wrong");
  const std::size_t before = settled_threads();
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    for (const WeightLayout layout : {WeightLayout::plain, WeightLayout::onednn}) {
      for (const std::int64_t m : {1, 16, 64, 200}) {
        const std::string name =
            fmt::format("a kernel of oneDNN ({}, {}, M = {}) ", to_string(type), to_string(layout), m);
        Product onednn(*device, "onednn", type, m, layout);
        if (!onednn.ready()) continue;
        expect(onednn.is_right(), name + "is wrong");
        expect(settles_at(before), name + "has started threads of its own");
        std::atomic<int> right{0};
        in_region_of(*runtime, [&] {
          if (runtime->functions.thread_number() == 0 && onednn.is_right()) right.fetch_add(1);
        });
        expect(right == 1, name + "is wrong inside a parallel region");
        runtime->functions.set_threads(1);
        expect(onednn.is_right(), name + "is wrong if the runtime gives one thread");
        runtime->functions.set_threads(device->info().cu_num);
      }
    }
  }
}

/// A program that has given its runtime one thread (torch.set_num_threads) gets no other from a kernel of oneDNN.
void onednn_alone() {
  expect(load(other_runtime_library()), "no other runtime");
  const auto device = open_cpu(Team::automatic);
  if (!device) return;
  programs_openmp()->functions.set_threads(1);
  const std::size_t before = settled_threads();
  for (const WeightLayout layout : {WeightLayout::plain, WeightLayout::onednn}) {
    Product onednn(*device, "onednn", DataType::f32, 64, layout);
    if (onednn.ready()) expect(onednn.is_right(), "a kernel of oneDNN is wrong");
  }
  expect(settles_at(before), "oneDNN has started threads");
}

/// A server pins each thread of its team to a core of its own, the calling thread too.
void pinned_team() {
  const CoreList all = thread_affinity();
  if (all.size() < 2) return;
  expect(load(runtime_library()), "no runtime");
  ThreadTeam team(Team::automatic, of_threads(2));
  expect(team.look().ok() && team.openmp() != nullptr, "the loaded runtime was not found");
  team.openmp()->functions.set_threads(2);
  team.pin_openmp_team({all[0], all[1]});
  set_thread_affinity({all[0]});
  const CoreList two{all[0], all[1]};
  expect(team_affinity(Team::automatic) == two, "the cores of the team's threads are not found");
  expect(team_affinity(Team::own) == CoreList{all[0]}, "our own pool leaves the cores of the calling thread");
  const auto device = open_cpu(Team::automatic);
  expect(device && device->info().cu_num == 2, "a device on the team has not as many threads");
  team.openmp()->functions.set_threads(1);
  expect(team_affinity(Team::automatic) == CoreList{all[0]}, "a team of one has other cores");
}

// ---- PyTorch, or a double of it (torch_double.cpp).

template <typename Pointer>
Pointer function_of(const std::string& library, const char* name) {
  return reinterpret_cast<Pointer>(dlsym(dlopen(library.c_str(), RTLD_LAZY), name));
}

void set_torch_threads(const std::string& library, int count) {
  function_of<void (*)(int)>(library, "gemmtune_test_set_torch_threads")(count);
}

void torch_pool() {
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.running() == Team::own, "a PyTorch was found where none is loaded");
  set_torch_threads(GEMMTUNE_TORCH_DOUBLE, threads);
  expect(team.look().ok() && team.running() == Team::callback,
         "the pool of a PyTorch without OpenMP was not found");
  expect(team.threads() == threads && runs_all_parts(team), "parts were left out or ran twice");
  expect(threads_of(team).size() == threads, "PyTorch's parallel_for does not run the parts");
  set_torch_threads(GEMMTUNE_TORCH_DOUBLE, 2);
  expect(team.threads() == 2 && threads_of(team).size() == 2, "a new size does not count at the next call");
  set_torch_threads(GEMMTUNE_TORCH_DOUBLE, 64);
  expect(team.threads() == threads && threads_of(team).size() == threads,
         "a call uses more threads than the device has");
  for (const Team asked : {Team::own, Team::callback}) {
    ThreadTeam other(asked, of_threads(threads));
    expect(other.look().ok() && other.running() == asked,
           "PyTorch's pool is taken in place of what is asked for");
  }
}

void torch_nested() {
  set_torch_threads(GEMMTUNE_TORCH_DOUBLE, threads);
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.running() == Team::callback, "PyTorch's pool was not found");
  struct Region {
    ThreadTeam& team;
    std::atomic<int> alone{0};
  };
  Region region{team};
  function_of<decltype(TorchThreads::parallel_for)>(GEMMTUNE_TORCH_DOUBLE, "torch_parallel_for")(
      0, threads, 1,
      [](std::int64_t, std::int64_t, void* data) {
        Region& own = *static_cast<Region*>(data);
        const auto used = threads_of(own.team);
        if (own.team.threads() == 1 && used == std::set{std::this_thread::get_id()}) own.alone.fetch_add(1);
      },
      &region);
  expect(region.alone == threads, "a call from inside a region uses other threads");
}

void torch_eight_callers() {
  set_torch_threads(GEMMTUNE_TORCH_DOUBLE, threads);
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.running() == Team::callback, "PyTorch's pool was not found");
  call_from_eight_threads(team);
}

/// PyTorch's workers stay with the parent. Ours stay between calls, the double's do not.
void torch_fork() {
  set_torch_threads(GEMMTUNE_TORCH_DOUBLE, threads);
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && runs_all_parts(team), "parts were left out or ran twice");
  std::atomic<bool> ends{false};
  std::thread other([&] { ends.wait(false); });
  expect_child("a child runs on PyTorch's pool, which has no threads there", [&] {
    bool right = false;
    std::thread([&] { right = runs_all_parts(team); }).join();
    return right && team.look().ok() && runs_all_parts(team) && test::threads_of_this_process() == threads;
  });
  ends = true;
  ends.notify_all();
  other.join();
  expect(runs_all_parts(team) && team.running() == Team::callback, "the parent does not go on");
}

void torch_device() {
  set_torch_threads(GEMMTUNE_TORCH_DOUBLE, threads);
  const auto device = open_cpu(Team::automatic);
  if (!device) return;
  expect(device->info().team == "callback", "the team is " + device->info().team);
  Product product(*device, "tiled");
  expect(product.ready() && product.is_right(), "a kernel of ours is wrong");
}

/// A thread that has run nothing of PyTorch's has OpenMP's own number of threads, three here.
void torch_on_openmp() {
  set_torch_threads(GEMMTUNE_TORCH_OPENMP_DOUBLE, 2);
  ThreadTeam team(Team::automatic, of_threads(threads));
  expect(team.look().ok() && team.running() == Team::openmp, "a PyTorch on OpenMP does not run on it");
  std::thread([&] {
    expect(team.threads() == 2, "a new thread does not have as many threads as torch.set_num_threads() says");
    expect(threads_of(team).size() == 2, "a call of a new thread has another number of threads");
  }).join();
}

const std::map<std::string, void (*)()>& roles() {
  static const std::map<std::string, void (*)()> all{
      {"no-runtime", no_runtime},
      {"loaded-later", loaded_later},
      {"one-team", one_team},
      {"nested", nested},
      {"two-runtimes", two_runtimes},
      {"eight-callers", eight_callers},
      {"fork-after-calls", fork_after_calls},
      {"fork-after-the-programs-regions", fork_after_the_programs_regions},
      {"first-call-in-a-child", first_call_in_a_child},
      {"brought-by-onednn", brought_by_onednn},
      {"kernels-follow", kernels_follow},
      {"onednn-in-the-same-team", onednn_in_the_same_team},
      {"onednn-alone", onednn_alone},
      {"pinned-team", pinned_team},
      {"torch-pool", torch_pool},
      {"torch-nested", torch_nested},
      {"torch-eight-callers", torch_eight_callers},
      {"torch-fork", torch_fork},
      {"torch-on-openmp", torch_on_openmp},
      {"torch-device", torch_device},
  };
  return all;
}

int play(const std::string& role) {
  roles().at(role)();
  std::fprintf(stderr, "%s", failure.c_str());
  return failure.empty() ? 0 : 1;
}

// ---- The tests.

/// Starts this program in a role, without variables that say how many threads there are.
void expect_role(const std::string& role, const std::string& runtime = {}) {
  const test::TemporaryFolder scratch;
  test::SubprocessOptions options;
  const auto libgomp = any_openmp();
  options.environment = {{"SCRATCH", scratch.path()},
                         {"LIBGOMP", libgomp.ok() ? (*libgomp)->path : ""},
                         {"RUNTIME", runtime},
                         {"OMP_NUM_THREADS", "3"}};
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto result = test::run_program({program, role}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err << " (signal " << result.signal << ")";
}

class ThreadTeams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto any = any_openmp(); !any.ok()) GTEST_SKIP() << any.message();
  }
};

TEST(OwnTeam, RunsWhereNoRuntimeIsLoaded) { expect_role("no-runtime"); }
TEST_F(ThreadTeams, ARuntimeThatIsLoadedLaterIsFoundByTheNextLook) { expect_role("loaded-later"); }
TEST_F(ThreadTeams, ACallIsOneRegionOfAsManyThreadsAsTheRuntimeGives) { expect_role("one-team"); }
TEST_F(ThreadTeams, ACallInsideARegionRunsAlone) { expect_role("nested"); }
TEST_F(ThreadTeams, OfTwoRuntimesTheOneThatALibraryNeedsIsChosen) { expect_role("two-runtimes"); }
TEST_F(ThreadTeams, EightThreadsCallAtOnce) { expect_role("eight-callers"); }
TEST_F(ThreadTeams, TheCoresOfAPinnedTeamAreThoseOfTheDevice) { expect_role("pinned-team"); }
TEST_F(ThreadTeams, AChildOfACallerRunsOnOurPool) { expect_role("fork-after-calls"); }
TEST_F(ThreadTeams, AChildOfAProgramWithATeamRunsOnOurPool) {
  expect_role("fork-after-the-programs-regions");
}
TEST_F(ThreadTeams, AChildThatIsTheFirstToCallRunsOnItsPool) { expect_role("first-call-in-a-child"); }
TEST_F(ThreadTeams, TheRuntimeThatOnednnBringsIsNotThePrograms) { expect_role("brought-by-onednn"); }
TEST_F(ThreadTeams, KernelsMadeBeforeARuntimeIsLoadedRunOnIt) { expect_role("kernels-follow"); }
TEST_F(ThreadTeams, KernelsOfOnednnRunInTheProgramsTeam) { expect_role("onednn-in-the-same-team"); }

TEST_F(ThreadTeams, KernelsOfOnednnUseOneThreadIfTheRuntimeGivesOne) { expect_role("onednn-alone"); }

TEST(TorchTeam, APyTorchWithoutOpenmpRunsTheParts) { expect_role("torch-pool"); }
TEST(TorchTeam, ACallInsideARegionRunsAlone) { expect_role("torch-nested"); }
TEST(TorchTeam, EightThreadsCallAtOnce) { expect_role("torch-eight-callers"); }
TEST(TorchTeam, ADeviceRunsThere) { expect_role("torch-device"); }
#ifndef __SANITIZE_THREAD__
TEST(TorchTeam, AChildRunsOnOurPool) { expect_role("torch-fork"); }
TEST_F(ThreadTeams, ANewThreadHasAsManyThreadsAsTorchSays) { expect_role("torch-on-openmp"); }
#endif

/// LLVM's runtime, of which libiomp5 is Intel's build; GEMMTUNE_LIBOMP names the file of another one.
std::string llvm_runtime() {
  if (const char* const named = std::getenv("GEMMTUNE_LIBOMP"); named != nullptr && *named != '\0')
    return named;
  for (const std::string name : {"libomp.so.5", "libiomp5.so"}) {
    if (void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
        handle != nullptr) {
      Dl_info found{};
      if (dladdr(dlsym(handle, "omp_get_max_threads"), &found) != 0) return found.dli_fname;
    }
  }
  return {};
}

class LlvmRuntime : public ::testing::TestWithParam<std::string> {};

/// What holds of libgomp holds of the other runtime too, beside the libgomp of oneDNN's module.
TEST_P(LlvmRuntime, RunsKernelsAsLibgompDoes) {
  if (const auto any = any_openmp(); !any.ok()) GTEST_SKIP() << any.message();
  static const std::string runtime = llvm_runtime();
  if (runtime.empty()) GTEST_SKIP() << "libomp.so.5 is not installed (libomp5-14)";
  expect_role(GetParam(), runtime);
}

INSTANTIATE_TEST_SUITE_P(Roles, LlvmRuntime,
                         ::testing::Values("loaded-later", "one-team", "nested", "eight-callers",
                                           "fork-after-calls", "fork-after-the-programs-regions",
                                           "first-call-in-a-child", "kernels-follow",
                                           "onednn-in-the-same-team", "onednn-alone"),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(OwnTeam, TakesNoRuntimeThatIsLoaded) {
  (void)any_openmp();
  ThreadTeam team(Team::own, of_threads(2));
  ASSERT_TRUE(team.look().ok());
  EXPECT_EQ(team.openmp(), nullptr);
  EXPECT_TRUE(runs_all_parts(team));
}

}  // namespace
}  // namespace gemmtune::cpu

int main(int count, char** words) {
  if (count > 1 && words[1][0] != '-') return gemmtune::cpu::play(words[1]);
  ::testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
