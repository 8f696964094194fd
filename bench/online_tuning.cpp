// What online tuning costs the service beside which it runs, and how soon it pays.
//
//   online_tuning PROGRAM [--shapes 1x2048x2048,16x2048x2048,128x2048x2048] [--shares 0.1,0.25] [--seconds 8] [--rounds 2]
//                 [--limit 120] [--tune-budget 20] [--only cost|time]
//
// PROGRAM: gemmtune, for the workers and for `tune`. Operands are bf16; a service calls another of four
// weights each time, on all cores.
//
// Cost: one shape is called over and over, back to back and with pauses as long as its calls, while other
// problems are tuned: p50 and p99 of the calls without online tuning and with each share, in interleaved
// rounds.
//
// Time: a problem is called with pauses until its row is there; then its plan and the row of `gemmtune tune`
// take turns.
#include <gemmtune/tuning.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
  std::string text() const { return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k); }
};

struct Options {
  std::string program;
  std::vector<Shape> shapes{{1, 2048, 2048}, {16, 2048, 2048}, {128, 2048, 2048}};
  std::vector<double> shares{0.1, 0.25};
  double seconds = 8;
  int rounds = 2;
  double limit = 120;
  std::string tune_budget = "20";
  std::string only;
};

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "online_tuning: %s\n", text.c_str());
  std::exit(1);
}

void check(gemmtune_status status) {
  if (status != GEMMTUNE_OK) fail(gemmtune_last_error());
}

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// Of all its threads, and of children that have ended.
double cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

gemmtune_problem problem_of(const Shape& shape) {
  gemmtune_problem problem{};
  problem.size = sizeof problem;
  problem.x_type = GEMMTUNE_BF16;
  problem.m = shape.m;
  problem.n = shape.n;
  problem.k = shape.k;
  return problem;
}

/// A folder that goes with the program.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gemmtune_online_bench_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Service {
 public:
  explicit Service(const std::string& tuned_file = {}) {
    const gemmtune_tuned_files files{GEMMTUNE_A16W16, tuned_file.c_str()};
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = folder_.path().c_str();
    options.backend = "cpu";
    options.tuned_files = &files;
    options.tuned_file_count = tuned_file.empty() ? 0 : 1;
    check(gemmtune_context_create(&options, &context_));
  }
  ~Service() { gemmtune_context_destroy(context_); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void enable(const Options& options, double share) const {
    gemmtune_online_options online{};
    online.size = sizeof online;
    online.share = share;
    online.worker_program = options.program.c_str();
    check(gemmtune_enable_online_tuning(context_, &online));
  }
  std::shared_ptr<gemmtune_plan> plan(const Shape& shape) const {
    const gemmtune_problem problem = problem_of(shape);
    gemmtune_plan* plan = nullptr;
    check(gemmtune_plan_create(context_, &problem, &plan));
    return {plan, gemmtune_plan_release};
  }
  static gemmtune_plan_info info(const std::shared_ptr<gemmtune_plan>& plan) {
    gemmtune_plan_info info{};
    info.size = sizeof info;
    check(gemmtune_plan_get_info(plan.get(), &info));
    return info;
  }

 private:
  Folder folder_;
  gemmtune_context* context_ = nullptr;
};

/// The operands of a layer, of which each call has another weight.
class Layer {
 public:
  explicit Layer(const Shape& shape)
      : x_(count(shape.m, shape.k)), y_(count(shape.m, shape.n)), workspace_(std::size_t{1} << 20) {
    std::uint32_t state = 1;
    const auto fill = [&](std::vector<std::uint16_t>& values) {
      for (std::uint16_t& value : values) {
        state = state * 1664525 + 1013904223;
        value = static_cast<std::uint16_t>(0x3f00 | (state >> 24 & 0x7f) | (state >> 16 & 0x8000));
      }
    };
    fill(x_);
    for (auto& w : w_) {
      w.resize(count(shape.n, shape.k));
      fill(w);
    }
  }
  /// Microseconds.
  double call(const std::shared_ptr<gemmtune_plan>& plan, std::size_t workspace_bytes) {
    if (workspace_.size() < workspace_bytes + alignment) workspace_.resize(workspace_bytes + alignment);
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    operands.x = aligned(x_.data());
    operands.w = aligned(w_[number_++ % w_.size()].data());
    operands.y = aligned(y_.data());
    const auto begin = Clock::now();
    check(gemmtune_plan_run(plan.get(), &operands, aligned(workspace_.data()), nullptr));
    return 1e6 * seconds_since(begin);
  }

