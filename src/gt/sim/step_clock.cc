#include "gt/sim/step_clock.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "gt/base/error.h"
#include "gt/sim/queues.h"

namespace gt {
namespace {

// What kernels keep at the least, however many collectives run beside them.
constexpr double kLeastShare = 0.25;
// With fewer multiprocessors than a product was made for, its last wave is emptier. Measured on an H200
// beside a kernel that does nothing but occupy 20 of 132: products take 1.22 to 1.28 times as long
// instead of 1.18, kernels that wait for memory 1.03 times.
constexpr double kEmptierWaves = 1.06;
constexpr double kMemoryShare = 0.2;  // of what is taken, that kernels bound by memory notice

}  // namespace

StepClock::StepClock(const Graph& graph, const CostModel& costs)
    : launch_us_(costs.device().launch_us),
      host_read_us_(costs.device().host_read_us),
      kernel_us_(costs.device().kernel_us),
      host_computes_(launch_us_ == 0),
      contention_(costs.contention()),
      links_(contention_) {
  const auto count = static_cast<size_t>(const_cast<Graph&>(graph).NumberNodes());
  works_.reserve(count);
  std::map<std::string_view, int32_t> queues;
  for (const Node* node : graph.nodes()) {
    Classify(*node, costs);
    if (works_.back().kind != Kind::kQueued) continue;
    const std::string_view name = QueueOf(*node);
    auto [queue, is_new] = queues.try_emplace(name, static_cast<int32_t>(queue_names_.size()));
    if (is_new) queue_names_.emplace_back(name);
    works_.back().queue = queue->second;
  }
  Restart();
}

void StepClock::Classify(const Node& node, const CostModel& costs) {
  Work& work = works_.emplace_back();
  const Operator& op = node.op();
  if (op.reads_data) {
    work.kind = Kind::kRead;
    const Node* copy = QueuedMakerOf(*node.operand(0));
    if (copy != nullptr && copy->op().transfer == Transfer::kOffload) work.awaited = copy->number();
  } else if (IsWait(op)) {
    work.kind = Kind::kWait;
    if (const Node* awaited = AwaitedBy(node)) work.awaited = awaited->number();
  } else if (!QueueOf(node).empty()) {
    const NodeCost cost = costs.CostOf(node);
    work.kind = Kind::kQueued;
    work.us = cost.us;
    work.time = cost.link;
    work.taken = cost.taken;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Node* maker = UnawaitedMakerOf(*node.operand(i));
      if (maker != nullptr) work.needs = maker->number();
    }
  } else if (TakesTime(node, node.graph().shapes().Hints())) {
    const NodeCost cost = costs.CostOf(node);
    work.kind = Kind::kKernel;
    work.us = cost.us;
    work.arithmetic_us = cost.arithmetic_us;
  }
}

void StepClock::MakeFree(int32_t node) {
  Work& work = works_[static_cast<size_t>(node)];
  if (work.kind == Kind::kKernel) work = {};
}

void StepClock::Restart() {
  const size_t count = works_.size();
  host_ = stream_ = links_time_ = taken_ = 0;
  active_ = 0;
  links_.Reset();
  queues_.assign(queue_names_.size(), {});
  queue_of_transfer_.clear();
  done_.assign(count, false);
  transfer_.assign(count, -1);
  start_.assign(count, 0);
  end_.assign(count, 0);
  launched_.assign(count, 0);
  stalls_.clear();
}

void StepClock::Run(int32_t node) {
  const Work& work = Of(node);
  switch (work.kind) {
    case Kind::kNothing:
      return;
    case Kind::kKernel: {
      host_ += launch_us_;
      const double start = now();
      stream_ = RunKernel(work, start);
      if (host_computes_) host_ = stream_;
      start_[static_cast<size_t>(node)] = start;
      end_[static_cast<size_t>(node)] = stream_;
      return;
    }
    case Kind::kQueued:
      return Launch(node);
    case Kind::kWait:
      return Wait(node);
    case Kind::kRead:
      return Read(node);
  }
}

// Collectives that end or begin meanwhile change how fast it goes.
double StepClock::RunKernel(const Work& work, double start) {
  if (!contention_) return start + work.us;
  double time = start, left = 1;
  while (true) {
    AdvanceTo(time);
    double whole = work.us;
    if (taken_ > 0) {
      const double share = std::max(kLeastShare, 1 - taken_);
      whole = std::max(work.us * (1 + kMemoryShare * (1 - share)),
                       kernel_us_ + kEmptierWaves * work.arithmetic_us / share);
    }
    const double end = time + left * whole;
    const double next = links_.NextEnd();
    if (next >= end) return end;
    left -= (next - time) / whole;
    time = next;
  }
}

