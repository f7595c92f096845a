#include "gt/fusion/fuse.h"

#include <algorithm>
#include <unordered_set>

#include "gt/base/logging.h"
#include "gt/fusion/groups.h"
#include "gt/fusion/kernel_source.h"
#include "gt/fusion/late_results.h"
#include "gt/fusion/order_rewrites.h"
#include "gt/fusion/row_rewrites.h"
#include "gt/ir/builder.h"

namespace gt {
namespace {

using fusion::Group;
using fusion::GroupBody;
using fusion::GroupUses;

// Views of the value that are before `place`: they follow it.
void CollectViews(const Value& value, int32_t place, std::vector<Node*>& views) {
  for (const Use& use : value.uses()) {
    Node* user = use.node();
    if (user == nullptr || !user->op().is_view() || user->number() < 0) continue;
    if (user->number() < place && std::find(views.begin(), views.end(), user) == views.end()) {
      views.push_back(user);
    }
    for (int32_t i = 0; i < user->result_count(); ++i) {
      CollectViews(*user->result(i), place, views);
    }
  }
}

int64_t TrafficOf(const Node& node, SymbolValues hints) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    bytes += node.operand(i)->type().bytes().Evaluate(hints);
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    bytes += node.result(i)->type().bytes().Evaluate(hints);
  }
  return bytes;
}

// In place of the group's last member; null if nobody needs it any more. Its members stay until all groups are rewritten, since others may
// recompute them.
Node* InsertFused(Graph& graph, const Group& group, const GroupUses& uses) {
  GroupBody body = fusion::MakeBody(group, uses);
  if (body.outputs.empty()) return nullptr;  // other groups compute all of it
  Node* last = group.members.back();
  std::vector<Node*> views;
  for (const Value* output : body.outputs) CollectViews(*output, last->number(), views);
  std::sort(views.begin(), views.end(),
            [](const Node* a, const Node* b) { return a->number() < b->number(); });

  Meta meta = last->meta();
  meta.recompute = Recompute::kNone;
  Node* fused = NodeBuilder(graph, "gt::fused")
                    .Set("inputs", body.inputs)
                    .Set("body", GraphRef(body.graph))
                    .With(std::move(meta))
                    .Insert(last);
  for (Node* view : views) graph.MoveBefore(view, last);
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    body.outputs[i]->ReplaceAllUses(fused->result(static_cast<int32_t>(i)));
  }
  return fused;
}

void AddViews(const Value& value, std::unordered_set<Node*>& views) {
  for (const Use& use : value.uses()) {
    Node* user = use.node();
    if (user == nullptr || !user->op().is_view() || !views.insert(user).second) continue;
    for (int32_t i = 0; i < user->result_count(); ++i) AddViews(*user->result(i), views);
  }
}

// What nobody uses any more of the members, what they recomputed, and the views between them.
void EraseReplaced(Graph& graph, const std::vector<Group>& groups) {
  std::unordered_set<Node*> candidates;
  for (const Group& group : groups) {
    for (const auto* nodes : {&group.members, &group.recomputed}) {
      for (Node* node : *nodes) {
        candidates.insert(node);
        AddViews(*node->result(), candidates);
        for (int32_t i = 0; i < node->operand_count(); ++i) {
          for (Node* view = node->operand(i)->producer(); view != nullptr && view->op().is_view();
               view = view->operand(0)->producer()) {
            candidates.insert(view);
          }
        }
      }
    }
  }
  for (Node *node = graph.last(), *previous = nullptr; node != nullptr; node = previous) {
    previous = node->previous();
    if (candidates.contains(node) && !node->has_uses()) graph.Erase(node);
  }
}

}  // namespace

Fuse::Fuse(FuseOptions options) {
  Declare(&options_);
  options_ = std::move(options);
}

const PassInfo& Fuse::info() const {
  static constexpr PassInfo kInfo = {
      .name = "fuse",
      .summary = "Makes groups of operators one node each, for which one kernel is generated.",
      .description =
          "A group is made of operators that compute elements from those at their place, with "
          "views "
          "between them, concatenations, index_select and short sums, where one loop computes all "
          "that others use of it. Its node, gt::fused, holds the operators as a nested graph, "
          "which "
          "is its meaning: kernels are used where they give the same bits. A group runs where its "
          "last operator was. It computes again what it would read if it reads all that this is "
          "made from, so that less is kept for the backward; and it writes again what the gradient "
          "of a matrix needs, if that frees a tenth of the memory at the peak. Before that, norms "
          "take in additions "
          "beside them, products of rows the lookup of these rows, and a sort of chosen experts "
          "its inverse and the counting of tokens.",
      .reads = "operators, types, uses, bytes in use; modules and phases, which groups do not mix.",
      .writes =
          "gt::fused nodes in place of operators and of views between them; gt::add_rms_norm, "
          "gt::expert_order and others that do several operators' work.",
      .never =
          "reaches across collectives, transfers and host reads, mixes chunks or phases, or needs "
          "more memory than the step has in use at its peak.",
  };
  return kInfo;
}

bool Fuse::RunImpl(Graph& graph, PassContext& /*context*/) {
  const int64_t combined =
      fusion::CombineRowOperators(graph, options_) + fusion::OrderExperts(graph, options_);
  combined_ += combined;
  std::vector<Group> groups = fusion::FindGroups(graph, options_);
  if (groups.empty()) return combined > 0;
  if (const int64_t late = fusion::WriteResultsLate(graph, groups); late > 0) {
    late_ += late;
    groups = fusion::FindGroups(graph, options_);
  }
  const GroupUses uses(static_cast<int32_t>(graph.node_count()), groups);
  const SymbolValues hints = graph.shapes().Hints();
  for (const Group& group : groups) {
    int64_t before = 0;
    for (const Node* member : group.members) before += TrafficOf(*member, hints);
    const Node* fused = InsertFused(graph, group, uses);
    if (fused == nullptr) continue;
    ++groups_;
    operators_ += static_cast<int64_t>(group.members.size());
    recomputed_ += static_cast<int64_t>(group.recomputed.size());
    bytes_ += before - TrafficOf(*fused, hints);
    log::Debug("fuse: {} operators of '{}' read {} tensors and write {}", group.members.size(),
               fused->meta().module.str(), fused->operand_count(), fused->result_count());
  }
  EraseReplaced(graph, groups);
  return true;
}

}  // namespace gt
