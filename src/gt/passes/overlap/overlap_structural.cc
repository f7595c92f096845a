#include "gt/passes/overlap/overlap_structural.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/describe.h"

namespace gt {
namespace {

constexpr int32_t kNoNumber = -1;
constexpr int32_t kOutside = -1;  // in place of a region

size_t At(int32_t number) { return static_cast<size_t>(number); }

bool IsCollective(const Node& node) { return node.op().collective != Collective::kNone; }

bool IsTokenExchange(const Node& node) {
  return node.op().collective == Collective::kAllToAll &&
         node.meta().exchange == TokenExchange::kExchange;
}

// One chunk's nodes of a region. All lists are in the graph's order.
struct ChunkBody {
  int32_t id = 0;
  std::vector<int32_t> nodes;
  std::vector<int32_t> exchanges;
  std::vector<int32_t> reads;  // of token counts
};

struct Region {
  Name name;
  bool backward = false;
  std::vector<ChunkBody> chunks;  // in the order in which they take turns

  // Its nodes are between these numbers, both included.
  int32_t First() const {
    int32_t first = chunks.front().nodes.front();
    for (const ChunkBody& chunk : chunks) first = std::min(first, chunk.nodes.front());
    return first;
  }
  int32_t Last() const {
    int32_t last = 0;
    for (const ChunkBody& chunk : chunks) last = std::max(last, chunk.nodes.back());
    return last;
  }

  std::string Text() const {
    return fmt::format("region '{}' ({})", name.str(), backward ? "backward" : "forward");
  }
};

// "chunk 0: dispatch, combine"
std::string ExchangesText(const Dependencies& dependencies, const ChunkBody& chunk) {
  std::vector<std::string_view> labels;
  for (int32_t number : chunk.exchanges) {
    labels.push_back(Spelling(dependencies.node(number)->meta().ep_role));
  }
  return fmt::format("chunk {}: {}", chunk.id, labels.empty() ? "none" : Join(labels, ", "));
}

// Finds the regions of a graph, in the order in which they begin.
class RegionFinder {
 public:
  explicit RegionFinder(const Dependencies& dependencies) : dependencies_(dependencies) {}

  std::vector<Region> Find() {
    for (int32_t number = 0; number < dependencies_.count(); ++number) Look(number);
    std::vector<Region> regions;
    for (Found& found : found_) {
      Region region = Ordered(std::move(found));
      if (CheckExchanges(region)) regions.push_back(std::move(region));
    }
    return regions;
  }

 private:
  struct Found {
    Region region;
    std::map<int32_t, ChunkBody> by_id;
  };

  void Look(int32_t number) {
    const Node& node = *dependencies_.node(number);
    const ChunkMeta* chunk = node.meta().chunk.get();
    if (chunk == nullptr || chunk->role != ChunkRole::kBody) return;
    ChunkBody& body = RegionOf(*chunk).by_id[chunk->id];
    body.id = chunk->id;
    body.nodes.push_back(number);
    if (IsTokenExchange(node)) body.exchanges.push_back(number);
    if (node.op().reads_data) body.reads.push_back(number);
  }

  Found& RegionOf(const ChunkMeta& chunk) {
    auto [place, is_new] = places_.try_emplace(chunk.region, std::array{kNoNumber, kNoNumber});
    int32_t& index = place->second[chunk.backward ? 1 : 0];
    if (index == kNoNumber) {
      index = static_cast<int32_t>(found_.size());
      Region& region = found_.emplace_back().region;
      region.name = chunk.region;
      region.backward = chunk.backward;
    }
    return found_[At(index)];
  }

  static Region Ordered(Found found) {
    Region region = std::move(found.region);
    for (auto& [id, body] : found.by_id) region.chunks.push_back(std::move(body));
    if (region.backward) std::reverse(region.chunks.begin(), region.chunks.end());
    return region;
  }

  // Returns whether there is anything to schedule.
  bool CheckExchanges(const Region& region) const {
    const ChunkBody& first = region.chunks.front();
    for (const ChunkBody& chunk : region.chunks) {
      if (!SameExchanges(first, chunk)) {
        Fail(
            ErrorCode::kExchangeMismatch,
            "{}: its chunks exchange tokens in different sequences ({}; {}). Every chunk must be a "
            "copy of the same module; run the schedule directly behind chunking",
            region.Text(), ExchangesText(dependencies_, first),
            ExchangesText(dependencies_, chunk));
      }
      for (int32_t exchange : chunk.exchanges) CheckWait(region, exchange);
    }
    return !first.exchanges.empty();
  }

