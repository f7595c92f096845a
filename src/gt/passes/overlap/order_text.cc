#include "gt/passes/overlap/order_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/passes/overlap/node_keys.h"
#include "gt/passes/overlap/rank_local_nodes.h"
#include "gt/sim/cost_model.h"
#include "gt/sim/queues.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

constexpr std::string_view kUnchanged = "unchanged";
constexpr int32_t kNotCommon = -1;

[[noreturn]] void FailForeign(std::string_view why) {
  Fail(ErrorCode::kRanksDisagree,
       "the order that the first rank planned does not fit this rank's step: {}; ranks of one job "
       "have the same collectives, waits and reads, so this is a defect of a pass that looks at "
       "what "
       "only one rank has (--compile.debug_graph_passes shows what each did)",
       why);
}

std::string NameOf(const Node& node) {
  return node.result_count() > 0 ? node.result()->name() : "no result";
}

// "0-15 40 16-39".
std::vector<int32_t> ReadRuns(std::string_view text, size_t count) {
  std::vector<int32_t> indices;
  indices.reserve(count);
  const char* at = text.data();
  const char* const end = at + text.size();
  auto number = [&] {
    int32_t value = -1;
    auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || static_cast<size_t>(value) >= count) {
      Fail(ErrorCode::kIllegalOrder, "a planned order names the node '{}', of {}",
           std::string_view(at, static_cast<size_t>(std::min<ptrdiff_t>(end - at, 12))), count);
    }
    at = next;
    return value;
  };
  while (at < end) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    const int32_t first = number();
    int32_t last = first;
    if (at < end && *at == '-') {
      ++at;
      last = number();
    }
    for (int32_t index = first; index <= last; ++index) indices.push_back(index);
  }
  std::vector<int32_t> sorted = indices;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < count; ++i) {
    if (i >= sorted.size() || sorted[i] != static_cast<int32_t>(i)) {
      Fail(ErrorCode::kIllegalOrder, "a planned order names node {} {}", i,
           i >= sorted.size() || sorted[i] > static_cast<int32_t>(i) ? "not at all" : "twice");
    }
  }
  if (sorted.size() != count) Fail(ErrorCode::kIllegalOrder, "a planned order names a node twice");
  return indices;
}

constexpr size_t kKeyDigits = NodeKeys::kDigits;

std::vector<uint64_t> ReadKeys(std::string_view text) {
  std::vector<uint64_t> keys;
  for (size_t at = 0; at + kKeyDigits <= text.size(); at += kKeyDigits) {
    uint64_t key = 0;
    const char* const begin = text.data() + at;
    auto [end, error] = std::from_chars(begin, begin + kKeyDigits, key, 16);
    if (error != std::errc() || end != begin + kKeyDigits) {
      Fail(ErrorCode::kIllegalOrder, "a planned order has damaged keys");
    }
    keys.push_back(key);
  }
  return keys;
}

}  // namespace

// Puts the nodes that the order is not about between those that it is about.
class CommonOrder::Placement {
 public:
  // `foreign`: the order is that of a rank whose nodes differ. The k-th node of a kind there need not be the
  // k-th here, as where one of them pads a shard more: only the order of what synchronizes is binding, and a
  // node that needs what comes later is placed where another one needs it.
  Placement(const CommonOrder& common, bool foreign)
      : common_(common),
        dependencies_(common.dependencies_),
        foreign_(foreign),
        placed_(common.index_of_.size(), false),
        lacks_(foreign ? common.index_of_.size() : 0, kNothing) {}

  std::vector<int32_t> Of(std::span<const int32_t> numbers) {
    order_.reserve(placed_.size());
    for (int32_t number : numbers) {
      if (placed_[static_cast<size_t>(number)]) continue;  // another node needed it before
      if (foreign_ && !common_.Synchronizes(number) && LacksOne(number)) continue;
      PlaceNeeds(number);
      Place(number);
    }
    for (int32_t number = 0; number < dependencies_.count(); ++number) {
      if (placed_[static_cast<size_t>(number)]) continue;
      PlaceNeeds(number);
      Place(number);
    }
    return std::move(order_);
  }

 private:
  void PlaceNeeds(int32_t number) {
    for (int32_t needed : dependencies_.NeededBy(number)) {
      if (placed_[static_cast<size_t>(needed)]) continue;
      if (common_.Synchronizes(needed)) {
        const Node &user = *dependencies_.node(number), &missing = *dependencies_.node(needed);
        Fail(ErrorCode::kIllegalOrder,
             "a planned order has '{}' (%{}, module '{}') before '{}' (%{}, module '{}'), which it "
             "needs",
             user.op().name.str(), NameOf(user), user.meta().module.str(), missing.op().name.str(),
             NameOf(missing), missing.meta().module.str());
      }
      PlaceNeeds(needed);
      Place(needed);
    }
  }

  // Whether it needs a node, at any distance, that synchronizes and is still to come. What is found is
  // remembered, so that long chains of nodes that wait for one are not walked again and again.
  bool LacksOne(int32_t number) {
    int32_t& lacks = lacks_[static_cast<size_t>(number)];
    if (lacks != kNothing && !placed_[static_cast<size_t>(lacks)]) return true;
    for (int32_t needed : dependencies_.NeededBy(number)) {
      if (placed_[static_cast<size_t>(needed)]) continue;
      if (common_.Synchronizes(needed)) {
        lacks = needed;
        return true;
      }
      if (LacksOne(needed)) {
        lacks = lacks_[static_cast<size_t>(needed)];
        return true;
      }
    }
    return false;
  }

