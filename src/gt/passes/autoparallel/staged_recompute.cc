#include "gt/passes/autoparallel/staged_recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/parameter_nodes.h"
#include "gt/base/byte_text.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/ir/node_map.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/passes/overlap/node_keys.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

const Node* CollectiveOf(const Node& wait) {
  if (wait.op().collective != Collective::kWait) return nullptr;
  const Node* producer = wait.operand(0)->producer();
  return producer != nullptr && producer->op().collective != Collective::kNone ? producer : nullptr;
}

bool IsProduct(const Operator& op) {
  return op.recompute == RecomputeClass::kPlainProduct || op.recompute == RecomputeClass::kProduct;
}

}  // namespace

// What is known about the nodes of one graph, and what is decided.
class StagedRecompute::Planner {
 public:
  Planner(Graph& graph, double stage_size_gb)
      : graph_(graph),
        stage_size_gb_(stage_size_gb),
        returned_(graph),
        parameters_(graph),
        facts_(graph) {
    FindWhatReachesBackward();
    for (const Node* node : graph.nodes()) Look(*node);
    FindLastUses();
  }

  // The nodes that are kept beyond those that must be: where stages are cut, and products.
  struct Kept {
    std::vector<const Node*> at_cuts, products;
    int64_t stages = 0;
  };
  Kept Choose() const {
    Kept kept;
    const std::vector<int32_t> cuts = FindCuts();
    kept.stages = static_cast<int64_t>(cuts.size());
    int64_t products = 0;
    for (const Node* node : graph_.nodes()) {
      const Facts& facts = facts_[*node];
      if (facts.owns && IsAliveAtAny(cuts, *node)) kept.at_cuts.push_back(node);
      const bool multiplies = facts.is_candidate && IsProduct(node->op());
      if (multiplies && products++ % 2 == 0) kept.products.push_back(node);
    }
    return kept;
  }

  // What the first rank chose, for ranks whose graphs differ in their own shards and stretches.
  std::string ToText(const Kept& kept) const {
    std::unordered_set<const Node*> all(kept.at_cuts.begin(), kept.at_cuts.end());
    all.insert(kept.products.begin(), kept.products.end());
    std::vector<std::string> keys;
    ForEachKey([&](const Node& node, std::string key) {
      if (all.contains(&node)) keys.push_back(std::move(key));
    });
    return Join(keys, " ");
  }

  // The tag of each node by number.
  std::vector<Recompute> TagsFor(const std::string& text) const {
    const std::vector<std::string> words = Split(text, ' ');
    const std::unordered_set<std::string> keys(words.begin(), words.end());
    std::vector<Recompute> tags(static_cast<size_t>(graph_.node_count()));
    const auto of = [&tags](const Node& node) -> Recompute& {
      return tags[static_cast<size_t>(node.number())];
    };
    for (const Node* node : graph_.nodes()) of(*node) = facts_[*node].tag;
    ForEachKey([&](const Node& node, const std::string& key) {
      if (IsOpen(node) && keys.contains(key)) of(node) = Recompute::kMustSave;
    });
    // The two are kept or repeated together.
    for (const Node* node : graph_.nodes()) {
      const Node* collective = CollectiveOf(*node);
      if (collective != nullptr && IsOpen(*node)) of(*node) = of(*collective);
    }
    return tags;
  }

 private:
  struct Facts {
    bool reaches_backward = false;
    bool is_candidate = false;  // of the forward, and reaches the backward
    // Makes memory that a stage produces and a cut may keep: no view, not made of parameters alone,
    // not repeated in any case.
    bool owns = false;
    Recompute tag = Recompute::kNone;
    int64_t bytes = 0;
    int32_t last_use = -1;  // by a node before the backward, through views
  };

  // Whether this pass decides about the node.
  bool IsOpen(const Node& node) const {
    return facts_[node].is_candidate && node.meta().recompute == Recompute::kNone;
  }

  void FindWhatReachesBackward() {
    for (const Node* node = graph_.last(); node != nullptr; node = node->previous()) {
      for (int32_t i = 0; i < node->result_count() && !facts_[*node].reaches_backward; ++i) {
        for (const Use& use : node->result(i)->uses()) {
          if (use.node() == nullptr) continue;
          facts_[*node].reaches_backward |=
              use.node()->meta().is_backward() || facts_[*use.node()].reaches_backward;
        }
      }
    }
  }

  void Look(const Node& node) {
    Facts& facts = facts_[node];
    facts.tag = node.meta().recompute;
    facts.is_candidate = node.meta().phase == Phase::kForward && facts.reaches_backward &&
                         node.op().transfer == Transfer::kNone;
    if (!facts.is_candidate) return;
    if (facts.tag == Recompute::kNone) facts.tag = UsualTag(node);
    facts.owns = node.op().aliasing != Aliasing::kAlways && !parameters_.Contains(node) &&
                 facts.tag != Recompute::kMustRecompute;
    if (!facts.owns) return;
    for (int32_t i = 0; i < node.result_count(); ++i) {
      facts.bytes += StorageBytes(node.result(i)->type(), graph_.shapes().Hints());
    }
  }

  Recompute UsualTag(const Node& node) const {
    if (node.op().aliasing == Aliasing::kAlways) return Recompute::kPreferRecompute;
    const bool exchanged =
        node.op().recompute == RecomputeClass::kExchange && !parameters_.Contains(node);
    const bool attends = node.op().recompute == RecomputeClass::kAttention;
    return exchanged || attends || IsAlwaysKept(node, returned_) ? Recompute::kMustSave
                                                                 : Recompute::kPreferRecompute;
  }

