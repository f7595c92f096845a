#include "gt/placement/solver/moment_pruning.h"

#include <algorithm>
#include <deque>
#include <map>

namespace gt::placement {
namespace {

constexpr size_t kMostCompared = 16;          // moments before that one is compared with
constexpr size_t kCompareWork = 100'000'000;  // labels looked at in all

// What every label uses at one moment.
struct MomentImage {
  size_t moment = 0;
  int64_t room = 0;
  int64_t most = 0;  // of all labellings
  std::vector<int64_t> usage;
};

class MomentPruning {
 public:
  explicit MomentPruning(LabelGraph& graph) : graph_(graph), keep_(graph.room.size(), false) {
    for (const GraphVertex& vertex : graph.vertices) {
      if (!vertex.present || vertex.usage.empty()) continue;
      const size_t number = first_.size();
      first_.push_back(labels_);
      labels_ += vertex.labels.size();
      for (const MomentUsage& item : vertex.usage) {
        events_[item.begin].push_back({&vertex, &item, number, 1});
        events_[item.end].push_back({&vertex, &item, number, -1});
      }
    }
    first_.push_back(labels_);
    image_.usage.assign(labels_, 0);
    most_.assign(first_.size(), 0);
  }

  void Run() {
    for (size_t t = 0; t < graph_.room.size(); ++t) {
      const auto changes = events_.find(static_cast<int32_t>(t));
      if (changes != events_.end()) {
        for (const Event& event : changes->second) Apply(event);
      }
      image_.moment = t;
      image_.room = graph_.room[t];
      if (image_.most > image_.room) Consider();
    }
    Renumber();
  }

 private:
  struct Event {
    const GraphVertex* vertex;
    const MomentUsage* item;
    size_t number;
    int64_t sign;
  };

  void Apply(const Event& event) {
    int64_t* usage = image_.usage.data() + first_[event.number];
    int64_t most = 0;
    for (size_t i = 0; i < event.vertex->labels.size(); ++i) {
      usage[i] += event.sign * event.item->usage[static_cast<size_t>(event.vertex->labels[i])];
      most = std::max(most, usage[i]);
    }
    image_.most += most - most_[event.number];
    most_[event.number] = most;
  }

  // Whether `one` is over-full only if `other` is.
  bool Implied(const MomentImage& one, const MomentImage& other) {
    if (one.room < other.room || one.most - one.room > other.most - other.room) return false;
    work_ += labels_;
    int64_t worst = other.room - one.room;
    for (size_t v = 0; v + 1 < first_.size(); ++v) {
      int64_t most = one.usage[first_[v]] - other.usage[first_[v]];
      for (size_t i = first_[v] + 1; i < first_[v + 1]; ++i) {
        most = std::max(most, one.usage[i] - other.usage[i]);
      }
      worst += most;
    }
    return worst <= 0;
  }

  void Consider() {
    if (work_ < kCompareWork) {
      for (auto it = recent_.rbegin(); it != recent_.rend(); ++it) {
        if (Implied(image_, *it)) return;
      }
      std::erase_if(recent_, [&](const MomentImage& other) {
        if (!Implied(other, image_)) return false;
        keep_[other.moment] = false;
        return true;
      });
    }
    keep_[image_.moment] = true;
    if (work_ < kCompareWork) recent_.push_back(image_);
    if (recent_.size() > kMostCompared) recent_.pop_front();
  }

  void Renumber() {
    std::vector<int32_t> kept_before(keep_.size() + 1, 0);
    std::vector<int64_t> room;
    std::vector<double> price;
    for (size_t t = 0; t < keep_.size(); ++t) {
      kept_before[t + 1] = kept_before[t] + (keep_[t] ? 1 : 0);
      if (!keep_[t]) continue;
      room.push_back(graph_.room[t]);
      if (!graph_.price.empty()) price.push_back(graph_.price[t]);
    }
    graph_.room = std::move(room);
    graph_.price = std::move(price);
    for (GraphVertex& vertex : graph_.vertices) {
      std::map<std::pair<int32_t, int32_t>, MomentUsage> by_range;
      for (MomentUsage& item : vertex.usage) {
        item.begin = kept_before[static_cast<size_t>(item.begin)];
        item.end = kept_before[static_cast<size_t>(item.end)];
        if (item.begin == item.end) continue;
        const auto [known, fresh] = by_range.emplace(std::pair(item.begin, item.end), item);
        if (fresh) continue;
        for (size_t i = 0; i < item.usage.size(); ++i) known->second.usage[i] += item.usage[i];
      }
      vertex.usage.clear();
      for (auto& [range, item] : by_range) vertex.usage.push_back(std::move(item));
    }
  }

  LabelGraph& graph_;
  std::vector<bool> keep_;
  std::vector<size_t> first_;  // label of each vertex that uses memory
  size_t labels_ = 0;
  std::map<int32_t, std::vector<Event>> events_;
  MomentImage image_;          // of the moment looked at
  std::vector<int64_t> most_;  // by vertex, in the image
  std::deque<MomentImage> recent_;
  size_t work_ = 0;
};

}  // namespace

void PruneMoments(LabelGraph& graph) {
  if (!graph.room.empty()) MomentPruning(graph).Run();
}

}  // namespace gt::placement