  // And the nodes that only waited for this one, unless a later node will ask for them.
  void Place(int32_t number) {
    placed_[static_cast<size_t>(number)] = true;
    order_.push_back(number);
    for (int32_t user : dependencies_.UsersOf(number)) {
      const auto index = static_cast<size_t>(user);
      if (placed_[index] || common_.index_of_[index] != kNotCommon || common_.leads_[index])
        continue;
      bool ready = true;
      for (int32_t needed : dependencies_.NeededBy(user)) {
        ready &= placed_[static_cast<size_t>(needed)];
      }
      if (ready) Place(user);
    }
  }

  static constexpr int32_t kNothing = -1;

  const CommonOrder& common_;
  const Dependencies& dependencies_;
  const bool foreign_;
  std::vector<bool> placed_;
  std::vector<int32_t>
      lacks_;  // by number, of a foreign order: what it lacked when it was asked last
  std::vector<int32_t> order_;
};

CommonOrder::CommonOrder(const Graph& graph, const Dependencies& dependencies)
    : dependencies_(dependencies),
      index_of_(static_cast<size_t>(dependencies.count()), kNotCommon),
      leads_(static_cast<size_t>(dependencies.count()), false),
      synchronizes_(static_cast<size_t>(dependencies.count()), false) {
  const RankLocalNodes parts(graph, dependencies);
  const SymbolValues hints = graph.shapes().Hints();
  NodeKeys keys;
  Xxh64 digest;
  for (int32_t number = 0; number < dependencies.count(); ++number) {
    const auto at = static_cast<size_t>(number);
    const Node& node = *dependencies.node(number);
    // Every rank has all collectives and their waits, whatever they handle.
    synchronizes_[at] =
        !QueueOf(node).empty() || AwaitedBy(node) != nullptr || node.op().reads_data;
    if (!synchronizes_[at] && (parts.own[at] || !TakesTime(node, hints))) continue;
    const uint64_t key = keys.Next(node);
    index_of_[at] = static_cast<int32_t>(numbers_.size());
    numbers_.push_back(number);
    keys_.push_back(key);
    digest.Update(std::as_bytes(std::span(&key, 1)));
  }
  hash_ = digest.Digest();
  for (size_t i = leads_.size(); i-- > 0;) {
    for (int32_t user : dependencies.UsersOf(static_cast<int32_t>(i))) {
      const auto index = static_cast<size_t>(user);
      if (index_of_[index] != kNotCommon || leads_[index]) leads_[i] = true;
    }
  }
}

std::string CommonOrder::Head() const { return fmt::format("{:016x} {}", hash_, numbers_.size()); }

std::vector<int32_t> CommonOrder::IndicesOf(std::span<const int32_t> order) const {
  std::vector<int32_t> indices;
  indices.reserve(numbers_.size());
  for (int32_t number : order) {
    const int32_t index = index_of_[static_cast<size_t>(number)];
    if (index != kNotCommon) indices.push_back(index);
  }
  return indices;
}

// Three lines: head, runs, keys.
std::string CommonOrder::ToText(std::span<const int32_t> order) const {
  std::string text = Head() + "\n";
  auto out = std::back_inserter(text);
  if (std::is_sorted(order.begin(), order.end())) {
    text += kUnchanged;
  } else {
    const std::vector<int32_t> indices = IndicesOf(order);
    for (size_t first = 0; first < indices.size();) {
      size_t last = first;
      while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
      if (last > first) {
        fmt::format_to(out, "{}-{} ", indices[first], indices[last]);
      } else {
        fmt::format_to(out, "{} ", indices[first]);
      }
      first = last + 1;
    }
  }
  text += "\n";
  for (uint64_t key : keys_) fmt::format_to(out, "{:012x}", key);
  return text;
}

std::vector<int32_t> CommonOrder::Find(const std::vector<uint64_t>& keys) const {
  std::unordered_map<uint64_t, int32_t> by_key;
  for (size_t i = 0; i < keys_.size(); ++i) by_key.emplace(keys_[i], numbers_[i]);
  std::vector<int32_t> found;
  int64_t synchronizing = 0;
  for (uint64_t key : keys) {
    auto entry = by_key.find(key);
    found.push_back(entry == by_key.end() ? kNotCommon : entry->second);
    if (found.back() != kNotCommon && Synchronizes(found.back())) ++synchronizing;
  }
  const auto here = std::count(synchronizes_.begin(), synchronizes_.end(), true);
  if (synchronizing != here) {
    FailForeign(fmt::format("it knows {} of the {} collectives, waits and reads here",
                            synchronizing, here));
  }
  return found;
}

std::vector<int32_t> CommonOrder::FromText(std::string_view text) const {
  const std::vector<std::string> lines = Split(std::string(text), '\n');
  if (lines.size() != 3) FailForeign("it is damaged");
  const bool alike = lines[0] == Head();
  const bool unchanged = lines[1] == kUnchanged;
  if (alike && unchanged) {
    std::vector<int32_t> order(index_of_.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  const std::vector<int32_t> found = alike ? numbers_ : Find(ReadKeys(lines[2]));
  std::vector<int32_t> indices(found.size());
  std::iota(indices.begin(), indices.end(), 0);
  if (!unchanged) indices = ReadRuns(lines[1], found.size());
  std::vector<int32_t> numbers;
  for (int32_t index : indices) {
    const int32_t number = found[static_cast<size_t>(index)];
    if (number != kNotCommon) numbers.push_back(number);
  }
  return Placement(*this, /*foreign=*/!alike).Of(numbers);
}

std::vector<int32_t> CommonOrder::Placed(std::span<const int32_t> order) const {
  if (std::is_sorted(order.begin(), order.end())) return {order.begin(), order.end()};
  std::vector<int32_t> numbers;
  for (int32_t index : IndicesOf(order)) numbers.push_back(numbers_[static_cast<size_t>(index)]);
  return Placement(*this, /*foreign=*/false).Of(numbers);
}

}  // namespace gt
