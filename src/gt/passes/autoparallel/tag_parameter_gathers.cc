#include "gt/passes/autoparallel/tag_parameter_gathers.h"

#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"
#include "gt/passes/memory/memory_policy.h"

namespace gt {
namespace {

// The one node that uses what this node returns, if it uses nothing else; null if there is none.
Node* SoleUser(const Node& node) {
  Node* sole = nullptr;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    for (const Use& use : node.result(i)->uses()) {
      if (use.node() == nullptr || (sole != nullptr && use.node() != sole)) return nullptr;
      sole = use.node();
    }
  }
  if (sole == nullptr) return nullptr;
  for (int32_t i = 0; i < sole->operand_count(); ++i) {
    if (sole->operand(i)->producer() != &node) return nullptr;
  }
  return sole;
}

// From the wait on.
std::vector<Node*> ChainAfter(const Node& gather) {
  std::vector<Node*> chain;
  for (Node* node = SoleUser(gather); node != nullptr; node = SoleUser(*node)) {
    if (node->meta().phase != Phase::kForward || !HarmOfRepeating(*node).empty()) break;
    chain.push_back(node);
  }
  return chain;
}

bool ChangesDType(const Node& node) {
  return node.op().work == Work::kClone &&
         node.result()->type().dtype != node.operand(0)->type().dtype;
}

// Whether the result is the memory of an operand. A wait's is what its collective made.
bool IsView(const Node& node) {
  return node.op().aliasing == Aliasing::kAlways && node.op().collective == Collective::kNone;
}

}  // namespace

TagParameterGathers::TagParameterGathers(TagParameterGathersOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& TagParameterGathers::info() const {
  static constexpr PassInfo kInfo = {
      .name = "tag_parameter_gathers",
      .summary = "Says whether the backward gathers parameters again or keeps gathered ones.",
      .description =
          "With `reshard`, an all-gather of a parameter, its wait, the chain of nodes that follow "
          "it one by one, and a cast of the parameter before it are tagged must_recompute. "
          "Without, the last node of that chain that is no view is tagged must_save; if that is "
          "the wait, its gather is too. A chain goes on while one node uses everything that the "
          "node before it returns and nothing else, so it passes through a split whose parts are "
          "put together again. rematerialize carries the tags out, in place of "
          "reshard_after_forward.",
      .reads = "roles of inputs, phases, uses, operator facts.",
      .writes = "the recompute tag of these nodes, whatever it was before.",
      .never = "tags gathers of activations, or anything of loss and backward.",
  };
  return kInfo;
}

bool TagParameterGathers::RunImpl(Graph& graph, PassContext& context) {
  const auto& origins = context.Get<ParameterOrigins>(graph);
  changed_ = false;
  for (Node* node : graph.nodes()) {
    if (node->meta().phase != Phase::kForward || !origins.IsParameterGather(*node)) continue;
    const std::vector<Node*> chain = ChainAfter(*node);
    if (chain.empty() || chain.front()->op().collective != Collective::kWait) continue;
    ++gathers_;
    if (options_.reshard) {
      Recompute(*node, chain);
    } else {
      Save(chain);
    }
  }
  return changed_;
}

void TagParameterGathers::Recompute(Node& gather, const std::vector<Node*>& chain) {
  Node* before = gather.operand(0)->producer();
  if (before != nullptr && ChangesDType(*before)) Tag(*before, gt::Recompute::kMustRecompute);
  Tag(gather, gt::Recompute::kMustRecompute);
  for (Node* node : chain) Tag(*node, gt::Recompute::kMustRecompute);
}

void TagParameterGathers::Save(const std::vector<Node*>& chain) {
  size_t last = chain.size() - 1;
  while (last > 0 && IsView(*chain[last])) --last;
  Tag(*chain[last], gt::Recompute::kMustSave);
  // A wait and its collective are kept or repeated together.
  const bool waits = chain[last]->op().collective == Collective::kWait;
  if (waits) Tag(*chain[last]->operand(0)->producer(), gt::Recompute::kMustSave);
}

void TagParameterGathers::Tag(Node& node, gt::Recompute tag) {
  ++(tag == gt::Recompute::kMustSave ? saved_ : recomputed_);
  changed_ |= node.meta().recompute != tag;
  node.meta().recompute = tag;
}

}  // namespace gt