  // What is repeated in any case needs its operands when its users run. Users are seen first.
  void FindLastUses() {
    for (const Node* node = graph_.last(); node != nullptr; node = node->previous()) {
      const Facts& facts = facts_[*node];
      if (node->meta().is_backward() || !facts.reaches_backward) continue;
      const bool passes_on = facts.is_candidate && !facts.owns;
      const int32_t until = passes_on ? std::max(node->number(), facts.last_use) : node->number();
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        const Node* producer = node->operand(i)->producer();
        if (producer == nullptr) continue;
        facts_[*producer].last_use = std::max(facts_[*producer].last_use, until);
      }
    }
  }

  bool IsAliveAtAny(const std::vector<int32_t>& cuts, const Node& node) const {
    const auto cut = std::lower_bound(cuts.begin(), cuts.end(), node.number());
    return cut != cuts.end() && *cut < facts_[node].last_use;
  }

  double StageBytes() const {
    if (stage_size_gb_ > 0) return stage_size_gb_ * kGiB;
    double total = 0;
    for (const Node* node : graph_.nodes()) total += static_cast<double>(facts_[*node].bytes);
    return std::sqrt(total / kGiB) * kGiB;
  }

  // Bytes that are needed after each node, by number.
  std::vector<int64_t> LiveBytes() const {
    std::vector<int64_t> live(static_cast<size_t>(graph_.node_count()) + 1);
    for (const Node* node : graph_.nodes()) {
      const Facts& facts = facts_[*node];
      if (!facts.owns || facts.last_use <= node->number()) continue;
      live[static_cast<size_t>(node->number())] += facts.bytes;
      live[static_cast<size_t>(facts.last_use)] -= facts.bytes;
    }
    for (size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
    return live;
  }

  // Of each stage, the node after which the fewest bytes are needed.
  std::vector<int32_t> FindCuts() const {
    const double stage_bytes = StageBytes();
    const std::vector<int64_t> live = LiveBytes();
    log::Debug("staged recompute: stages of {}", ByteText(static_cast<int64_t>(stage_bytes)));
    std::vector<int32_t> cuts;
    double produced = 0;
    int32_t best = -1;
    for (const Node* node : graph_.nodes()) {
      if (!facts_[*node].is_candidate) continue;
      const int32_t number = node->number();
      if (best < 0 || live[static_cast<size_t>(number)] < live[static_cast<size_t>(best)]) {
        best = number;
      }
      produced += static_cast<double>(facts_[*node].bytes);
      if (produced < stage_bytes) continue;
      cuts.push_back(best);
      best = -1;
      produced = 0;
    }
    if (best >= 0) cuts.push_back(best);
    return cuts;
  }

  // Keys are of the nodes that ranks have in common: a rank's shards of parameters are its own.
  template <typename Visit>
  void ForEachKey(const Visit& visit) const {
    NodeKeys keys;
    for (const Node* node : graph_.nodes()) {
      const Facts& facts = facts_[*node];
      if (facts.is_candidate && !parameters_.Contains(*node)) {
        visit(*node, fmt::format("{:x}", keys.Next(*node)));
      }
    }
  }

  const Graph& graph_;
  double stage_size_gb_;
  EscapingStorage returned_;
  ParameterNodes parameters_;  // numbers the nodes
  NodeMap<Facts> facts_;
};

StagedRecompute::StagedRecompute(StagedRecomputeOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& StagedRecompute::info() const {
  static constexpr PassInfo kInfo = {
      .name = "staged_recompute",
      .summary = "Cuts the forward into stages that the backward computes again one by one.",
      .description =
          "Forward values that reach the backward are tagged prefer_recompute; tags that are there "
          "already win. The forward is cut into stages, each of which produces the stage size, or "
          "as many GiB as the square root of all its GiB. Of each stage, what is still needed "
          "after the node where that is least is tagged must_save. So are results of attention, "
          "every other matrix product, what was exchanged between ranks, what the step returns "
          "and what cannot be repeated. Views count as the memory they show, values made of "
          "parameters alone as nothing: parameters are there all the time. A wait goes with its "
          "collective. All ranks keep what the first rank chose.",
      .reads = "phases, uses, sizes at their hints, operator facts, outputs, recompute tags.",
      .writes = "the recompute tag of forward nodes that have none.",
      .never = "changes a tag, or tags anything of loss and backward.",
  };
  return kInfo;
}

bool StagedRecompute::RunImpl(Graph& graph, PassContext& context) {
  const Planner planner(graph, options_.ac_stage_size_gb);
  const std::string text = context.Decide("what is kept for the backward", [&] {
    const Planner::Kept kept = planner.Choose();
    stages_ += kept.stages;
    at_cuts_ += static_cast<int64_t>(kept.at_cuts.size());
    products_ += static_cast<int64_t>(kept.products.size());
    return planner.ToText(kept);
  });
  const std::vector<Recompute> tags = planner.TagsFor(text);
  bool changed = false;
  for (Node* node : graph.nodes()) {
    if (node->meta().phase != Phase::kForward) continue;
    const Recompute tag = tags[static_cast<size_t>(node->number())];
    saved_ += tag == Recompute::kMustSave ? 1 : 0;
    const bool again = tag == Recompute::kPreferRecompute || tag == Recompute::kMustRecompute;
    recomputed_ += again ? 1 : 0;
    changed |= node->meta().recompute != tag;
    node->meta().recompute = tag;
  }
  return changed;
}

}  // namespace gt
