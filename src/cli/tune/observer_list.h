// Several observers of one run, each called in turn.
#pragma once

#include <utility>
#include <vector>

#include "tuning/tuner.h"

namespace gemmtune::cli {

class ObserverList final : public RunObserver {
 public:
  /// All must outlive this.
  explicit ObserverList(std::vector<RunObserver*> observers) : observers_(std::move(observers)) {}

  void preparing(std::size_t done, std::size_t count) override {
    for (RunObserver* each : observers_) each->preparing(done, count);
  }
  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override {
    for (RunObserver* each : observers_) each->run_started(waiting, evaluators);
  }
  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override {
    for (RunObserver* each : observers_) each->problem_started(index, count, shape);
  }
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override {
    for (RunObserver* each : observers_) each->candidate_done(index, trial, candidates_so_far);
  }
  void paired_rounds(std::size_t index, const PairedRatio& ratio) override {
    for (RunObserver* each : observers_) each->paired_rounds(index, ratio);
  }
  void problem_paused(std::size_t index) override {
    for (RunObserver* each : observers_) each->problem_paused(index);
  }
  void problem_settled(std::size_t index, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->problem_settled(index, report);
  }
  void problem_done(std::size_t index, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->problem_done(index, report);
  }
  void confirmation_started(std::size_t index, std::size_t done, std::size_t count) override {
    for (RunObserver* each : observers_) each->confirmation_started(index, done, count);
  }
  void problem_revised(std::size_t index, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->problem_revised(index, report);
  }
  void range_step(const RangeStep& step) override {
    for (RunObserver* each : observers_) each->range_step(step);
  }
  void range_done(std::size_t item, std::size_t items, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->range_done(item, items, report);
  }

 private:
  std::vector<RunObserver*> observers_;
};

}  // namespace gemmtune::cli
