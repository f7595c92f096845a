#include "gt/ir/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "gt/ir/text.h"

namespace gt {
namespace {

struct Item {
  const Node* node;
  std::string key;   // equal in both graphs if it is the same node
  std::string text;  // nested graphs cut out: their nodes are items of their own
};

// All nodes of a graph and of the graphs nested in it, in order. Keys of nested nodes begin with
// that of the node around them.
class Items {
 public:
  explicit Items(const Graph& graph) { Collect(graph, ""); }

  const std::vector<Item>& all() const { return all_; }
  // Position, or -1.
  int64_t Find(const std::string& key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? -1 : static_cast<int64_t>(found->second);
  }

 private:
  void Collect(const Graph& graph, const std::string& prefix) {
    for (const Node* node : graph.nodes()) {
      std::string text = TextOf(*node);
      std::string key = prefix + KeyOf(*node, text);
      // Nodes without a name of their own may occur twice.
      for (int copy = 2; by_key_.contains(key); ++copy) {
        key = fmt::format("{}{} #{}", prefix, KeyOf(*node, text), copy);
      }
      by_key_.emplace(key, all_.size());
      all_.push_back({node, key, prefix.empty() ? std::move(text) : prefix + text});
      for (size_t i = 0; i < node->args().size(); ++i) {
        const auto* nested = std::get_if<GraphRef>(&node->args()[i]);
        if (nested == nullptr || *nested == nullptr) continue;
        Collect(**nested, fmt::format("{}/{}: ", key, node->op().schema.args[i].name));
      }
    }
  }

  static std::string KeyOf(const Node& node, const std::string& text) {
    if (node.result_count() > 0) return "%" + node.result(0)->name();
    if (node.bound_symbols().empty()) return text;
    return node.graph().shapes().NameOf(node.bound_symbols()[0]);
  }

  // A node with a nested graph takes several lines; only the first and what follows the graph
  // belong to the node itself.
  static std::string TextOf(const Node& node) {
    std::string text = Print(node);
    bool nested = false;
    ForEachNestedGraph(node, [&](const Graph&) { nested = true; });
    if (!nested) return text;
    std::string own;
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      // Lines inside nested graphs are indented.
      if (text[begin] != ' ') own.append(text, begin, end - begin).append(" ");
      begin = end + 1;
    }
    own.pop_back();
    return own;
  }

  std::vector<Item> all_;
  std::unordered_map<std::string, size_t> by_key_;
};

// What a graph declares apart from its nodes, a line each.
std::vector<std::string> Declarations(const Graph& graph) {
  std::vector<std::string> lines;
  const ShapeEnv& shapes = graph.shapes();
  for (const auto& input : graph.inputs()) {
    lines.push_back(fmt::format("input %{}: {} \"{}\" {}", input->value.name(),
                                Spelling(input->role), input->name,
                                Print(input->value.type(), shapes)));
  }
  for (const Symbol& symbol : shapes.symbols()) {
    lines.push_back(fmt::format("symbol {}: {}, hint {}, range [{}, {}]", symbol.name,
                                symbol.kind == Symbol::Kind::kInput ? "input" : "data", symbol.hint,
                                symbol.low,
                                symbol.high == kUnbounded ? "inf" : std::to_string(symbol.high)));
  }
  for (const auto& [left, right] : shapes.facts()) {
    lines.push_back(fmt::format("fact {} == {}", shapes.Print(left), shapes.Print(right)));
  }
  for (const Guard& guard : shapes.guards()) {
    lines.push_back(fmt::format("guard {}", guard.predicate.ToString(shapes.Namer())));
  }
  for (size_t i = 0; i < kModuleRoles; ++i) {
    const auto role = static_cast<ModuleRole>(i);
    for (Name module : graph.modules().With(role)) {
      lines.push_back(fmt::format("module {}: {}", module.str(), Spelling(role)));
    }
  }
  for (const auto& output : graph.outputs()) {
    lines.push_back(fmt::format("output {} \"{}\" %{}", Spelling(output->role), output->name,
                                output->value()->name()));
  }
  return lines;
}

// Lines of `lines` that `others` does not have.
void AppendMissing(const std::vector<std::string>& lines, const std::vector<std::string>& others,
                   std::vector<std::string>& out) {
  const std::unordered_set<std::string_view> known(others.begin(), others.end());
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(out),
               [&](const std::string& line) { return !known.contains(line); });
}

// The length of the longest increasing subsequence: that many elements are in order already.
size_t InOrder(const std::vector<int64_t>& positions) {
  std::vector<int64_t>
      tails;  // tails[n]: the smallest element that ends an increasing run of n + 1
  for (int64_t position : positions) {
    const auto at = std::lower_bound(tails.begin(), tails.end(), position);
    if (at == tails.end()) {
      tails.push_back(position);
    } else {
      *at = position;
    }
  }
  return tails.size();
}

void CountOperators(const Items& items, int64_t GraphDiff::Count::*side, GraphDiff& diff) {
  for (const Item& item : items.all()) ++(diff.by_operator[item.node->op().name.str()].*side);
}

}  // namespace

GraphDiff Diff(const Graph& before, const Graph& after) {
  const Items old_items(before), new_items(after);
  GraphDiff diff;
  CountOperators(old_items, &GraphDiff::Count::before, diff);
  CountOperators(new_items, &GraphDiff::Count::after, diff);
  std::erase_if(diff.by_operator,
                [](const auto& entry) { return entry.second.before == entry.second.after; });

  const std::vector<std::string> old_lines = Declarations(before), new_lines = Declarations(after);
  AppendMissing(old_lines, new_lines, diff.removed);
  AppendMissing(new_lines, old_lines, diff.added);

  for (const Item& item : old_items.all()) {
    if (new_items.Find(item.key) >= 0) continue;
    diff.removed.push_back(item.text);
    ++diff.by_module[item.node->meta().module.str()].before;
  }
  std::vector<int64_t> positions;  // in the old graph, of the nodes that stayed
  for (const Item& item : new_items.all()) {
    const int64_t position = old_items.Find(item.key);
    if (position < 0) {
      diff.added.push_back(item.text);
      ++diff.by_module[item.node->meta().module.str()].after;
      continue;
    }
    positions.push_back(position);
    const Item& old_item = old_items.all()[static_cast<size_t>(position)];
    if (old_item.text != item.text) diff.changed.push_back({old_item.text, item.text});
  }
  diff.moved = static_cast<int64_t>(positions.size() - InOrder(positions));
  return diff;
}

std::string Print(const GraphDiff& diff) {
  if (diff.empty()) return "no difference\n";
  std::string out;
  auto append = std::back_inserter(out);
  fmt::format_to(append, "{} added, {} removed, {} changed, {} moved\n", diff.added.size(),
                 diff.removed.size(), diff.changed.size(), diff.moved);
  for (const auto& [op, count] : diff.by_operator) {
    fmt::format_to(append, "  {}: {} -> {}\n", op, count.before, count.after);
  }
  for (const auto& [module, count] : diff.by_module) {
    fmt::format_to(append, "  in module '{}': -{} +{}\n", module, count.before, count.after);
  }
  for (const std::string& line : diff.removed) fmt::format_to(append, "- {}\n", line);
  for (const std::string& line : diff.added) fmt::format_to(append, "+ {}\n", line);
  for (const GraphDiff::Change& change : diff.changed) {
    fmt::format_to(append, "~ {}\n  {}\n", change.before, change.after);
  }
  return out;
}

}  // namespace gt
