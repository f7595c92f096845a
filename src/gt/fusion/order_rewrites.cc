#include "gt/fusion/order_rewrites.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "gt/fusion/groups.h"
#include "gt/fusion/order_kernels.h"
#include "gt/ir/builder.h"

namespace gt::fusion {
namespace {

const Argument* ArgumentOf(const Node& node, std::string_view name) {
  const int position = node.op().schema.Find(name);
  return position < 0 ? nullptr : &node.arg(position);
}
bool HasArgument(const Node& node, std::string_view name, const Argument& value) {
  const Argument* argument = ArgumentOf(node, name);
  return argument != nullptr && *argument == value;
}

bool IsCalled(const Node* node, std::string_view name) {
  return node != nullptr && node->op().name.str() == name;
}

bool AreOfOnePart(const Node& a, const Node& b) {
  auto chunk = [](const Node& node) {
    return node.meta().chunk == nullptr ? -1 : node.meta().chunk->id;
  };
  return a.meta().phase == b.meta().phase && chunk(a) == chunk(b);
}

// How many experts there are, of a value that holds the chosen ones of each token: every number is below it, and
// those of one token differ.
std::optional<int64_t> ExpertsAmong(const Value& chosen) {
  const Node* choice = chosen.producer();
  if (chosen.type().rank() != 2 || chosen.index() != 1) return std::nullopt;
  if (!IsCalled(choice, "gt::router")) {
    if (!IsCalled(choice, "aten::topk")) return std::nullopt;
    if (!HasArgument(*choice, "dim", Dim(-1)) && !HasArgument(*choice, "dim", Dim(1))) {
      return std::nullopt;
    }
  }
  const std::optional<int64_t> experts = choice->operand(0)->type().sizes[1].as_const();
  return experts && *experts <= kMostOrderedExperts ? experts : std::nullopt;
}

bool IsZero(const Value& value) { return IsCalled(value.producer(), "aten::zeros_like"); }

class Orderer {
 public:
  explicit Orderer(Graph& graph) : graph_(graph) {
    graph.NumberNodes();
    barriers_.reserve(static_cast<size_t>(graph.node_count()) + 1);
    barriers_.push_back(0);
    for (const Node* node : graph.nodes()) barriers_.push_back(barriers_.back() + IsBarrier(*node));
  }

  bool Replace(Node& sort) {
    if (!IsCalled(&sort, "aten::sort.stable") || !HasArgument(sort, "stable", true) ||
        !HasArgument(sort, "descending", false) || sort.result(0)->has_uses() ||
        sort.operand(0)->type().rank() != 1) {
      return false;
    }
    Value* chosen = sort.operand(0);
    while (!chosen->is_input() && chosen->producer()->op().view == ViewKind::kReshape) {
      chosen = chosen->producer()->operand(0);
    }
    if (chosen->is_input()) return false;
    const std::optional<int64_t> experts = ExpertsAmong(*chosen);
    if (!experts) return false;
    Node* const inverse = InverseOf(sort);
    Node* const counts = CountsOf(*chosen, sort, *experts);
    // It runs where the first of them was; all it needs is the choice.
    Node* place = &sort;
    if (counts != nullptr && counts->number() < sort.number()) place = counts;
    Node* order = NodeBuilder(graph_, "gt::expert_order")
                      .Set("experts", chosen)
                      .Set("count", Dim(*experts))
                      .With(sort.meta())
                      .Insert(place);
    sort.result(1)->ReplaceAllUses(order->result(0));
    Dead(&sort);
    if (inverse != nullptr) {
      inverse->result()->ReplaceAllUses(order->result(1));
      Dead(inverse);
    }
    if (counts != nullptr) {
      counts->result()->ReplaceAllUses(order->result(2));
      Dead(counts);
    }
    return true;
  }

  // What is left of what was replaced, and of what only that used.
  void Erase() {
    while (!dead_.empty()) {
      Node* node = dead_.back();
      dead_.pop_back();
      if (node->has_uses()) continue;
      std::vector<Node*> producers;
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        Node* producer = node->operand(i)->producer();
        const bool known = producer == nullptr || std::find(producers.begin(), producers.end(),
                                                            producer) != producers.end();
        if (!known &&
            (producer->op().is_view() || producer->op().work == Work::kFill ||
             IsCalled(producer, "aten::arange") || IsCalled(producer, "aten::scatter.value"))) {
          producers.push_back(producer);
        }
      }
      std::erase(dead_, node);
      graph_.Erase(node);
      for (Node* producer : producers) {
        if (!producer->has_uses()) dead_.push_back(producer);
      }
    }
  }

 private:
  void Dead(Node* node) { dead_.push_back(node); }

  bool AreNear(const Node& a, const Node& b) const {
    return AreOfOnePart(a, b) &&
           barriers_[static_cast<size_t>(a.number())] == barriers_[static_cast<size_t>(b.number())];
  }

  // Positions, written to where the sort took them from. All of what they are written to is overwritten.
  Node* InverseOf(const Node& sort) const {
    const Value* order = sort.result(1);
    for (const Use& use : order->uses()) {
      Node* node = use.node();
      if (!IsCalled(node, "aten::scatter.src") || node->operand_count() != 3 ||
          node->operand(1) != order || node->operand(0) == order || node->operand(2) == order ||
          !AreNear(sort, *node)) {
        continue;
      }
      const Node* positions = node->operand(2)->producer();
      const TensorType& type = node->result()->type();
      if (IsCalled(positions, "aten::arange") && node->operand(2)->type() == order->type() &&
          type == order->type()) {
        return node;
      }
    }
    return nullptr;
  }

  // The sum over tokens of a map that says which experts each is sent to.
  Node* CountsOf(const Value& chosen, const Node& sort, int64_t experts) const {
    for (const Use& use : chosen.uses()) {
      const Node* map = use.node();
      if (!IsCalled(map, "aten::scatter.value") || map->operand_count() != 2 ||
          map->operand(1) != &chosen || !IsZero(*map->operand(0)) ||
          !HasArgument(*map, "dim", Dim(1)) || !HasArgument(*map, "value", true) ||
          map->result()->type().dtype != DType::kBool || map->result()->type().rank() != 2 ||
          !map->result()->type().sizes[1].Is(experts)) {
        continue;
      }
      for (const Use& of_map : map->result()->uses()) {
        Node* sum = of_map.node();
        if (IsCalled(sum, "aten::sum.dim_IntList") && HasArgument(*sum, "dim", Shape{Dim(0)}) &&
            HasArgument(*sum, "keepdim", false) && sum->result()->type().dtype == DType::kInt64 &&
            AreNear(sort, *sum)) {
          return sum;
        }
      }
    }
    return nullptr;
  }

  Graph& graph_;
  std::vector<int32_t> barriers_;  // by number of a node: how many come before it
  std::vector<Node*> dead_;
};

}  // namespace

int64_t OrderExperts(Graph& graph, const FuseOptions& options) {
  if (!options.fusion_module_fqn.empty()) return 0;  // parts may be of different modules
  int64_t replaced = 0;
  Orderer orderer(graph);
  const std::vector<Node*> nodes(graph.nodes().begin(), graph.nodes().end());
  for (Node* node : nodes) {
    if (node->result_count() != 2) continue;
    if (!options.any_device && node->result()->type().device.kind != DeviceKind::kCuda) continue;
    replaced += orderer.Replace(*node);
  }
  orderer.Erase();
  return replaced;
}

}  // namespace gt::fusion
