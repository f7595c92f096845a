#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "gt/base/error.h"
#include "gt/passes/fsdp/fsdp_buckets.h"

namespace gt::fsdp {
namespace {

// Finds the places of buckets and writes the nodes down in their new order.
class Scheduler {
 public:
  Scheduler(Graph& graph, const std::vector<Bucket>& buckets, std::vector<Node*> staying)
      : graph_(graph), buckets_(buckets), staying_(std::move(staying)), ended_(buckets.size()) {
    const auto count = static_cast<size_t>(graph.NumberNodes());
    written_.resize(count);
    stays_.resize(count);
    end_of_.assign(count, -1);
    order_.reserve(count);
    for (const Node* node : staying_) {
      if (node != nullptr) stays_[Index(*node)] = true;
    }
    for (size_t i = 0; i < buckets.size(); ++i) {
      for (const Node* node : buckets[i].end) end_of_[Index(*node)] = static_cast<int32_t>(i);
    }
  }

  void Schedule(int64_t prefetch) {
    PlanGathers(prefetch);
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const bool starts_itself = !buckets_[i].IsGather() && buckets_[i].key.behind < 0;
      if (starts_itself) reductions_.push_back({buckets_[i].position, static_cast<int32_t>(i)});
    }
    size_t gather = 0, reduction = 0;
    for (size_t at = 0; at < staying_.size(); ++at) {
      const auto position = static_cast<int32_t>(at);
      for (; gather < gathers_.size() && gathers_[gather].at <= position; ++gather) {
        Launch(gathers_[gather].bucket);
      }
      if (staying_[at] != nullptr) Write(*staying_[at]);
      for (; reduction < reductions_.size() && reductions_[reduction].at <= position; ++reduction) {
        StartReduction(reductions_[reduction].bucket);
      }
    }
    for (; gather < gathers_.size(); ++gather) Launch(gathers_[gather].bucket);
    while (!running_.empty()) FinishRunning({});
    for (size_t i = 0; i < buckets_.size(); ++i) End(static_cast<int32_t>(i));  // nobody needs them
    Apply();
  }

 private:
  struct Start {
    int32_t at;  // a position: gathers start before it, reductions after
    int32_t bucket;
  };

  void PlanGathers(int64_t prefetch) {
    for (bool backward : {false, true}) PlanGathers(backward, prefetch);
    std::stable_sort(gathers_.begin(), gathers_.end(),
                     [](const Start& a, const Start& b) { return a.at < b.at; });
  }

  // Units in the order in which they are needed; each starts where the one `prefetch` before it
  // begins to be used.
  void PlanGathers(bool backward, int64_t prefetch) {
    std::vector<int32_t> needed;  // buckets, in order
    for (size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket& bucket = buckets_[i];
      if (bucket.IsGather() && bucket.key.backward == backward) {
        needed.push_back(static_cast<int32_t>(i));
      }
    }
    std::stable_sort(needed.begin(), needed.end(), [this](int32_t a, int32_t b) {
      return buckets_[Index(a)].position < buckets_[Index(b)].position;
    });
    // A block, or what was chosen otherwise.
    using Unit = std::pair<std::string_view, int32_t>;
    const auto unit_of = [this](int32_t bucket) {
      const Key& key = buckets_[Index(bucket)].key;
      return Unit(key.unit.str(), key.part);
    };
    std::vector<int32_t> begins;      // of units
    std::map<Unit, int64_t> numbers;  // of units
    for (int32_t bucket : needed) {
      const bool is_new = numbers.try_emplace(unit_of(bucket), begins.size()).second;
      if (is_new) begins.push_back(buckets_[Index(bucket)].position);
    }
    // By units: of two that start at one position, the one needed first is first.
    std::stable_sort(needed.begin(), needed.end(), [&](int32_t a, int32_t b) {
      return numbers.at(unit_of(a)) < numbers.at(unit_of(b));
    });
    for (int32_t bucket : needed) {
      const int64_t block = numbers.at(unit_of(bucket));
      const int32_t start = backward ? std::min(BackwardBegin(), begins[0]) : 0;
      const int32_t at = block < prefetch ? start : begins[static_cast<size_t>(block - prefetch)];
      gathers_.push_back({at, bucket});
    }
  }

  int32_t BackwardBegin() {
    if (backward_begin_ < 0) {
      auto is_backward = [](const Node* node) {
        return node != nullptr && node->meta().phase == Phase::kBackward;
      };
      auto found = std::find_if(staying_.begin(), staying_.end(), is_backward);
      backward_begin_ = static_cast<int32_t>(found - staying_.begin());
    }
    return backward_begin_;
  }

  void Launch(int32_t bucket) {
    for (Node* node : buckets_[Index(bucket)].launch) Write(*node);
  }

  // Reductions of one round are on their way at a time, and what reduces the results of those before it once
  // more. The first of a round finishes the round before it. Were each to finish the one before it, compute
  // would wait for all but the last of a block as soon as they have started.
  void StartReduction(int32_t bucket) {
    Launch(bucket);
    const int32_t round = buckets_[Index(bucket)].round;
    if (std::exchange(round_, round) == round) {
      running_.push_back(bucket);
    } else {
      FinishRunning({bucket});
    }
  }

  void FinishRunning(std::vector<int32_t> next) {
    std::swap(running_, next);
    for (int32_t bucket : next) {
      End(bucket);
      for (Node* node : buckets_[Index(bucket)].tail) Write(*node);
      for (int32_t behind : buckets_[Index(bucket)].behind) {
        Launch(behind);
        running_.push_back(behind);
      }
    }
  }

  // Unpacks all members together, so that the packed buffer is freed as early as possible.
  void End(int32_t bucket) {
    if (ended_[Index(bucket)]) return;
    ended_[Index(bucket)] = true;
    for (Node* node : buckets_[Index(bucket)].end) Write(*node);
  }

  void Write(Node& node) {
    if (written_[Index(node)]) return;
    if (const int32_t bucket = end_of_[Index(node)]; bucket >= 0 && !ended_[Index(bucket)]) {
      End(bucket);
      return;
    }
    written_[Index(node)] = true;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      Node* producer = node.operand(i)->producer();
      if (producer == nullptr || written_[Index(*producer)]) continue;
      GT_CHECK(!stays_[Index(*producer)], "%{} would have to wait for %{}", node.result()->name(),
               producer->result()->name());
      Write(*producer);
    }
    order_.push_back(&node);
  }

  void Apply() {
    GT_CHECK(order_.size() == written_.size(), "{} of {} nodes have a place", order_.size(),
             written_.size());
    for (Node* node : order_) graph_.MoveBefore(node, nullptr);
  }

  Graph& graph_;
  const std::vector<Bucket>& buckets_;
  std::vector<Node*> staying_;  // by old position
  std::vector<bool> ended_;     // by bucket
  // By number, which is not the old position.
  std::vector<bool> written_, stays_;
  std::vector<int32_t> end_of_;
  std::vector<Node*> order_;
  std::vector<Start> gathers_, reductions_;  // by position
  std::vector<int32_t> running_;             // reductions
  int32_t round_ = -1;                       // of the last that started itself
  int32_t backward_begin_ = -1;
};

}  // namespace

void OrderBuckets(Graph& graph, const Buckets& found, int64_t prefetch) {
  Scheduler(graph, found.buckets, found.staying).Schedule(prefetch);
}

}  // namespace gt::fsdp
