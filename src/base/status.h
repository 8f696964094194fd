// Status and Result: how every fallible function of gemmtune answers. No exception leaves a public function.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace gemmtune {

enum class StatusCode {
  ok,
  invalid_argument,  // the caller or an input file is at fault; the text names the value and what was
                     // expected
  not_found,         // a file, row, family or library is not there
  unsupported,       // legal, but this family, device or build cannot do it
  io_error,          // the operating system refused
  out_of_memory,
  internal,  // a bug of ours
};

/// "ok" or a code and a sentence that names the value at fault. Cheap to copy when ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  template <typename... Args>
  static Status invalid(fmt::format_string<Args...> text, Args&&... args) {
    return {StatusCode::invalid_argument, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <typename... Args>
  static Status not_found(fmt::format_string<Args...> text, Args&&... args) {
    return {StatusCode::not_found, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <typename... Args>
  static Status unsupported(fmt::format_string<Args...> text, Args&&... args) {
    return {StatusCode::unsupported, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <typename... Args>
  static Status io(fmt::format_string<Args...> text, Args&&... args) {
    return {StatusCode::io_error, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <typename... Args>
  static Status out_of_memory(fmt::format_string<Args...> text, Args&&... args) {
    return {StatusCode::out_of_memory, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <typename... Args>
  static Status internal(fmt::format_string<Args...> text, Args&&... args) {
    return {StatusCode::internal, fmt::format(text, std::forward<Args>(args)...)};
  }

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : content_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  /// A pointer to what is derived from the object of T, a smart pointer.
  template <typename Derived, typename = std::enable_if_t<std::is_convertible_v<std::unique_ptr<Derived>, T>>>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(std::unique_ptr<Derived> value) : content_(T(std::move(value))) {}

  bool ok() const { return std::holds_alternative<T>(content_); }
  /// Requires ok().
  T& value() & { return std::get<T>(content_); }
  const T& value() const& { return std::get<T>(content_); }
  T&& value() && { return std::get<T>(std::move(content_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// The ok Status where there is a value.
  Status status() const { return ok() ? Status() : std::get<Status>(content_); }
  StatusCode code() const { return ok() ? StatusCode::ok : std::get<Status>(content_).code(); }
  const std::string& message() const {
    static const std::string none;
    return ok() ? none : std::get<Status>(content_).message();
  }

 private:
  std::variant<T, Status> content_;
};

}  // namespace gemmtune

// Leaves the enclosing function with the Status of `expression` unless it is ok.
#define GEMMTUNE_RETURN_IF_ERROR(expression)                                        \
  do {                                                                              \
    if (const auto& gemmtune_status = (expression); !gemmtune_status.ok())          \
      return ::gemmtune::Status(gemmtune_status.code(), gemmtune_status.message()); \
  } while (false)

// Declares or assigns `target` the value of a Result, as in GEMMTUNE_TRY(const auto file, open(path)); leaves the enclosing function
// with its Status if there is none. Several statements: an `if` needs its braces.
#define GEMMTUNE_TRY(target, ...) GEMMTUNE_TRY_AT(__COUNTER__, target, __VA_ARGS__)
#define GEMMTUNE_TRY_AT(count, target, ...) GEMMTUNE_TRY_NAMED(count, target, __VA_ARGS__)
#define GEMMTUNE_TRY_NAMED(count, target, ...)                                \
  auto gemmtune_result_##count = (__VA_ARGS__);                               \
  if (!gemmtune_result_##count.ok()) return gemmtune_result_##count.status(); \
  target = std::move(gemmtune_result_##count).value()
