#include "gt/passes/order_text.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

#include "gt/base/error.h"
#include "gt/passes/own_parts.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

// The nodes that all ranks have.
struct CommonNodes {
  std::vector<int32_t> numbers;   // in the order of the graph
  std::vector<int32_t> index_of;  // by number; -1: of this rank alone
  uint64_t hash = 0;              // of what they are

  CommonNodes(const Graph& graph, const Dependencies& dependencies)
      : index_of(static_cast<size_t>(dependencies.count()), -1) {
    const OwnParts parts(graph, dependencies);
    Xxh64 digest;
    auto update = [&digest](std::string_view text) {
      digest.Update(std::as_bytes(std::span(text)));
      digest.Update(std::as_bytes(std::span("\n", 1)));
    };
    for (int32_t number = 0; number < dependencies.count(); ++number) {
      if (parts.own[static_cast<size_t>(number)]) continue;
      index_of[static_cast<size_t>(number)] = static_cast<int32_t>(numbers.size());
      numbers.push_back(number);
      const Node& node = *dependencies.node(number);
      update(node.op().name.str());
      update(node.meta().module.str());
      if (node.op().group_arg >= 0) update(std::get<std::string>(node.arg(node.op().group_arg)));
    }
    hash = digest.Digest();
  }
};

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

// Puts the rank's own nodes between the common ones.
class Placement {
 public:
  Placement(const Dependencies& dependencies, const CommonNodes& common)
      : dependencies_(dependencies),
        common_(common),
        placed_(static_cast<size_t>(dependencies.count()), false) {}

  std::vector<int32_t> Of(const std::vector<int32_t>& indices) {
    order_.reserve(placed_.size());
    for (int32_t index : indices) {
      const int32_t number = common_.numbers[static_cast<size_t>(index)];
      if (placed_[static_cast<size_t>(number)]) {
        Fail(ErrorCode::kIllegalOrder, "a planned order names node {} twice", index);
      }
      PlaceNeeds(number);
      Place(number);
    }
    // Those that depend on no other node at all.
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
  bool IsOwn(int32_t number) const { return common_.index_of[static_cast<size_t>(number)] < 0; }

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
      if (placed_[static_cast<size_t>(user)] || !IsOwn(user) || LeadsToCommon(user)) continue;
      bool ready = true;
      for (int32_t needed : dependencies_.NeededBy(user)) {
        ready &= placed_[static_cast<size_t>(needed)];
      }
      if (ready) Place(user);
    }
  }

  bool LeadsToCommon(int32_t number) {
    if (leads_.empty()) {
      leads_.resize(placed_.size(), false);
      for (size_t i = leads_.size(); i-- > 0;) {
        for (int32_t user : dependencies_.UsersOf(static_cast<int32_t>(i))) {
          if (!IsOwn(user) || leads_[static_cast<size_t>(user)]) leads_[i] = true;
        }
      }
    }
    return leads_[static_cast<size_t>(number)];
  }

  const Dependencies& dependencies_;
  const CommonNodes& common_;
  std::vector<bool> placed_, leads_;
  std::vector<int32_t> order_;
};

}  // namespace

std::string OrderToText(const Graph& graph, const Dependencies& dependencies,
                        std::span<const int32_t> order) {
  const CommonNodes common(graph, dependencies);
  std::string text = fmt::format("{:016x} {}\n", common.hash, common.numbers.size());
  int32_t first = -1, last = -1;
  auto flush = [&] {
    if (first < 0) return;
    if (last > first) {
      fmt::format_to(std::back_inserter(text), "{}-{} ", first, last);
    } else {
      fmt::format_to(std::back_inserter(text), "{} ", first);
    }
  };
  for (int32_t number : order) {
    const int32_t index = common.index_of[static_cast<size_t>(number)];
    if (index < 0) continue;
    if (first >= 0 && index == last + 1) {
      last = index;
      continue;
    }
    flush();
    first = last = index;
  }
  flush();
  return text;
}

std::vector<int32_t> OrderFromText(const Graph& graph, const Dependencies& dependencies,
                                   std::string_view text) {
  const CommonNodes common(graph, dependencies);
  const size_t end = text.find('\n');
  const std::string expected = fmt::format("{:016x} {}", common.hash, common.numbers.size());
  if (end == text.npos || text.substr(0, end) != expected) {
    FailForeign(fmt::format("'{}' there, '{}' here (hash and number of the nodes that ranks have "
                            "in common)",
                            text.substr(0, std::min(end, size_t{40})), expected));
  }
  return Placement(dependencies, common).Of(ReadRuns(text.substr(end), common.numbers.size()));
}

}  // namespace gt
