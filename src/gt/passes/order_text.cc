#include "gt/passes/order_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>

#include "gt/base/error.h"
#include "gt/passes/own_parts.h"
#include "gt/sim/timeline.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

constexpr std::string_view kUnchanged = "unchanged";

[[noreturn]] void FailForeign(std::string_view why) {
  Fail(ErrorCode::kRanksDisagree,
       "the order that the first rank planned is for another graph than this rank's: {}; ranks that "
       "run the same program on the same configuration have the same nodes, so this is a defect of a "
       "pass that looks at a rank's own shards (--compile.debug_graph_passes shows which)",
       why);
}

// "0-15 40 16-39": what the common nodes are called, as runs.
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
    if (*at == ' ' || *at == '\n') {
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
  return indices;
}

}  // namespace

// Puts the rank's own nodes between the common ones.
class CommonOrder::Placement {
 public:
  explicit Placement(const CommonOrder& common)
      : common_(common),
        dependencies_(common.dependencies_),
        placed_(common.index_of_.size(), false) {}

  std::vector<int32_t> Of(const std::vector<int32_t>& indices) {
    order_.reserve(placed_.size());
    for (int32_t index : indices) {
      const int32_t number = common_.numbers_[static_cast<size_t>(index)];
      if (placed_[static_cast<size_t>(number)]) {
        Fail(ErrorCode::kIllegalOrder, "a planned order names node {} twice", index);
      }
      PlaceNeeds(number);
      Place(number);
    }
    // Those that need no other node at all.
    for (int32_t number = 0; number < dependencies_.count(); ++number) {
      if (!placed_[static_cast<size_t>(number)] && IsOwn(number)) Place(number);
    }
    if (order_.size() != placed_.size()) {
      Fail(ErrorCode::kIllegalOrder, "a planned order leaves out {} of {} nodes",
           placed_.size() - order_.size(), placed_.size());
    }
    return std::move(order_);
  }

 private:
  bool IsOwn(int32_t number) const { return common_.index_of_[static_cast<size_t>(number)] < 0; }

  void PlaceNeeds(int32_t number) {
    for (int32_t needed : dependencies_.NeededBy(number)) {
      if (placed_[static_cast<size_t>(needed)] || !IsOwn(needed)) continue;
      PlaceNeeds(needed);
      Place(needed);
    }
  }

  // And the rank's own nodes for which this was the last thing missing, unless a common one will ask
  // for them.
  void Place(int32_t number) {
    placed_[static_cast<size_t>(number)] = true;
    order_.push_back(number);
    for (int32_t user : dependencies_.UsersOf(number)) {
      if (placed_[static_cast<size_t>(user)] || !IsOwn(user) ||
          common_.leads_[static_cast<size_t>(user)]) {
        continue;
      }
      bool ready = true;
      for (int32_t needed : dependencies_.NeededBy(user)) {
        ready &= placed_[static_cast<size_t>(needed)];
      }
      if (ready) Place(user);
    }
  }

  const CommonOrder& common_;
  const Dependencies& dependencies_;
  std::vector<bool> placed_;
  std::vector<int32_t> order_;
};

CommonOrder::CommonOrder(const Graph& graph, const Dependencies& dependencies)
    : dependencies_(dependencies),
      index_of_(static_cast<size_t>(dependencies.count()), -1),
      leads_(static_cast<size_t>(dependencies.count()), false) {
  const OwnParts parts(graph, dependencies);
  Xxh64 digest;
  auto update = [&digest](std::string_view text) {
    digest.Update(std::as_bytes(std::span(text)));
    digest.Update(std::as_bytes(std::span("\n", 1)));
  };
  for (int32_t number = 0; number < dependencies.count(); ++number) {
    const Node& node = *dependencies.node(number);
    // Collectives and their waits are there on every rank, whatever they handle.
    const bool meets = !QueueOf(node).empty() || AwaitedBy(node) != nullptr;
    if (parts.own[static_cast<size_t>(number)] && !meets) continue;
    index_of_[static_cast<size_t>(number)] = static_cast<int32_t>(numbers_.size());
    numbers_.push_back(number);
    update(node.op().name.str());
    update(node.meta().module.str());
    if (node.op().group_arg >= 0) update(std::get<std::string>(node.arg(node.op().group_arg)));
  }
  hash_ = digest.Digest();
  for (size_t i = leads_.size(); i-- > 0;) {
    for (int32_t user : dependencies.UsersOf(static_cast<int32_t>(i))) {
      const auto index = static_cast<size_t>(user);
      if (index_of_[index] >= 0 || leads_[index]) leads_[i] = true;
    }
  }
}

std::string CommonOrder::Head() const {
  return fmt::format("{:016x} {}", hash_, numbers_.size());
}

std::vector<int32_t> CommonOrder::IndicesOf(std::span<const int32_t> order) const {
  std::vector<int32_t> indices;
  indices.reserve(numbers_.size());
  for (int32_t number : order) {
    const int32_t index = index_of_[static_cast<size_t>(number)];
    if (index >= 0) indices.push_back(index);
  }
  return indices;
}

std::string CommonOrder::ToText(std::span<const int32_t> order) const {
  if (std::is_sorted(order.begin(), order.end())) return Head() + "\n" + std::string(kUnchanged);
  std::string text = Head() + "\n";
  const std::vector<int32_t> indices = IndicesOf(order);
  for (size_t first = 0; first < indices.size();) {
    size_t last = first;
    while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
    auto out = std::back_inserter(text);
    if (last > first) {
      fmt::format_to(out, "{}-{} ", indices[first], indices[last]);
    } else {
      fmt::format_to(out, "{} ", indices[first]);
    }
    first = last + 1;
  }
  return text;
}

std::vector<int32_t> CommonOrder::FromText(std::string_view text) const {
  const size_t end = text.find('\n');
  if (end == text.npos || text.substr(0, end) != Head()) {
    FailForeign(fmt::format("'{}' there, '{}' here (hash and number of the nodes that ranks have "
                            "in common)",
                            text.substr(0, std::min(end, size_t{40})), Head()));
  }
  const std::string_view runs = text.substr(end + 1);
  if (runs == kUnchanged) {
    std::vector<int32_t> order(index_of_.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  return Placement(*this).Of(ReadRuns(runs, numbers_.size()));
}

std::vector<int32_t> CommonOrder::Placed(std::span<const int32_t> order) const {
  if (std::is_sorted(order.begin(), order.end())) return {order.begin(), order.end()};
  return Placement(*this).Of(IndicesOf(order));
}

}  // namespace gt
