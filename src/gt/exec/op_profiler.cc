#include "gt/exec/op_profiler.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gt/base/error.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

thread_local OpProfiler* active_profiler = nullptr;

bool IsBackward(const at::RecordFunction& function) {
  return function.scope() == at::RecordScope::BACKWARD_FUNCTION;
}

}  // namespace

OpProfiler* OpProfiler::Active() { return active_profiler; }

OpProfiler::OpProfiler(c10::Device device) : device_(device) {
  GT_CHECK(active_profiler == nullptr, "two profilers at once");
  active_profiler = this;
  Synchronize(device);  // the clocks of host and device begin together
  device_origin_ = Mark();
  origin_ = std::chrono::steady_clock::now();
  ObserveEager();
}

OpProfiler::~OpProfiler() {
  at::removeCallback(callback_);
  active_profiler = nullptr;
}

void OpProfiler::ObserveEager() {
  auto start = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    OpProfiler* self = active_profiler;
    if (self == nullptr) return nullptr;
    Scope scope = self->backward_.empty() ? CurrentScope() : self->backward_.back();
    if (IsBackward(function)) {
      const Scope* forward = function.seqNr() < 0
                                 ? nullptr
                                 : self->timeline_.Find(static_cast<uint64_t>(function.seqNr()));
      if (forward != nullptr) scope = *forward;
      scope.phase = Phase::kBackward;
      self->backward_.push_back(scope);
    }
    self->Begin(function.name(), scope.module, scope.phase);
    return nullptr;
  };
  auto stop = [](const at::RecordFunction& function, at::ObserverContext*) {
    OpProfiler* self = active_profiler;
    if (self == nullptr) return;
    self->End();
    if (IsBackward(function) && !self->backward_.empty()) self->backward_.pop_back();
  };
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(start, stop)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

std::optional<c10::Event> OpProfiler::Mark() const {
  if (!device_.is_cuda()) return std::nullopt;
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

double OpProfiler::Now() const {
  auto elapsed = std::chrono::steady_clock::now() - origin_;
  return std::chrono::duration<double, std::micro>(elapsed).count();
}

void OpProfiler::Begin(std::string op, Name module, Phase phase, const Node* node) {
  Open& entry = spans_.emplace_back();
  entry.span.op = std::move(op);
  entry.span.module = module;
  entry.span.phase = phase;
  entry.span.node = node;
  entry.span.depth = static_cast<int>(open_.size());
  open_.push_back(spans_.size() - 1);
  entry.start = Mark();
  entry.span.host_start = Now();
}

void OpProfiler::End() {
  Open& entry = spans_[open_.back()];
  open_.pop_back();
  entry.span.host_duration = Now() - entry.span.host_start;
  entry.stop = Mark();
}

std::vector<OpProfiler::Span> OpProfiler::Finish() {
  std::vector<Span> result;
  for (Open& entry : spans_) {
    if (entry.start && entry.stop) {
      entry.stop->synchronize();
      constexpr double kMicroseconds = 1e3;  // events count milliseconds
      entry.span.device_start = device_origin_->elapsedTime(*entry.start) * kMicroseconds;
      entry.span.device_duration = entry.start->elapsedTime(*entry.stop) * kMicroseconds;
    }
    result.push_back(std::move(entry.span));
  }
  spans_.clear();
  return result;
}

}  // namespace gt
