// A text that is empty in nearly all of many objects: a pointer in each.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace gemmtune {

class RareText {
 public:
  RareText() = default;
  RareText(const RareText& other) { *this = other.view(); }
  RareText(RareText&&) noexcept = default;
  ~RareText() = default;
  RareText& operator=(const RareText& other) {
    if (this != &other) *this = other.view();
    return *this;
  }
  RareText& operator=(RareText&&) noexcept = default;
  RareText& operator=(std::string_view text) {
    text_ = text.empty() ? nullptr : std::make_unique<const std::string>(text);
    return *this;
  }

  bool empty() const { return text_ == nullptr; }
  std::string_view view() const { return text_ == nullptr ? std::string_view() : std::string_view(*text_); }

  friend bool operator==(const RareText& a, const RareText& b) { return a.view() == b.view(); }
  friend bool operator==(const RareText& a, std::string_view b) { return a.view() == b; }

 private:
  std::unique_ptr<const std::string> text_;  // null: empty
};

}  // namespace gemmtune
