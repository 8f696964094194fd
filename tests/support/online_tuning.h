// Online tuning on a simulated device: the fixture of its tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "formats/aiter/tuned_csv.h"
#include "online/online_tuner.h"
#include "support/fake_device.h"

namespace gemmtune::testing {

inline constexpr double patience = 60;  // seconds; nothing here takes one

inline Problem small(std::int64_t m = 4) {
  Problem problem;
  problem.m = m;
  problem.n = 32;
  problem.k = 48;
  return problem;
}

inline void zeros(const Problem& problem, const Operands& operands, void*) {
  for (std::int64_t row = 0; row < problem.m; ++row) {
    std::memset(static_cast<std::uint16_t*>(operands.y) + row * operands.ldy, 0,
                static_cast<std::size_t>(problem.n) * 2);
  }
}

/// Tuners of one online file, and what became known of them.
class OnlineTuning : public ::testing::Test {
 protected:
  OnlineTuning() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gemmtune_online_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    file_ = folder_ + "/config/online_tuning.csv";
    add("vendor", 0, 100);
    add("fast", 1, 50);
  }
  ~OnlineTuning() override { std::filesystem::remove_all(folder_); }

  /// `run` empty: right. Built kernels are counted by family.
  void add(const std::string& name, int tie_rank, double microseconds, FakeRun run = {}) {
    FakeFamilyOptions family;
    family.name = name;
    family.tie_rank = tie_rank;
    family.run = std::move(run);
    family.cost = [microseconds](const Problem&, Random&, double) { return microseconds; };
    add(std::move(family));
  }
  void add(FakeFamilyOptions family) {
    family.on_build = [this, name = family.name, before = family.on_build] {
      if (before) before();
      const std::lock_guard lock(mutex_);
      ++builds_[name];
    };
    families_.push_back(std::move(family));
  }

  std::unique_ptr<OnlineTuner> tuner() {
    OnlineHost host;
    host.worker_start = worker_start_;
    host.open_device = [this]() -> Result<std::unique_ptr<Device>> {
      auto device = make_device_ ? make_device_() : std::make_unique<FakeDevice>();
      for (const FakeFamilyOptions& family : families_) device->add(family);
      device->set_baseline(Candidate{"vendor", 1, {}});
      device->free_bytes = free_bytes_;
      device_.store(device.get());
      ++opened_;
      return std::unique_ptr<Device>(std::move(device));
    };
    host.rows_changed = [this] {
      ++changes_;
      return Status();
    };
    host.say = [this](LogLevel level, const std::string& line) {
      const std::lock_guard lock(mutex_);
      (level == LogLevel::warning ? warnings_ : lines_).push_back(line);
    };
    return std::make_unique<OnlineTuner>(std::move(host), options_);
  }
  OnlineProblem asked(const Problem& problem = small()) const {
    return {problem, file_, "vendor_r1", proven_, tuned_files_};
  }
  /// A tuner's whole life for one problem.
  void tune(const Problem& problem = small()) {
    const auto one = tuner();
    one->missed(asked(problem));
    ASSERT_TRUE(one->wait_until_idle(patience));
  }
  std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    const auto file = read_tuned_csv(file_, {.operation = OperationForm(Operation::a16w16), .strict = true});
    if (!file.ok()) return names;
    for (const TunedEntry& entry : file->entries) names.push_back(entry.kernel_name);
    return names;
  }
  int builds(const std::string& family) {
    const std::lock_guard lock(mutex_);
    return builds_[family];
  }

  std::string folder_;
  std::string file_;
  std::vector<FakeFamilyOptions> families_;
  std::function<std::unique_ptr<FakeDevice>()> make_device_;  // families_ are added to it
  std::function<Result<OnlineWorkerStart>()> worker_start_;   // empty: tuned in this process
  OnlineTunerOptions options_;
  std::vector<std::string> proven_{"vendor"};
  std::vector<std::string> tuned_files_;
  std::size_t free_bytes_ = std::size_t{1} << 30;
  std::atomic<FakeDevice*> device_{nullptr};
  std::atomic<int> opened_{0};
  std::atomic<int> changes_{0};
  std::mutex mutex_;
  std::map<std::string, int> builds_;
  std::vector<std::string> lines_;
  std::vector<std::string> warnings_;
};

}  // namespace gemmtune::testing
