#include "gt/passes/fsdp/reshard_after_forward.h"

#include <unordered_map>
#include <vector>

#include "gt/analysis/parameter_nodes.h"
#include "gt/passes/memory/backward_copy.h"

namespace gt {
namespace {

// Which values hold a gathered parameter and nothing else.
class GatheredParameters {
 public:
  explicit GatheredParameters(Graph& graph) {
    ParameterNodes of_parameters(graph);
    facts_.resize(static_cast<size_t>(graph.node_count()));
    for (const Node* node : graph.nodes()) {
      if (!of_parameters.Contains(*node)) continue;
      Facts& facts = facts_[static_cast<size_t>(node->number())];
      facts.gathered = node->op().collective == Collective::kAllGather;
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        const Node* producer = node->operand(i)->producer();
        if (producer != nullptr) facts.gathered |= Of(*producer).gathered;
      }
      facts.used_by_loss = UsedByLoss(*node);
    }
  }

  // A value that the backward should recompute. What the loss uses is needed to the very end of the
  // forward, where its own backward begins: there is nothing to free.
  bool WorthRepeating(const Value& value) const {
    const Node* producer = value.producer();
    if (producer == nullptr || producer->number() < 0) return false;  // an input, or a copy
    return Of(*producer).gathered && !Of(*producer).used_by_loss;
  }

 private:
  struct Facts {
    bool gathered = false;
    bool used_by_loss = false;
  };
  const Facts& Of(const Node& node) const { return facts_[static_cast<size_t>(node.number())]; }
  static bool UsedByLoss(const Node& node) {
    for (int32_t i = 0; i < node.result_count(); ++i) {
      for (const Use& use : node.result(i)->uses()) {
        if (use.node() != nullptr && use.node()->meta().phase == Phase::kLoss) return true;
      }
    }
    return false;
  }

  std::vector<Facts> facts_;  // by number
};

}  // namespace

const PassInfo& ReshardParameters::info() const {
  static constexpr PassInfo kInfo = {
      .name = "reshard_after_forward",
      .summary = "Gathers parameters again for the backward instead of keeping them.",
      .description =
          "A value made of one parameter alone and holding a gathered copy of it is made again, "
          "from "
          "the stored part, in front of the first backward node that uses it. Its copy of the "
          "forward is then free after its last use there. Gathers for the loss are kept: its "
          "backward "
          "begins where its forward ends.",
      .reads = "roles of inputs, phases, collective facts.",
      .writes = "copies of the nodes that prepare a parameter, in phase backward.",
      .never = "moves or removes a node; the copies are the same on every rank.",
  };
  return kInfo;
}

// Copies the ancestors of a value, each once, to before the first node that needs it.
class ReshardParameters::Repeater {
 public:
  Repeater(ReshardParameters& pass, Graph& graph) : pass_(pass), graph_(graph) {}

  Value* Again(Value* value, Node* before) {
    if (value->is_input()) return value;
    if (auto found = copies_.find(value); found != copies_.end()) return found->second;
    Node* original = value->producer();
    std::vector<Value*> operands;
    for (int32_t i = 0; i < original->operand_count(); ++i) {
      operands.push_back(Again(original->operand(i), before));
    }
    Node* copy = InsertBackwardCopy(graph_, *original, std::move(operands), before);
    for (int32_t i = 0; i < original->result_count(); ++i) {
      copies_[original->result(i)] = copy->result(i);
    }
    ++pass_.nodes_;
    if (original->op().collective == Collective::kAllGather) ++pass_.gathers_;
    return copies_.at(value);
  }

  bool repeated() const { return !copies_.empty(); }

 private:
  ReshardParameters& pass_;
  Graph& graph_;
  std::unordered_map<const Value*, Value*> copies_;
};

bool ReshardParameters::RunImpl(Graph& graph, PassContext& /*context*/) {
  GatheredParameters gathered(graph);
  Repeater repeater(*this, graph);
  for (Node* node : graph.nodes()) {
    if (node->meta().phase != Phase::kBackward) continue;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Value* operand = node->operand(i);
      if (gathered.WorthRepeating(*operand)) node->SetOperand(i, repeater.Again(operand, node));
    }
  }
  return repeater.repeated();
}

}  // namespace gt
