// What libgomp's spin costs an untuned call: dispatch's bound beside libgomp's own, in interleaved rounds.
//
//   openmp_spin [--rounds N] [--calls N] [--load N] [--table FILE] [--dtype bf16|f32]
//
// Each member is a process, because libgomp reads its settings once. They take turns, one at a time, and sleep
// between. --load N: N further processes that only compute. --table: a third member, which finds its kernels
// there (`gemmtune tune ... --libtype skinny`). --dtype f32: on CPUs where oneDNN has no bf16 (`gemmtune explain`).
#include <fcntl.h>
#include <gemmtune/gemmtune.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::int64_t m, n, k;
};
constexpr std::array<Shape, 12> shapes{{{1, 2048, 2048},
                                        {1, 512, 2048},
                                        {1, 8192, 2048},
                                        {1, 2048, 8192},
                                        {16, 2048, 2048},
                                        {16, 512, 2048},
                                        {16, 8192, 2048},
                                        {16, 2048, 8192},
                                        {128, 2048, 2048},
                                        {128, 512, 2048},
                                        {128, 8192, 2048},
                                        {128, 2048, 8192}}};
constexpr std::size_t weights = 4;  // a model calls another weight each time
constexpr auto pause = std::chrono::milliseconds(10);

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// ---- a member ----------------------------------------------------------------------------------------------

struct Bf16 {
  using Element = std::uint16_t;
  static constexpr Element one = 0x3f80;
  static auto view(const Element* data) { return gemmtune::bf16(data); }
  static auto view(Element* data) { return gemmtune::bf16(data); }
};
struct F32 {
  using Element = float;
  static constexpr Element one = 1;
  static auto view(const Element* data) { return gemmtune::f32(data); }
  static auto view(Element* data) { return gemmtune::f32(data); }
};