 private:
  static constexpr std::size_t alignment = 64;
  static std::size_t count(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows * columns) + alignment;
  }
  template <typename Element>
  static Element* aligned(Element* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return data + (alignment - address % alignment) % alignment / sizeof(Element);
  }

  std::vector<std::uint16_t> x_;
  std::vector<std::uint16_t> y_;
  std::array<std::vector<std::uint16_t>, 4> w_;
  std::vector<std::uint8_t> workspace_;
  std::size_t number_ = 0;
};

void pause_for(double microseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(microseconds));
}

// ---- what it costs -----------------------------------------------------------------------------------------

struct Cost {
  std::vector<double> times;
  double seconds = 0;
  double worker_seconds = 0;  // of processor time
};

/// Calls `served` while problems like `tuned` are tuned, each M another one. share 0: none is.
void serve(const Options& options, const Shape& served, double share, bool pauses, Cost& cost) {
  const double children = cpu_seconds(RUSAGE_CHILDREN);
  const auto begin = Clock::now();
  {
    const Service service;
    const auto plan = service.plan(served);
    const std::size_t workspace = Service::info(plan).workspace_bytes;
    Layer layer(served);
    for (int i = 0; i < 50; ++i) layer.call(plan, workspace);
    if (share > 0) {
      service.enable(options, share);
      for (std::int64_t m = 1; m <= 64; ++m) (void)service.plan({m, served.n + 64, served.k});
    }
    for (const auto window = Clock::now(); seconds_since(window) < options.seconds;) {
      const double time = layer.call(plan, workspace);
      cost.times.push_back(time);
      if (pauses) pause_for(time);
    }
  }
  cost.seconds += seconds_since(begin);
  cost.worker_seconds += cpu_seconds(RUSAGE_CHILDREN) - children;
}

void print_cost(const Options& options) {
  const auto cores = static_cast<double>(std::thread::hardware_concurrency());
  std::printf(
      "| calls of %s | online tuning | p50 us | p99 us | p50 x | p99 x | worker's share of the cores |\n",
      options.shapes[1 % options.shapes.size()].text().c_str());
  std::printf("| --- | --- | --- | --- | --- | --- | --- |\n");
  for (const bool pauses : {false, true}) {
    std::vector<double> shares{0};
    shares.insert(shares.end(), options.shares.begin(), options.shares.end());
    std::vector<Cost> costs(shares.size());
    for (int round = 0; round < options.rounds; ++round) {
      for (std::size_t i = 0; i < shares.size(); ++i)
        serve(options, options.shapes[1 % options.shapes.size()], shares[i], pauses, costs[i]);
    }
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const auto of = [&](double share) { return quantile(costs[i].times, share); };
      std::printf("| %s | %s | %.1f | %.1f | %.3f | %.3f | %.3f |\n", pauses ? "with pauses" : "back to back",
                  i == 0 ? "off" : ("share " + std::to_string(shares[i]).substr(0, 4)).c_str(), of(0.5),
                  of(0.99), of(0.5) / quantile(costs[0].times, 0.5),
                  of(0.99) / quantile(costs[0].times, 0.99),
                  costs[i].worker_seconds / costs[i].seconds / cores);
      std::fflush(stdout);
    }
  }
}

// ---- how soon it pays --------------------------------------------------------------------------------------