  bool SameExchanges(const ChunkBody& a, const ChunkBody& b) const {
    return std::equal(a.exchanges.begin(), a.exchanges.end(), b.exchanges.begin(),
                      b.exchanges.end(), [&](int32_t left, int32_t right) {
                        return dependencies_.node(left)->meta().ep_role ==
                               dependencies_.node(right)->meta().ep_role;
                      });
  }

  void CheckWait(const Region& region, int32_t exchange) const {
    const Node& launch = *dependencies_.node(exchange);
    const ChunkMeta& own = *launch.meta().chunk;
    int32_t waits = 0;
    for (int32_t user : dependencies_.UsersOf(exchange)) {
      const Node& node = *dependencies_.node(user);
      const ChunkMeta* chunk = node.meta().chunk.get();
      bool in_body = chunk != nullptr && chunk->role == ChunkRole::kBody && chunk->id == own.id &&
                     chunk->region == own.region && chunk->backward == own.backward;
      waits += node.op().collective == Collective::kWait && in_body;
    }
    if (waits == 1) return;
    Fail(ErrorCode::kExchangeMismatch,
         "{}: {} of chunk {} has {} waits in the chunk's body, and must have exactly one",
         region.Text(), DescribeNode(launch), own.id, waits);
  }

  const Dependencies& dependencies_;
  std::unordered_map<Name, std::array<int32_t, 2>> places_;  // in found_: forward, backward
  std::vector<Found> found_;
};

// Facts about nodes, by number. Regions are scheduled one after the other and share the memory.
struct NodeTable {
  NodeTable(const Dependencies& dependencies, std::span<const Region> regions)
      : region(At(dependencies.count()), kOutside),
        turn(At(dependencies.count()), 0),
        missing(At(dependencies.count()), 0),
        seen(At(dependencies.count()), 0),
        done(At(dependencies.count()), 0),
        leads(At(dependencies.count()), Leads::kNowhere) {
    for (size_t i = 0; i < regions.size(); ++i) {
      for (size_t t = 0; t < regions[i].chunks.size(); ++t) {
        for (int32_t number : regions[i].chunks[t].nodes) {
          region[At(number)] = static_cast<int32_t>(i);
          turn[At(number)] = static_cast<int32_t>(t);
        }
      }
    }
  }

  // Whether nodes after it belong to the region that is looked at.
  enum class Leads : uint8_t { kNowhere, kHome, kHomeThroughAnother };

  std::vector<int32_t> region;   // index, or kOutside
  std::vector<int32_t> turn;     // of the node's chunk in its region
  std::vector<int32_t> missing;  // how many of the nodes it needs are not done
  std::vector<int32_t> seen;     // the last search that met it
  std::vector<uint8_t> done;
  std::vector<Leads> leads;
  int32_t searches = 0;
};

// A value that several modules use is recomputed for each of them under the name of the first, so
// that a region may begin long before its own work does, in the middle of another one. Two regions
// cannot both have their order if each needs the other: nodes that are ancestors of their own
// region through another one are left out of it, and run where they are needed.
class StrayNodes {
 public:
  StrayNodes(const Dependencies& dependencies, NodeTable& table)
      : dependencies_(dependencies), table_(table) {}

  void Remove(Region& region, int32_t index) {
    const int32_t first = region.First(), last = region.Last();
    for (int32_t number = last; number >= first; --number) {
      table_.leads[At(number)] = LeadsFrom(number, index, last);
    }
    // An exchange that leads away and back has its place in the order all the same.
    for (const ChunkBody& chunk : region.chunks) {
      for (int32_t exchange : chunk.exchanges) {
        if (IsStray(exchange)) return;
      }
    }
    for (ChunkBody& chunk : region.chunks) RemoveFrom(chunk);
  }

 private:
  using Leads = NodeTable::Leads;

  Leads LeadsFrom(int32_t number, int32_t index, int32_t last) const {
    Leads leads = Leads::kNowhere;
    for (int32_t user : dependencies_.UsersOf(number)) {
      if (user > last) continue;
      const int32_t region = table_.region[At(user)];
      Leads through = table_.leads[At(user)];
      if (region == index) through = std::max(through, Leads::kHome);
      if (region != index && region != kOutside && through == Leads::kHome) {
        through = Leads::kHomeThroughAnother;
      }
      leads = std::max(leads, through);
    }
    return leads;
  }

