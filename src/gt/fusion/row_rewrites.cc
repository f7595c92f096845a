#include "gt/fusion/row_rewrites.h"

#include <algorithm>
#include <vector>

#include "gt/fusion/element_code.h"
#include "gt/fusion/groups.h"
#include "gt/ir/builder.h"

namespace gt::fusion {
namespace {

bool Is(const Node* node, std::string_view name) {
  return node != nullptr && node->op().name.str() == name;
}

bool BelongTogether(const Node& a, const Node& b) {
  const auto id = [](const Node& node) {
    return node.meta().chunk == nullptr ? -1 : node.meta().chunk->id;
  };
  return a.meta().phase == b.meta().phase && id(a) == id(b);
}

// Of two tensors of one type, neither of them scaled.
bool IsPlainAdd(const Node* node) {
  if (!Is(node, "aten::add.Tensor") || node->operand_count() != 2) return false;
  const auto* alpha = std::get_if<Dim>(&node->arg(2));
  const TensorType& type = node->result()->type();
  const auto same = [&](const Value* operand) {
    return operand->type().dtype == type.dtype && operand->type().sizes == type.sizes;
  };
  return alpha != nullptr && alpha->Is(1) && same(node->operand(0)) && same(node->operand(1));
}

// A generated kernel would write it on its way.
bool IsMadeByKernel(Value* value) {
  const Value* base = BaseOf(value);
  return !base->is_input() && CodeKindOf(*base->producer()) != CodeKind::kNone;
}

// Null if there are several, or if it is an output of the graph.
Node* OnlyUser(const Value& value) {
  Node* user = nullptr;
  for (const Use& use : value.uses()) {
    if (user != nullptr || use.node() == nullptr) return nullptr;
    user = use.node();
  }
  return user;
}

// A tensor made of ones, in any dtype.
bool IsOne(const Value* value) {
  for (const Node* node = value->producer(); node != nullptr; node = node->operand(0)->producer()) {
    if (Is(node, "aten::ones_like") || Is(node, "aten::ones")) return true;
    if (!Is(node, "aten::_to_copy") && CodeKindOf(*node) != CodeKind::kView) return false;
  }
  return false;
}

class Combiner {
 public:
  Combiner(Graph& graph, const FuseOptions& options) : graph_(graph), options_(options) {
    graph.NumberNodes();
  }

  int64_t Run() {
    std::vector<Node*> nodes(graph_.nodes().begin(), graph_.nodes().end());
    for (Node* node : nodes) {
      if (!options_.any_device && !IsOnGpu(*node)) continue;
      if (Is(node, "gt::rms_norm")) {
        AddBeforeNorm(*node);
      } else if (Is(node, "gt::rms_norm_backward")) {
        AddAfterGradient(*node);
      } else if (Is(node, "gt::row_dots")) {
        LookUpRows(*node);
      } else if (Is(node, "aten::mul.Tensor")) {
        DropFactorOne(*node);
      }
    }
    for (auto node = erased_.rbegin(); node != erased_.rend(); ++node) {
      if (!(*node)->has_uses()) graph_.Erase(*node);
    }
    return combined_;
  }

 private:
  static bool IsOnGpu(const Node& node) {
    return node.result_count() > 0 && node.result()->type().device.kind == DeviceKind::kCuda;
  }

  // All uses of the value but that by `node` come after `place`; through views, which stay where they are and so
  // count themselves. An output of the graph is after everything.
  static bool IsUsedAfter(const Value& value, const Node& node, int32_t place) {
    for (const Use& use : value.uses()) {
      const Node* user = use.node();
      if (user != nullptr && user != &node && user->number() <= place) return false;
    }
    return true;
  }

  // The sum is made where the norm is. One that a generated kernel computes with other things stays there.
  void AddBeforeNorm(Node& norm) {
    Node* add = norm.operand(0)->producer();
    if (!IsPlainAdd(add) || !BelongTogether(*add, norm)) return;
    Value *a = add->operand(0), *b = add->operand(1);
    if (IsMadeByKernel(a) || IsMadeByKernel(b)) return;
    if (!IsUsedAfter(*add->result(), norm, norm.number())) return;
    Node* both = NodeBuilder(graph_, "gt::add_rms_norm")
                     .Set("self", a)
                     .Set("other", b)
                     .Set("weight", norm.operand(1))
                     .Set("eps", norm.arg(2))
                     .With(norm.meta())
                     .Insert(&norm);
    if (both->result(0)->type() != add->result()->type()) {
      graph_.Erase(both);
      return;
    }
    add->result()->ReplaceAllUses(both->result(0));
    norm.result(0)->ReplaceAllUses(both->result(1));
    norm.result(1)->ReplaceAllUses(both->result(2));
    Replaced(add, &norm);
  }