void StepClock::Launch(int32_t node) {
  host_ += launch_us_;
  const double time = now();
  AdvanceTo(time);
  launched_[static_cast<size_t>(node)] = time;
  Queue& queue = queues_[static_cast<size_t>(Of(node).queue)];
  queue.launched.push_back(node);
  TryToBegin(queue, time);
}

void StepClock::TryToBegin(Queue& queue, double time) {
  if (queue.active || queue.launched.empty()) return;
  const int32_t node = queue.launched.front();
  const Work& work = Of(node);
  if (work.needs >= 0 && !IsDone(work.needs)) return;
  queue.active = true;
  ++active_;
  taken_ += work.taken;
  start_[static_cast<size_t>(node)] = time;
  const int32_t transfer = links_.Begin(time, work.time);
  transfer_[static_cast<size_t>(node)] = transfer;
  if (queue_of_transfer_.size() <= static_cast<size_t>(transfer)) {
    queue_of_transfer_.resize(static_cast<size_t>(transfer) + 1);
  }
  queue_of_transfer_[static_cast<size_t>(transfer)] = work.queue;
}

void StepClock::EndFirst(int32_t number, double time) {
  Queue& queue = queues_[static_cast<size_t>(number)];
  const int32_t node = queue.launched.front();
  queue.launched.pop_front();
  queue.active = false;
  taken_ = --active_ == 0 ? 0 : taken_ - Of(node).taken;  // rounding does not add up
  done_[static_cast<size_t>(node)] = true;
  end_[static_cast<size_t>(node)] = time;
  // Whoever waited for this one, be it in another queue, may begin.
  for (Queue& any : queues_) TryToBegin(any, time);
}

// One end at a time: what begins after it changes when the others end.
void StepClock::AdvanceTo(double time) {
  if (time < links_time_) return;
  for (double next = links_.NextEnd(); next <= time; next = links_.NextEnd()) {
    ended_.clear();
    links_.AdvanceTo(next, &ended_);
    links_time_ = next;
    // Ids are reused for what begins now, so that queues have to be known before.
    for (auto& [transfer, at] : ended_) {
      transfer = queue_of_transfer_[static_cast<size_t>(transfer)];
    }
    for (const auto& [queue, at] : ended_) EndFirst(queue, at);
  }
  ended_.clear();
  links_.AdvanceTo(time, &ended_);
  GT_CHECK(ended_.empty(), "a transfer ended before it was due");
  links_time_ = time;
}

void StepClock::LetEnd(int32_t queued) {
  while (!IsDone(queued)) {
    const double next = links_.NextEnd();
    GT_CHECK(next < std::numeric_limits<double>::infinity(), "a wait for what never began");
    AdvanceTo(next);
  }
}

void StepClock::Wait(int32_t node) {
  const int32_t awaited = Of(node).awaited;
  if (awaited < 0) return;
  LetEnd(awaited);
  AddStall(node, end(awaited));
  stream_ = std::max(stream_, end(awaited));
  if (host_computes_) host_ = stream_;
}

void StepClock::Read(int32_t node) {
  const int32_t copy = Of(node).awaited;
  double known = stream_ + host_read_us_;  // the copy queues behind all that the stream was given
  if (copy >= 0) {
    LetEnd(copy);
    known = end(copy);
  }
  AddStall(node, known);
  host_ = std::max(host_, known);
  if (host_computes_) stream_ = host_;
}

// The stream is idle from when it and the host have both reached the node.
void StepClock::AddStall(int32_t node, double until) {
  if (until > now()) stalls_.push_back({node, now(), until});
}

double StepClock::EndOf(int32_t queued) const {
  if (IsDone(queued)) return end(queued);
  const Queue& queue = queues_[static_cast<size_t>(Of(queued).queue)];
  double time = links_time_;
  for (int32_t before : queue.launched) {
    const int32_t transfer = transfer_[static_cast<size_t>(before)];
    time = transfer >= 0 ? links_.EndOf(transfer) : time + Of(before).time.total_us();
    if (before == queued) break;
  }
  return time;
}

double StepClock::Finish() {
  double step = now();
  while (links_.NextEnd() < std::numeric_limits<double>::infinity()) {
    step = std::max(step, links_.NextEnd());
    AdvanceTo(links_.NextEnd());
  }
  for (const Queue& queue : queues_) {
    GT_CHECK(queue.launched.empty(), "a collective that never began");
  }
  return step;
}

}  // namespace gt