  bool IsStray(int32_t number) const {
    return table_.leads[At(number)] == Leads::kHomeThroughAnother;
  }

  void RemoveFrom(ChunkBody& chunk) {
    auto is_stray = [&](int32_t number) { return IsStray(number); };
    std::erase_if(chunk.reads, is_stray);
    std::erase_if(chunk.nodes, [&](int32_t number) {
      if (is_stray(number)) table_.region[At(number)] = kOutside;
      return is_stray(number);
    });
  }

  const Dependencies& dependencies_;
  NodeTable& table_;
};

// The order of one region's nodes. Nodes outside that are on a path between two of its nodes count
// as done as soon as they could run: they are not ordered, but what they need must run first.
class RegionSchedule {
 public:
  RegionSchedule(const Dependencies& dependencies, const Region& region, int32_t index,
                 NodeTable& table)
      : dependencies_(dependencies),
        region_(region),
        index_(index),
        first_(region.First()),
        last_(region.Last()),
        table_(table),
        turns_(region.chunks.size()) {
    // A node before the region needs nothing of it: the graph's order is a legal one.
    for (int32_t number = first_; number <= last_; ++number) Begin(number);
  }

  std::vector<int32_t> Order(bool pair_first) {
    CheckReads();
    const std::span<const ChunkBody> chunks = region_.chunks;
    for (size_t round = 0; round < chunks.front().exchanges.size(); ++round) {
      if (round == 0 && pair_first) {
        Launch(round, chunks);
      } else {
        for (size_t turn = 0; turn < chunks.size(); ++turn) Launch(round, chunks.subspan(turn, 1));
      }
      RunReady();
    }
    // From here on collectives run in their place as anything else.
    for (Turn& turn : turns_) {
      for (int32_t number : turn.held) turn.ready.push(number);
    }
    holds_collectives_ = false;
    RunReady();
    return std::move(order_);
  }

 private:
  using Smallest = std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>>;

  // Nodes of one chunk that could run now. Some may have run since, because an exchange needed them.
  struct Turn {
    Smallest ready;
    std::vector<int32_t> held;  // collectives
  };

  void Begin(int32_t number) {
    int32_t missing = 0;
    for (int32_t needed : dependencies_.NeededBy(number)) missing += IsOpen(needed);
    table_.missing[At(number)] = missing;
    table_.done[At(number)] = !IsOwn(number) && missing == 0;
    if (IsOwn(number) && missing == 0) Offer(number);
  }

  bool IsOwn(int32_t number) const { return table_.region[At(number)] == index_; }
  bool IsOpen(int32_t number) const { return number >= first_ && !table_.done[At(number)]; }

  void Offer(int32_t number) {
    const Node& node = *dependencies_.node(number);
    Turn& turn = turns_[At(table_.turn[At(number)])];
    if (holds_collectives_ && IsCollective(node)) {
      turn.held.push_back(number);
    } else {
      turn.ready.push(number);
    }
  }

  void Run(int32_t number) {
    if (table_.done[At(number)]) return;
    order_.push_back(number);
    finished_.assign(1, number);
    while (!finished_.empty()) {
      const int32_t done = finished_.back();
      finished_.pop_back();
      table_.done[At(done)] = true;
      for (int32_t user : dependencies_.UsersOf(done)) {
        if (user > last_ || --table_.missing[At(user)] > 0) continue;
        if (IsOwn(user)) {
          Offer(user);
        } else {
          finished_.push_back(user);
        }
      }
    }
  }

  // Chunk after chunk in the graph's order, repeatedly, since a chunk may make another one ready.
  void RunReady() {
    for (bool any = true; any;) {
      any = false;
      for (Turn& turn : turns_) {
        while (!turn.ready.empty()) {
          const int32_t number = turn.ready.top();
          turn.ready.pop();
          Run(number);
          any = true;
        }
      }
    }
  }

