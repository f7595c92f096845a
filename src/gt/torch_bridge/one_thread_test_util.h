// One thread inside an operator, for as long as this lives: bits depend on the number of threads, and tiny
// operators mostly wait for the others.
#pragma once

#include <ATen/Parallel.h>

namespace gt::testing {

class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = at::get_num_threads();
};

}  // namespace gt::testing
