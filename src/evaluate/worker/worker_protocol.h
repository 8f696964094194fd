// The protocol between the tuner and its worker: requests and replies as JSON texts, and a page of memory on
// which the worker notes its step. The page costs the worker one store per step, and outlives it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "evaluate/evaluator.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "problem/problem.h"

namespace gemmtune {

/// Descriptors that a worker finds open.
inline constexpr int worker_socket = 3;
inline constexpr int worker_page = 4;

/// The gemmtune that this code is part of.
std::string gemmtune_version_text();

/// The first request: opens the device and runs a kernel that is known to be good.
struct OpenRequest {
  std::string backend;
  DeviceRequest device;
  InProcessOptions evaluation;                    // without its functions
  std::string version = gemmtune_version_text();  // the worker refuses another one
};

/// What the next requests will screen, as Evaluator::announce.
struct AnnounceRequest {
  Problem problem;
  std::vector<Candidate> candidates;
};

/// One candidate, so that the loss of a worker costs one candidate.
struct ScreenRequest {
  Problem problem;
  Candidate candidate;
  int samples = 0;
};

struct FinalsRequest {
  Problem problem;
  std::vector<Candidate> candidates;
  int rounds = 0;
  RoundsKind kind = {};
};

struct NeighbourRequest {
  Problem problem;
  Candidate candidate;
  std::int64_t m = 0;
};

using WorkerRequest =
    std::variant<OpenRequest, AnnounceRequest, ScreenRequest, FinalsRequest, NeighbourRequest>;

/// Requests are numbered from 1 in each worker; a reply carries the number of its request.
struct NumberedRequest {
  std::uint32_t number = 0;
  WorkerRequest content;
};

struct WorkerReply {
  std::uint32_t number = 0;
  Status status;                 // of the whole request; then the rest is empty
  double candidate_seconds = 0;  // spent in Step::candidate
  double waited_seconds = 0;     // InProcessOptions::on_waited
  double processor_seconds = 0;  // of the worker's threads, in this request
  FinalsResult result;           // outcomes alone, but for finals; empty for open and announce
};

std::string print_request(const NumberedRequest& request);
Result<NumberedRequest> parse_request(std::string_view text);
std::string print_reply(const WorkerReply& reply);
Result<WorkerReply> parse_reply(std::string_view text);

/// The step of a worker.
struct WorkerState {
  std::uint32_t request = 0;  // number of the request, modulo 2^16; 0: none yet
  std::uint32_t steps = 0;    // how many were begun, modulo 2^28
  Step step = Step::idle;
  std::optional<std::size_t> candidate;  // of the request's; empty where none is concerned
  friend bool operator==(const WorkerState&, const WorkerState&) = default;
};

/// The page, mapped by both sides.
class WorkerPage {
 public:
  /// A new page on a descriptor of its own, closed on exec.
  static Result<WorkerPage> make();
  /// The page behind a descriptor that stays the caller's.
  static Result<WorkerPage> attach(int descriptor);
  WorkerPage(WorkerPage&& other) noexcept;
  WorkerPage& operator=(WorkerPage&&) = delete;
  WorkerPage(const WorkerPage&) = delete;
  WorkerPage& operator=(const WorkerPage&) = delete;
  ~WorkerPage();

  int descriptor() const { return descriptor_; }
  void write(const WorkerState& state);
  WorkerState read() const;

 private:
  WorkerPage(std::atomic<std::uint64_t>* word, int descriptor) : word_(word), descriptor_(descriptor) {}

  std::atomic<std::uint64_t>* word_;
  int descriptor_;  // -1: not ours
};

}  // namespace gemmtune
