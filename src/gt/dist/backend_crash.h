// gloo ends the program, from a thread of its own, when it receives more than was expected: when the
// sizes of a collective disagree between ranks. This turns that end into an error that is told.
#pragma once

#include <functional>
#include <string>

#include "gt/base/error.h"

namespace gt {

// One for each rank of this process.
class BackendCrash {
 public:
  // `report` makes an error of what the backend said and tells the other ranks. Then the process
  // ends with that error: nothing can be unwound from there.
  explicit BackendCrash(std::function<Error(const std::string& what)> report);
  ~BackendCrash();
  BackendCrash(const BackendCrash&) = delete;
  BackendCrash& operator=(const BackendCrash&) = delete;

 private:
  std::function<Error(const std::string&)> report_;
};

}  // namespace gt