template <typename Type>
class Layer {
 public:
  explicit Layer(const Shape& shape)
      : shape_(shape), x_(count(shape.m, shape.k), Type::one), y_(count(shape.m, shape.n)) {
    for (auto& w : w_) w.assign(count(shape.n, shape.k), Type::one);
  }
  /// Microseconds of one call; negative: it failed.
  double call(std::size_t number) {
    const auto begin = Clock::now();
    const auto& w = w_[number % weights];
    const auto status = gemmtune::gemm(Type::view(x_.data()), Type::view(w.data()), Type::view(y_.data()),
                                       shape_.m, shape_.n, shape_.k);
    if (!status) {
      std::fprintf(stderr, "%s\n", status.message().c_str());
      return -1;
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

 private:
  static std::size_t count(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows * columns);
  }

  Shape shape_;
  std::vector<typename Type::Element> x_;
  std::vector<typename Type::Element> y_;
  std::array<std::vector<typename Type::Element>, weights> w_;
};

/// Lines "shape calls" on stdin; answers with the median of the calls.
template <typename Type>
int serve() {
  std::size_t shape = 0;
  std::size_t calls = 0;
  std::unique_ptr<Layer<Type>> layer;
  std::size_t made = shapes.size();
  while (std::scanf("%zu %zu", &shape, &calls) == 2 && shape < shapes.size()) {
    if (shape != made) layer = std::make_unique<Layer<Type>>(shapes[shape]);
    made = shape;
    if (layer->call(0) < 0) return 1;  // plans
    std::vector<double> times;
    for (std::size_t i = 0; i < calls; ++i) times.push_back(layer->call(i));
    std::printf("%.3f\n", median(times));
    std::fflush(stdout);
  }
  return 0;
}

// ---- the comparison ----------------------------------------------------------------------------------------

class Member {
 public:
  Member(const char* program, std::string name, const char* spin, const char* table, const char* dtype)
      : name_(std::move(name)) {
    int to[2];
    int from[2];
    // Closed in the members that start later: one ends when its commands do.
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to[0], STDIN_FILENO);
      ::dup2(from[1], STDOUT_FILENO);
      for (const int end : {to[0], to[1], from[0], from[1]}) ::close(end);
      spin == nullptr ? ::unsetenv("GOMP_SPINCOUNT") : ::setenv("GOMP_SPINCOUNT", spin, 1);
      ::unsetenv("OMP_WAIT_POLICY");
      ::setenv("GEMMTUNE_CONFIG_A16W16", table == nullptr ? "/dev/null" : table, 1);
      ::execl(program, program, "--member", dtype, nullptr);
      std::_Exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    commands_ = ::fdopen(to[1], "w");
    answers_ = ::fdopen(from[0], "r");
  }
  ~Member() {
    std::fclose(commands_);
    std::fclose(answers_);
    ::waitpid(process_, nullptr, 0);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  const std::string& name() const { return name_; }
  double microseconds(std::size_t shape, std::size_t calls) {
    std::fprintf(commands_, "%zu %zu\n", shape, calls);
    std::fflush(commands_);
    double answer = 0;
    if (std::fscanf(answers_, "%lf", &answer) != 1) {
      std::fprintf(stderr, "member %s has ended\n", name_.c_str());
      std::exit(1);
    }
    std::this_thread::sleep_for(pause);
    return answer;
  }

 private:
  std::string name_;
  pid_t process_ = -1;
  std::FILE* commands_ = nullptr;
  std::FILE* answers_ = nullptr;
};

/// Processes that only compute.
class Load {
 public:
  explicit Load(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t process = ::fork();
      if (process == 0) {
        for (std::uint64_t turn = 0;; ++turn) __asm__ volatile("" : : "r"(turn));
      }
      processes_.push_back(process);
    }
  }
  ~Load() {
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
    for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::vector<pid_t> processes_;
};

struct Ratio {
  double middle, low, high;  // median and quartiles
};

Ratio ratio_of(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  std::sort(ratios.begin(), ratios.end());
  return {ratios[ratios.size() / 2], ratios[ratios.size() / 4], ratios[ratios.size() * 3 / 4]};
}

int compare(const char* program, std::size_t rounds, std::size_t calls, int load, const char* table,
            const char* dtype) {
  std::vector<std::unique_ptr<Member>> members;
  members.push_back(std::make_unique<Member>(program, "libgomp's own", "300000", nullptr, dtype));
  members.push_back(std::make_unique<Member>(program, "bounded", nullptr, nullptr, dtype));
  if (table != nullptr) members.push_back(std::make_unique<Member>(program, "row", nullptr, table, dtype));
  const Load loaded(load);
  std::printf("%zu rounds of %zu calls, %d processes of load; microseconds, medians\n", rounds, calls, load);
  std::printf("%-16s", "shape");
  for (const auto& member : members) std::printf("  %14s", member->name().c_str());
  std::printf("  bounded / own (quartiles)%s\n", table == nullptr ? "" : "  bounded / row (quartiles)");
  double logs = 0;
  for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
    std::vector<std::vector<double>> times(members.size());
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        const std::size_t turn = (round + i) % members.size();
        times[turn].push_back(members[turn]->microseconds(shape, calls));
      }
    }
    const auto& [m, n, k] = shapes[shape];
    std::printf("%-16s", (std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k)).c_str());
    for (const auto& of_member : times) std::printf("  %14.1f", median(of_member));
    const Ratio own = ratio_of(times[1], times[0]);
    logs += std::log(own.middle);
    std::printf("  %6.3f (%.3f to %.3f)  ", own.middle, own.low, own.high);
    if (table != nullptr) {
      const Ratio row = ratio_of(times[1], times[2]);
      std::printf("  %6.3f (%.3f to %.3f)", row.middle, row.low, row.high);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("geometric mean of bounded / own: %.3f\n", std::exp(logs / static_cast<double>(shapes.size())));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  std::size_t rounds = 15;
  std::size_t calls = 20;
  int load = 0;
  const char* table = nullptr;
  const char* dtype = "bf16";
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (i + 1 == count) {
      std::fprintf(stderr, "%s: expected --rounds N, --calls N, --load N, --table FILE or --dtype bf16|f32\n",
                   words[i]);
      return 2;
    }
    const char* value = words[++i];
    if (word == "--member" || word == "--dtype") dtype = value;
    if (word == "--member") return std::string_view(dtype) == "f32" ? serve<F32>() : serve<Bf16>();
    if (word == "--rounds") rounds = std::strtoull(value, nullptr, 10);
    if (word == "--calls") calls = std::strtoull(value, nullptr, 10);
    if (word == "--load") load = std::atoi(value);
    if (word == "--table") table = value;
  }
  if (rounds == 0 || calls == 0) return 2;
  std::array<char, 4096> self{};
  if (::readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) return 1;
  return compare(self.data(), rounds, calls, load, table, dtype);
}