  // The nodes of the region that these still need, in the graph's order. An exchange cannot be among
  // them: those that may run have run.
  std::vector<int32_t> NeedsOf(std::span<const int32_t> targets) {
    ++table_.searches;
    std::vector<int32_t> needs;
    stack_.assign(targets.begin(), targets.end());
    while (!stack_.empty()) {
      const int32_t number = stack_.back();
      stack_.pop_back();
      for (int32_t needed : dependencies_.NeededBy(number)) {
        if (!IsOpen(needed) || table_.seen[At(needed)] == table_.searches) continue;
        table_.seen[At(needed)] = table_.searches;
        if (IsOwn(needed)) {
          const Node& node = *dependencies_.node(needed);
          if (IsTokenExchange(node)) FailLaterExchange(node, number, targets.front());
          needs.push_back(needed);
        }
        stack_.push_back(needed);
      }
    }
    std::sort(needs.begin(), needs.end());
    return needs;
  }
  bool WasFound(int32_t number) const { return table_.seen[At(number)] == table_.searches; }

  void RunNeedsOf(std::span<const int32_t> targets) {
    for (int32_t number : NeedsOf(targets)) Run(number);
  }
  void RunAll(std::span<const int32_t> numbers) {
    for (int32_t number : numbers) Run(number);
  }

  // Brings these chunks to their exchange of the round and launches it.
  void Launch(size_t round, std::span<const ChunkBody> chunks) {
    if (round == 0) ReadCounts(chunks);
    for (const ChunkBody& chunk : chunks) RunNeedsOf(std::span(&chunk.exchanges[round], 1));
    for (const ChunkBody& chunk : chunks) Run(chunk.exchanges[round]);
  }

  void ReadCounts(std::span<const ChunkBody> chunks) {
    if (chunks.front().reads.empty()) return;
    std::vector<int32_t> launches;
    for (const ChunkBody& chunk : chunks) launches.push_back(chunk.exchanges.front());
    NeedsOf(launches);
    for (const ChunkBody& chunk : chunks) CheckReadsAreFound(chunk);

    std::vector<int32_t> all_copies;
    for (const ChunkBody& chunk : chunks) {
      std::vector<int32_t> copies = CopiesOf(chunk);
      RunNeedsOf(copies);
      all_copies.insert(all_copies.end(), copies.begin(), copies.end());
    }
    RunAll(all_copies);
    for (const ChunkBody& chunk : chunks) RunNeedsOf(chunk.reads);
    for (const ChunkBody& chunk : chunks) RunAll(chunk.reads);
  }

  // What begins to bring token counts to the host: a copy beside compute, or the read itself.
  std::vector<int32_t> CopiesOf(const ChunkBody& chunk) const {
    std::vector<int32_t> copies;
    for (int32_t read : chunk.reads) {
      const Node* source = dependencies_.node(read)->operand(0)->producer();
      while (source != nullptr && source->op().transfer == Transfer::kWait) {
        source = source->operand(0)->producer();
      }
      bool is_copy = source != nullptr && source->op().transfer == Transfer::kOffload &&
                     IsOwn(source->number());
      copies.push_back(is_copy ? source->number() : read);
    }
    return copies;
  }

  void CheckReads() const {
    const ChunkBody& first = region_.chunks.front();
    for (const ChunkBody& chunk : region_.chunks) {
      if (chunk.reads.empty() == first.reads.empty()) continue;
      const ChunkBody& reading = chunk.reads.empty() ? first : chunk;
      const ChunkBody& other = chunk.reads.empty() ? chunk : first;
      Fail(ErrorCode::kCountSyncMismatch,
           "{}: chunk {} reads token counts on the host with {}, chunk {} reads none. Every chunk "
           "must be a copy of the same module; run the schedule directly behind chunking",
           region_.Text(), reading.id, DescribeNode(*dependencies_.node(reading.reads.front())),
           other.id);
    }
  }

  void CheckReadsAreFound(const ChunkBody& chunk) const {
    for (int32_t read : chunk.reads) {
      if (WasFound(read) || table_.done[At(read)]) continue;
      Fail(ErrorCode::kCountSyncMismatch,
           "{}: {} of chunk {} reads numbers on the host that the chunk's first exchange, {}, does "
           "not need: the host would wait in a second place. Read all token counts in front of the "
           "first exchange",
           region_.Text(), DescribeNode(*dependencies_.node(read)), chunk.id,
           DescribeNode(*dependencies_.node(chunk.exchanges.front())));
    }
  }

  [[noreturn]] void FailLaterExchange(const Node& exchange, int32_t user, int32_t target) const {
    const Node& next = *dependencies_.node(target);
    Fail(ErrorCode::kIllegalOrder,
         "{}: {} of chunk {} would run before {} of chunk {}, but needs it: {} comes behind it. "
         "Chunks that depend on each other like this cannot take turns",
         region_.Text(), DescribeNode(next), next.meta().chunk->id, DescribeNode(exchange),
         exchange.meta().chunk->id, DescribeNode(*dependencies_.node(user)));
  }

