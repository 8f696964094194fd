// Settings that libraries take from the environment alone, in their constructors.
#pragma once

namespace gemmtune::cpu {

/// An environment variable that is set while this lives, unless the user has set it.
///
/// setenv is not safe beside a getenv of another thread: only while a device is being opened, and only for a first
/// load.
class LoadTimeSetting {
 public:
  /// `value` null: nothing is set.
  LoadTimeSetting(const char* name, const char* value);
  ~LoadTimeSetting();
  LoadTimeSetting(const LoadTimeSetting&) = delete;
  LoadTimeSetting& operator=(const LoadTimeSetting&) = delete;

 private:
  const char* name_ = nullptr;
};

/// For dispatch, around the load of a library that may bring libgomp: bounds how long its threads spin before they sleep.
/// Nothing is set if a libgomp is loaded, or if the user says how threads wait (GOMP_SPINCOUNT, OMP_WAIT_POLICY).
///
/// libgomp's own bound is 300,000 turns, some 4 ms. On a machine with other work a thread that spins has the core that the
/// thread it waits for needs.
class BoundedOpenmpSpin {
 public:
  /// `bounded` false: nothing is set. A tuner's default kernels run as they do without gemmtune.
  explicit BoundedOpenmpSpin(bool bounded);

 private:
  LoadTimeSetting setting_;
};

}  // namespace gemmtune::cpu