  // Of the gradient that only the sum uses. What is added must be there in time.
  void AddAfterGradient(Node& backward) {
    Value* gradient = backward.result(0);
    Node* add = OnlyUser(*gradient);
    if (backward.operand_count() != 4 || !IsPlainAdd(add) || !BelongTogether(*add, backward))
      return;
    Value* other = add->operand(add->operand(0) == gradient ? 1 : 0);
    const Node* producer = other->producer();
    if (other == gradient || add->result()->type() != gradient->type() ||
        (producer != nullptr && producer->number() > backward.number())) {
      return;
    }
    Node* both = NodeBuilder(graph_, "gt::rms_norm_backward")
                     .Set("grad_out", backward.operand(0))
                     .Set("input", backward.operand(1))
                     .Set("rstd", backward.operand(2))
                     .Set("weight", backward.operand(3))
                     .Set("added", other)
                     .With(backward.meta())
                     .Insert(&backward);
    add->result()->ReplaceAllUses(both->result(0));
    backward.result(1)->ReplaceAllUses(both->result(1));
    Replaced(&backward, add);
  }

  // Rows that an index_select wrote for this and for generated kernels, which look them up themselves: then
  // nobody has to write them. What they are taken from is kept instead.
  void LookUpRows(Node& dots) {
    Node* view = dots.operand(0)->producer();
    if (!Is(view, "aten::view") || view->result()->type().rank() != 3) return;
    Node* select = view->operand(0)->producer();
    if (!Is(select, "aten::index_select") || CodeKindOf(*select) != CodeKind::kIndexSelect) return;
    Value *rows = select->operand(0), *index = select->operand(1);
    const auto* dim = std::get_if<Dim>(&select->arg(1));
    const TensorType& type = view->result()->type();
    if (!dim->Is(0) || rows->type().rank() != 2 || index->type().dtype != DType::kInt64 ||
        rows->is_input() || rows->producer()->op().is_view() ||
        type.sizes[2] != rows->type().sizes[1] ||
        rows->type().numel() != select->result()->type().numel() ||
        dots.operand(1)->type().rank() != 3) {
      return;
    }
    if (!OthersAreKernels(*select->result(), dots)) return;
    Value* places = NodeBuilder(graph_, "aten::view")
                        .Set("self", index)
                        .Set("size", Shape{type.sizes[0], type.sizes[1]})
                        .With(dots.meta())
                        .Result(&dots);
    Node* at = NodeBuilder(graph_, "gt::row_dots_at")
                   .Set("self", rows)
                   .Set("index", places)
                   .Set("other", dots.operand(1))
                   .With(dots.meta())
                   .Insert(&dots);
    dots.result()->ReplaceAllUses(at->result());
    Replaced(view, &dots);
  }

  static bool OthersAreKernels(const Value& value, const Node& dots) {
    for (const Use& use : value.uses()) {
      const Node* user = use.node();
      if (user == &dots) continue;
      if (user == nullptr || CodeKindOf(*user) == CodeKind::kNone) return false;
      if (!user->op().is_view()) continue;
      if (user->result_count() != 1 || !OthersAreKernels(*user->result(), dots)) return false;
    }
    return true;
  }

  // The gradient of the loss itself is one: what was computed with the loss is not multiplied by it. Only of
  // memory that nobody else has, since the product would have had its own.
  void DropFactorOne(Node& product) {
    if (product.operand_count() != 2 || !IsOne(product.operand(1))) return;
    Value* other = product.operand(0);
    if (other->is_input() || other->producer()->op().aliasing != Aliasing::kNone ||
        OnlyUser(*other) != &product || other->type() != product.result()->type()) {
      return;
    }
    product.result()->ReplaceAllUses(other);
    erased_.push_back(&product);
    ++combined_;
  }

  void Replaced(Node* first, Node* second) {
    erased_.push_back(first);
    erased_.push_back(second);
    ++combined_;
  }

  Graph& graph_;
  const FuseOptions& options_;
  std::vector<Node*> erased_;
  int64_t combined_ = 0;
};

}  // namespace

int64_t CombineRowOperators(Graph& graph, const FuseOptions& options) {
  if (!options.fusion_module_fqn.empty()) return 0;  // parts may be of different modules
  return Combiner(graph, options).Run();
}

}  // namespace gt::fusion