std::string tune_offline(const Options& options, const Folder& folder) {
  const std::string file = folder.path() + "/tuned.csv";
  for (const Shape& shape : options.shapes) {
    const std::string command = "'" + options.program + "' tune -q --backend cpu --budget " +
                                options.tune_budget + " -m " + std::to_string(shape.m) + " -n " +
                                std::to_string(shape.n) + " -k " + std::to_string(shape.k) + " -o '" + file +
                                "' >/dev/null";
    if (std::system(command.c_str()) != 0) fail("this failed: " + command);
  }
  return file;
}

/// Medians of two plans' calls, in turns with pauses.
std::array<double, 2> in_turns(Layer& layer, const std::array<std::shared_ptr<gemmtune_plan>, 2>& plans) {
  std::array<std::vector<double>, 2> times;
  std::array<std::size_t, 2> workspaces{};
  for (std::size_t i = 0; i < 2; ++i) workspaces[i] = Service::info(plans[i]).workspace_bytes;
  for (int round = 0; round < 400; ++round) {
    for (std::size_t i = 0; i < 2; ++i) {
      (void)layer.call(plans[i], workspaces[i]);
      times[i].push_back(layer.call(plans[i], workspaces[i]));
    }
  }
  return {quantile(times[0], 0.5), quantile(times[1], 0.5)};
}

void print_time(const Options& options) {
  const Folder folder;
  const Service tuned(tune_offline(options, folder));
  std::printf("| problem | share | fallback us | row after s | its kernel | us | tuned's | us | x |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const double share : options.shares) {
    for (const Shape& shape : options.shapes) {
      const Service service;
      service.enable(options, share);
      Layer layer(shape);
      const auto begin = Clock::now();
      auto plan = service.plan(shape);
      const auto fallback = plan;
      std::size_t workspace = Service::info(plan).workspace_bytes;
      while (Service::info(plan).match == GEMMTUNE_MATCH_UNTUNED && seconds_since(begin) < options.limit) {
        pause_for(layer.call(plan, workspace));
        plan = service.plan(shape);
        workspace = Service::info(plan).workspace_bytes;
      }
      const double row_after = seconds_since(begin);
      const auto tuned_plan = tuned.plan(shape);
      const auto beside = in_turns(layer, {plan, tuned_plan});
      const auto before = in_turns(layer, {fallback, tuned_plan});
      std::printf("| %s | %.2f | %.1f | %.1f | %s | %.1f | %s | %.1f | %.3f |\n", shape.text().c_str(), share,
                  before[0], row_after, Service::info(plan).kernel_name, beside[0],
                  Service::info(tuned_plan).kernel_name, beside[1], beside[0] / beside[1]);
      std::fflush(stdout);
    }
  }
}

// ---- options -----------------------------------------------------------------------------------------------

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    all.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

Options read_options(int count, char** given) {
  if (count < 2) fail("expected the gemmtune program");
  Options options;
  options.program = std::filesystem::absolute(given[1]);
  for (int i = 2; i < count; i += 2) {
    const std::string name = given[i];
    if (i + 1 == count) fail(name + ": expected a value");
    const std::string value = given[i + 1];
    if (name == "--shapes") {
      options.shapes.clear();
      for (const std::string& word : words(value)) {
        Shape shape;
        long long m = 0, n = 0, k = 0;
        if (std::sscanf(word.c_str(), "%lldx%lldx%lld", &m, &n, &k) != 3) fail(word + ": expected MxNxK");
        shape = {m, n, k};
        options.shapes.push_back(shape);
      }
    } else if (name == "--shares") {
      options.shares.clear();
      for (const std::string& word : words(value)) options.shares.push_back(std::atof(word.c_str()));
    } else if (name == "--seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (name == "--rounds") {
      options.rounds = std::atoi(value.c_str());
    } else if (name == "--limit") {
      options.limit = std::atof(value.c_str());
    } else if (name == "--tune-budget") {
      options.tune_budget = value;
    } else if (name == "--only") {
      options.only = value;
    } else {
      fail(name + ": no such option");
    }
  }
  return options;
}

}  // namespace

int main(int count, char** given) {
  const Options options = read_options(count, given);
  if (options.only != "time") print_cost(options);
  if (options.only != "cost") print_time(options);
  return 0;
}
