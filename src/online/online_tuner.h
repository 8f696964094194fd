// Online tuning of one context: problems that dispatch missed, one after another, in a thread beside it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "online/online_job.h"

namespace gemmtune {

/// What the tuner needs of the context that it serves. Called by the tuner's thread.
struct OnlineHost {
  /// A device of its own, equal to the context's in gfx and cu_num. It is closed when nothing waits.
  std::function<Result<std::unique_ptr<Device>>()> open_device;
  /// How a worker for that device is started; an error says why there is none. Empty: this process measures.
  std::function<Result<OnlineWorkerStart>()> worker_start = {};
  double share = 0;                      // of the machine's processor time that the worker has
  std::function<Status()> rows_changed;  // the online file has a new row
  std::function<void(LogLevel level, const std::string& line)> say;
};

struct OnlineTunerOptions {
  OnlineSettings settings;
  bool synchronous = false;  // callers wait for their problem, at most three budgets
};

/// Each problem is tuned once: by one thread here, by one process of all that share the file. What another
/// process is tuning is looked for again until its row, or its end, is there.
///
/// There is no thread and no worker until a problem is missed, and none again once all are done. In a child
/// made by fork() nothing is tuned. Where no worker can be started, that is said once and this process
/// measures. Workers of a machine's services take turns, so that all of them together stay within one share.
class OnlineTuner {
 public:
  OnlineTuner(OnlineHost host, OnlineTunerOptions options);
  /// As stop().
  ~OnlineTuner();
  OnlineTuner(const OnlineTuner&) = delete;
  OnlineTuner& operator=(const OnlineTuner&) = delete;

  /// Any thread. True if changed rows were reported to the host before it returns. Returns at once
  /// unless synchronous. A problem that was asked before, and problems behind the 65,536th, are passed over.
  bool missed(OnlineProblem problem);
  /// The sample in hand is finished, what was not decided is given up; answers when no thread is left.
  void stop();
  /// Waits until nothing is left to do (or the seconds are over: false).
  bool wait_until_idle(double seconds);

 private:
  struct State;
  /// What the thread works with.
  struct Workplace {
    std::unique_ptr<Device> device;
    std::unique_ptr<OnlineWorker> worker;  // of the device
  };
  /// The thread.
  void run();
  /// `current`: the key of the problem in hand.
  void work(std::string& current);
  bool start_thread();
  OnlineResult attempt(const OnlineProblem& problem, Workplace& workplace, bool& busy);
  Status open(Workplace& workplace);
  /// Leaves the workplace without a worker where there can be none.
  void start_worker(Workplace& workplace);
  /// Workers of other services wait meanwhile.
  bool takes_turns() const;
  void conclude(const std::string& key, const OnlineResult& result);
  bool forked() const;

  OnlineHost host_;
  OnlineTunerOptions options_;
  pid_t process_;
  std::unique_ptr<State> state_;
};

}  // namespace gemmtune
