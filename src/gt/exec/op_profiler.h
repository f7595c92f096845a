// Times every operator of a step, with the module and the phase it belongs to. Programs report what
// they run; eager code is observed through libtorch's own hooks. On a GPU the time is that of the
// device, between two events in its stream; otherwise that of the host.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gt/base/name.h"
#include "gt/ir/graph.h"
#include "gt/torch_bridge/scope.h"

namespace gt {

class OpProfiler {
 public:
  // Active on this thread until it is destroyed; one at a time.
  explicit OpProfiler(c10::Device device);
  ~OpProfiler();
  OpProfiler(const OpProfiler&) = delete;
  OpProfiler& operator=(const OpProfiler&) = delete;
  static OpProfiler* Active();

  void Begin(std::string op, Name module, Phase phase, const Node* node = nullptr);
  void End();  // of the operator begun last

  struct Span {
    std::string op;
    Name module;
    Phase phase = Phase::kForward;
    const Node* node = nullptr;  // of a graph; null: eager code
    int depth = 0;               // inside how many others
    // Microseconds since the profiler began.
    double host_start = 0, host_duration = 0;
    std::optional<double> device_start = {}, device_duration = {};
  };
  // Waits for the device. In the order of their beginnings.
  std::vector<Span> Finish();

 private:
  struct Open {
    Span span;
    std::optional<c10::Event> start, stop;
  };
  std::optional<c10::Event> Mark() const;
  double Now() const;
  void ObserveEager();

  c10::Device device_;
  std::chrono::steady_clock::time_point origin_;
  std::optional<c10::Event> device_origin_;
  std::deque<Open> spans_;
  std::vector<size_t> open_;
  ScopeTimeline timeline_;
  std::vector<Scope> backward_;  // scopes of the autograd functions that are running
  at::CallbackHandle callback_ = 0;
};

}  // namespace gt
