// Interned strings: module FQNs, operator names, source locations. A graph of a hundred thousand
// nodes names the same few hundred modules over and over; interned, a name is one pointer, and
// comparing two is comparing pointers. Names of values are interned too: copies of a graph share
// them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gt {

class Name {
 public:
  Name() : text_(&Empty()) {}
  // Looks the text up in the process-wide pool (thread safe). Names live as long as the process.
  explicit Name(std::string_view text);
  // The name of that text if anybody has made it before.
  static std::optional<Name> Find(std::string_view text);

  const std::string& str() const { return *text_; }
  bool empty() const { return text_->empty(); }

  friend bool operator==(Name a, Name b) { return a.text_ == b.text_; }
  friend bool operator!=(Name a, Name b) { return a.text_ != b.text_; }
  // The same address for equal names, never null.
  const void* id() const { return text_; }
  std::size_t Hash() const { return std::hash<const void*>()(text_); }

 private:
  explicit Name(const std::string* text) : text_(text) {}
  static const std::string& Empty();
  const std::string* text_;
};

}  // namespace gt

template <>
struct std::hash<gt::Name> {
  std::size_t operator()(gt::Name name) const { return name.Hash(); }
};
