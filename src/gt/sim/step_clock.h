// A train step as it runs on a device: one compute stream that takes kernels in the order of the
// graph from a host that is ahead of it, and a queue for each process group and each kind of copy.
//
//   - A kernel starts when the host has launched it and the kernel before it is done.
//   - A collective starts when the compute stream has reached the place where it was launched and
//     its queue is free; its wait holds up the compute stream until it is done. So do copies.
//   - A read holds up the host until the number is available: the compute stream runs dry meanwhile
//     unless it was given enough to do before.
//   - Collectives that are under way at the same time share links (sim/shared_links.h), and take
//     multiprocessors away from the kernels that run beside them, as far as the costs say so.
//
// The nodes run in any order that is given to the clock, one at a time: schedules are found with it
// (passes/overlap/overlap_order.h) and judged by it, and a timeline (sim/timeline.h) is what it saw.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/sim/cost_model.h"
#include "gt/sim/shared_links.h"

namespace gt {

class StepClock {
 public:
  enum class Kind : uint8_t {
    kNothing,  // takes no time: views
    kKernel,
    kQueued,  // a collective or a copy to or from the host
    kWait,    // for a queued node
    kRead,    // of a number, by the host
  };
  struct Stall {  // of the compute stream
    int32_t node = 0;
    double from = 0, until = 0;
  };

  // Nodes are known by number, which this gives them. The graph must stay as it is.
  StepClock(const Graph& graph, const CostModel& costs);

  // What is known before anything runs.
  int32_t count() const { return static_cast<int32_t>(works_.size()); }
  Kind kind(int32_t node) const { return Of(node).kind; }
  // Of a kernel or a queued node, alone.
  double microseconds(int32_t node) const { return Of(node).us; }
  // The queued node that a wait or a read is for. -1: of a wait, there is nothing to wait for; of a
  // read, it looks at the device's memory.
  int32_t awaited(int32_t node) const { return Of(node).awaited; }
  int32_t queue(int32_t node) const { return Of(node).queue; }
  const std::vector<std::string>& queues() const { return queue_names_; }
  // The node is taken to cost nothing from now on.
  void MakeFree(int32_t node);

  void Restart();
  // The node runs; everything it depends on has run.
  void Run(int32_t node);
  // When the compute stream, or the host that has to feed it, is ready for the next node.
  double now() const { return stream_ > host_ ? stream_ : host_; }
  // Lets queues go on until then, so that IsDone is true of all that has ended.
  void AdvanceTo(double time);
  // When the next node is chosen: now, or later if queues were let go on while the stream stood still.
  double time() const { return std::max(now(), links_time_); }
  bool IsDone(int32_t queued) const { return done_[static_cast<size_t>(queued)]; }
  // When a node that has run ends, if nothing else is launched. Exact for those that are done.
  double EndOf(int32_t queued) const;
  // When the first of those under way ends; infinity if nothing is.
  double NextEnd() const { return links_.NextEnd(); }
  // Lets everything end, and tells how long the step took.
  double Finish();

  // What was seen, by node: when a kernel or a queued node began and ended, and when the compute
  // stream came to a queued one.
  double start(int32_t node) const { return start_[static_cast<size_t>(node)]; }
  double end(int32_t node) const { return end_[static_cast<size_t>(node)]; }
  double launched(int32_t node) const { return launched_[static_cast<size_t>(node)]; }
  // Idle because of a wait or a read. Parts of one idle time that two of them are to blame for
  // (counts read while tokens are waited for) belong to the first.
  const std::vector<Stall>& stalls() const { return stalls_; }

 private:
  struct Work {
    Kind kind = Kind::kNothing;
    int32_t queue = -1;
    int32_t awaited = -1;
    // Of a queued node: another that makes what it sends, without a wait between them; -1: none.
    int32_t needs = -1;
    double us = 0;
    double arithmetic_us = 0;  // of a kernel: the part that multiprocessors bound
    double taken = 0;          // of a collective: share of the multiprocessors
    CollectiveTime time = {};  // of a queued node
  };
  struct Queue {
    std::deque<int32_t> launched;  // the first is under way if `active`
    bool active = false;
  };

  const Work& Of(int32_t node) const { return works_[static_cast<size_t>(node)]; }
  void Classify(const Node& node, const CostModel& costs);
  double RunKernel(const Work& work, double start);
  void Launch(int32_t node);
  void Wait(int32_t node);
  void Read(int32_t node);
  void TryToBegin(Queue& queue, double time);
  void EndFirst(int32_t queue, double time);
  void LetEnd(int32_t queued);
  void AddStall(int32_t node, double until);

  std::vector<Work> works_;  // by number
  std::vector<std::string> queue_names_;
  double launch_us_ = 0, host_read_us_ = 0, kernel_us_ = 0;
  bool host_computes_ = false;  // then there is one clock for host and stream
  bool contention_ = false;

  double host_ = 0;    // when the host reaches the next node
  double stream_ = 0;  // when the compute stream is done with all that it was given
  double links_time_ = 0;
  double taken_ = 0;    // share of the multiprocessors that collectives occupy now
  int32_t active_ = 0;  // queues whose first collective is under way
  SharedLinks links_;
  std::vector<Queue> queues_;
  std::vector<int32_t> queue_of_transfer_;  // by id of the transfer
  std::vector<std::pair<int32_t, double>> ended_;
  std::vector<bool> done_;
  std::vector<int32_t> transfer_;  // of a queued node under way
  std::vector<double> start_, end_, launched_;
  std::vector<Stall> stalls_;
};

}  // namespace gt
