#include "gt/analysis/recorded_spans.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gt/analysis/collectives.h"

namespace gt {
namespace {

bool DependsOnData(const TensorType& type, const ShapeEnv& shapes) {
  const auto any = [&](const Shape& shape) {
    return std::any_of(shape.begin(), shape.end(),
                       [&](const Dim& dim) { return shapes.HasDataSymbol(dim); });
  };
  return any(type.sizes) || any(type.strides);
}

bool DependsOnData(const Argument& argument, const ShapeEnv& shapes) {
  if (const Dim* dim = std::get_if<Dim>(&argument)) return shapes.HasDataSymbol(*dim);
  if (const Shape* shape = std::get_if<Shape>(&argument)) {
    return std::any_of(shape->begin(), shape->end(),
                       [&](const Dim& dim) { return shapes.HasDataSymbol(dim); });
  }
  return false;
}

// Whether a size of anything that the node touches is read from a tensor while the step runs.
bool DependsOnData(const Node& node, const ShapeEnv& shapes) {
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    if (DependsOnData(node.operand(i)->type(), shapes)) return true;
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    if (DependsOnData(node.result(i)->type(), shapes)) return true;
  }
  for (const Argument& argument : node.args()) {
    if (DependsOnData(argument, shapes)) return true;
  }
  if (const Graph* body = FusedBody(node)) {
    for (const Node* inner : body->nodes()) {
      if (DependsOnData(*inner, shapes)) return true;
    }
  }
  return false;
}

enum class Part : uint8_t { kView, kRecorded, kBetween };

class SpanFinder {
 public:
  SpanFinder(const Graph& graph, const SpanOptions& options) : graph_(graph), options_(options) {
    const_cast<Graph&>(graph).NumberNodes();
    // Numbers of the host that never change are part of a recorded launch.
    for (const auto& input : graph.inputs()) {
      if (input->role == InputRole::kConstant && input->value.type().rank() == 0) {
        constants_.insert(&input->value);
      }
    }
    nodes_.reserve(static_cast<size_t>(graph.node_count()));
    for (const Node* node : graph.nodes()) {
      nodes_.push_back(node);
      parts_.push_back(PartOf(*node));
    }
  }

  RecordedSpans Find() {
    while (KeepCollectivesWhole()) {
    }
    FindSpans();
    FindFixed();
    return std::move(found_);
  }

 private:
  Part& Of(const Node& node) { return parts_[static_cast<size_t>(node.number())]; }

  Part PartOf(const Node& node) const {
    if (node.op().is_view()) return Part::kView;
    const bool collective = node.op().collective != Collective::kNone;
    const bool host = collective ? !options_.records_collectives : HostTakesPart(node);
    if (host || !RunsOnDevice(node) || DependsOnData(node, graph_.shapes())) {
      return Part::kBetween;
    }
    return Part::kRecorded;
  }

  // Kernels alone, on the device. The state of a generator that attention hands to its backward is on
  // the host, but nothing reads it: attention that draws numbers is rejected when a step is captured.
  bool RunsOnDevice(const Node& node) const {
    const auto there = [this](const TensorType& type) {
      return type.device.kind == options_.device || type.dtype == DType::kUndefined;
    };
    bool any = false, all = true;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value& value = *node.operand(i);
      any |= there(value.type());
      all &= there(value.type()) || constants_.contains(&value);
    }
    for (int32_t i = 0; i < node.result_count(); ++i) {
      any |= there(node.result(i)->type());
      all &= there(node.result(i)->type());
    }
    return any && (all || node.op().work == Work::kAttention);
  }