  const Dependencies& dependencies_;
  const Region& region_;
  int32_t index_, first_, last_;
  NodeTable& table_;
  std::vector<Turn> turns_;
  bool holds_collectives_ = true;
  std::vector<int32_t> order_;
  std::vector<int32_t> finished_, stack_;  // memory for searches
};

// One order of all nodes that keeps to the order of each region and otherwise to the graph's own.
class Merge {
 public:
  explicit Merge(const Dependencies& dependencies)
      : dependencies_(dependencies),
        before_(At(dependencies.count()), kNoNumber),
        behind_(At(dependencies.count()), kNoNumber) {}

  void Add(std::span<const int32_t> region_order) {
    for (size_t i = 1; i < region_order.size(); ++i) {
      before_[At(region_order[i])] = region_order[i - 1];
      behind_[At(region_order[i - 1])] = region_order[i];
    }
  }

  std::vector<int32_t> Order() {
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
    std::vector<int32_t> missing(At(dependencies_.count()));
    for (int32_t number = 0; number < dependencies_.count(); ++number) {
      missing[At(number)] = static_cast<int32_t>(dependencies_.NeededBy(number).size()) +
                            (before_[At(number)] != kNoNumber ? 1 : 0);
      if (missing[At(number)] == 0) ready.push(number);
    }
    std::vector<int32_t> order;
    order.reserve(missing.size());
    auto release = [&](int32_t number) {
      if (--missing[At(number)] == 0) ready.push(number);
    };
    while (!ready.empty()) {
      const int32_t number = ready.top();
      ready.pop();
      order.push_back(number);
      for (int32_t user : dependencies_.UsersOf(number)) release(user);
      if (behind_[At(number)] != kNoNumber) release(behind_[At(number)]);
    }
    if (order.size() < missing.size()) FailCycle(missing);
    return order;
  }

 private:
  // Every node that is left waits for another one that is left, because it needs it or because its
  // region's order says so. Going from each to such a one ends in a circle, on which some step is the
  // region's wish: needs alone make no circle.
  [[noreturn]] void FailCycle(const std::vector<int32_t>& missing) const {
    auto needed_by = [&](int32_t number) {
      for (int32_t needed : dependencies_.NeededBy(number)) {
        if (missing[At(needed)] > 0) return needed;
      }
      return kNoNumber;
    };
    int32_t later = 0;
    while (missing[At(later)] == 0) ++later;
    size_t steps = 0;
    for (; steps < missing.size() || needed_by(later) != kNoNumber; ++steps) {
      const int32_t needed = needed_by(later);
      later = needed != kNoNumber ? needed : before_[At(later)];
    }
    int32_t earlier = before_[At(later)];
    while (needed_by(earlier) == kNoNumber) earlier = before_[At(earlier)];
    const Node& node = *dependencies_.node(later);
    Fail(
        ErrorCode::kIllegalOrder,
        "region '{}' ({}): its order asks {} to run behind {}, but that needs {}, which cannot run "
        "before the first. Regions that depend on each other like this cannot be scheduled",
        node.meta().chunk->region.str(), Spelling(node.meta().phase), DescribeNode(node),
        DescribeNode(*dependencies_.node(earlier)),
        DescribeNode(*dependencies_.node(needed_by(earlier))));
  }

  const Dependencies& dependencies_;
  std::vector<int32_t> before_, behind_;  // neighbours in the region's order
};

}  // namespace

std::vector<int32_t> StructuralOrder(Graph& graph, const Dependencies& dependencies,
                                     bool pair_first) {
  GT_CHECK(graph.node_count() == dependencies.count(), "the graph has changed");
  std::vector<Region> regions = RegionFinder(dependencies).Find();
  NodeTable table(dependencies, regions);
  StrayNodes stray(dependencies, table);
  for (size_t i = 0; i < regions.size(); ++i) stray.Remove(regions[i], static_cast<int32_t>(i));
  Merge merge(dependencies);
  for (size_t i = 0; i < regions.size(); ++i) {
    RegionSchedule schedule(dependencies, regions[i], static_cast<int32_t>(i), table);
    merge.Add(schedule.Order(pair_first));
  }
  return merge.Order();
}

}  // namespace gt
