// Collects what is wrong with flags and config files, so that a user sees all of it at once and not
// one mistake a run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gt/base/error.h"

namespace gt {

class Problems {
 public:
  template <typename... Args>
  void Add(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    found_.emplace_back(code, fmt::format(format, std::forward<Args>(args)...));
  }

  bool empty() const { return found_.empty(); }

  // One problem is thrown as itself. Several become one error that lists them, each under its own
  // code.
  void ThrowIfAny() const;

 private:
  std::vector<Error> found_;
};

}  // namespace gt