  // A collective that is launched in a span and waited for after it, or not at all, cannot be
  // recorded: the recording would end while its stream is still busy. True if one was taken out, which
  // cuts its span in two.
  bool KeepCollectivesWhole() {
    std::vector<int32_t> span(nodes_.size());  // by node
    int32_t number = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      span[i] = parts_[i] == Part::kBetween ? ++number : number;
    }
    bool changed = false;
    for (const Node* node : nodes_) {
      if (!LaunchesCollective(node->op())) continue;
      bool whole = Of(*node) == Part::kRecorded;
      for (int32_t i = 0; i < node->result_count(); ++i) {
        whole &= node->result(i)->has_uses();
        for (const Use& use : node->result(i)->uses()) {
          const Node* user = use.node();
          whole &= user != nullptr && user->op().collective == Collective::kWait &&
                   Of(*user) == Part::kRecorded &&
                   span[static_cast<size_t>(user->number())] ==
                       span[static_cast<size_t>(node->number())];
        }
      }
      if (!whole) changed |= TakeOut(*node);
    }
    return changed;
  }

  bool TakeOut(const Node& collective) {
    bool changed = std::exchange(Of(collective), Part::kBetween) != Part::kBetween;
    for (int32_t i = 0; i < collective.result_count(); ++i) {
      for (const Use& use : collective.result(i)->uses()) {
        if (use.node() == nullptr || use.node()->op().collective != Collective::kWait) continue;
        changed |= std::exchange(Of(*use.node()), Part::kBetween) != Part::kBetween;
      }
    }
    return changed;
  }

  // Runs of what can be recorded, without views at either end.
  std::vector<RecordedSpans::Span> Runs() const {
    std::vector<RecordedSpans::Span> runs;
    const auto count = static_cast<int32_t>(nodes_.size());
    for (int32_t begin = 0; begin < count;) {
      RecordedSpans::Span run{begin, begin, 0};
      int32_t at = begin;
      for (; at < count && parts_[static_cast<size_t>(at)] != Part::kBetween; ++at) {
        if (parts_[static_cast<size_t>(at)] != Part::kRecorded) continue;
        if (run.kernels == 0) run.begin = at;
        run.kernels += IsKernel(*nodes_[static_cast<size_t>(at)]) ? 1 : 0;
        run.end = at + 1;
      }
      if (run.kernels > 0) runs.push_back(run);
      begin = at + 1;
    }
    return runs;
  }

  void FindSpans() {
    const std::vector<RecordedSpans::Span> runs = Runs();
    std::vector<bool> chosen;
    in_span_.assign(nodes_.size(), false);
    const auto choose = [&](size_t i) {
      chosen[i] = true;
      for (int32_t n = runs[i].begin; n < runs[i].end; ++n) in_span_[static_cast<size_t>(n)] = true;
    };
    for (const RecordedSpans::Span& run : runs) {
      chosen.push_back(false);
      if (run.kernels >= options_.least_kernels) choose(chosen.size() - 1);
    }
    // From the end, so that one which feeds a short one that is chosen is looked at after it.
    for (size_t i = runs.size(); i-- > 0;) {
      if (!chosen[i] && FeedsSpan(runs[i])) choose(i);
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!chosen[i]) continue;
      found_.spans.push_back(runs[i]);
      found_.kernels += runs[i].kernels;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!in_span_[i] && parts_[i] != Part::kView) ++found_.between;
    }
  }

  // Whether a span reads what a run makes.
  bool FeedsSpan(const RecordedSpans::Span& run) const {
    for (int32_t n = run.begin; n < run.end; ++n) {
      const Node& node = *nodes_[static_cast<size_t>(n)];
      for (int32_t i = 0; i < node.result_count(); ++i) {
        if (IsReadInSpan(*node.result(i))) return true;
      }
    }
    return false;
  }

  bool IsReadInSpan(const Value& value) const {
    for (const Use& use : value.uses()) {
      const Node* user = use.node();
      if (user == nullptr) continue;
      if (!user->op().is_view()) {
        if (InSpan(*user)) return true;
        continue;
      }
      for (int32_t i = 0; i < user->result_count(); ++i) {
        if (IsReadInSpan(*user->result(i))) return true;
      }
    }
    return false;
  }

  static bool IsKernel(const Node& node) { return node.op().collective != Collective::kWait; }

  bool InSpan(const Node& node) const { return in_span_[static_cast<size_t>(node.number())]; }

  // What gives the value its address: an input, a result of a span, or one that is made between
  // spans.
  const Value& RootOf(const Value& value) const {
    const Value* root = &value;
    while (!root->is_input() && root->producer()->op().is_view()) {
      root = root->producer()->TensorArg(root->producer()->op().view_arg());
    }
    if (root->is_input() || InSpan(*root->producer())) return *root;
    const Operator& op = root->producer()->op();
    if (op.collective != Collective::kWait && op.transfer != Transfer::kWait) return *root;
    const Value& launched = *root->producer()->operand(0);
    const bool given = !launched.is_input() && WritesIntoGivenMemory(launched.producer()->op());
    return given ? launched : *root;
  }

  bool IsFree(const Value& root) const { return !root.is_input() && !InSpan(*root.producer()); }

  void FindFixed() {
    std::unordered_set<const Value*> fixed;
    for (const Node* node : nodes_) {
      if (!InSpan(*node) || node->op().is_view()) continue;
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        const Value& root = RootOf(*node->operand(i));
        if (IsFree(root)) fixed.insert(&root);
      }
    }
    for (const Node* node : nodes_) {
      for (int32_t i = 0; i < node->result_count(); ++i) {
        if (fixed.contains(node->result(i))) found_.fixed.push_back(node->result(i));
      }
      if (!InSpan(*node) || !node->op().is_view()) continue;
      const Value& root = RootOf(*node->TensorArg(node->op().view_arg()));
      if (IsFree(root) && !fixed.contains(&root)) found_.loose_views.push_back(node);
    }
  }

  const Graph& graph_;
  const SpanOptions options_;
  std::unordered_set<const Value*> constants_;
  std::vector<const Node*> nodes_;
  std::vector<Part> parts_;    // by node
  std::vector<bool> in_span_;  // by node
  RecordedSpans found_;
};

}  // namespace

bool HostTakesPart(const Node& node) {
  switch (node.op().host) {
    case HostPart::kNone:
      return false;
    case HostPart::kAlways:
      return true;
    case HostPart::kUnlessBFloat16:
      return node.operand(0)->type().dtype != DType::kBFloat16;
  }
  return true;
}

RecordedSpans FindRecordedSpans(const Graph& graph, const SpanOptions& options) {
  return SpanFinder(graph, options).Find();
}

bool WritesIntoGivenMemory(const Operator& op) {
  const bool gathers =
      op.collective == Collective::kAllGather || op.collective == Collective::kReduceScatter;
  return op.transfer == Transfer::kReload ||
         (gathers && op.schema.args[0].kind == ArgKind::kTensor);
}

const Node* LastWaitFor(const Node& collective) {
  const Node* last = nullptr;
  for (int32_t i = 0; i < collective.result_count(); ++i) {
    for (const Use& use : collective.result(i)->uses()) {
      const Node* user = use.node();
      if (user == nullptr || user->op().collective != Collective::kWait) continue;
      if (last == nullptr || user->number() > last->number()) last = user;
    }
  }
  return last;
}

}  // namespace gt
