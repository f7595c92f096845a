// Valid random graphs for tests: registered operators of every argument kind, static and symbolic
// sizes, views, lists, several results, nested graphs, data symbols, metadata. The same seed gives
// the same graph.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/builder.h"
#include "gt/ir/graph.h"

namespace gt::testing {

class RandomGraphMaker {
 public:
  explicit RandomGraphMaker(uint64_t seed) : random_(seed) {}

  std::unique_ptr<Graph> Make(int node_count) {
    auto graph =
        std::make_unique<Graph>(Pick<std::string>({"step", "train.step", "odd name \"x\""}));
    graph_ = graph.get();
    AddInputs();
    while (graph_->node_count() < node_count) {
      try {
        AddNode();
      } catch (const Error&) {
        // The rule refused this combination; another will do.
      }
    }
    AddOutputs();
    AddModules();
    return graph;
  }

 private:
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T>
  T Pick(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(Below(static_cast<int64_t>(choices.size())))];
  }
  TensorType TypeOf(DType dtype, Shape sizes) {
    return ContiguousType(dtype, Device(), std::move(sizes), graph_->shapes());
  }

  void AddModules() {
    for (int64_t i = Below(4); i > 0; --i) {
      const auto role = static_cast<ModuleRole>(Below(int64_t{kModuleRoles}));
      graph_->modules().Declare(
          Name(Pick<std::string>({"layers.0", "layers.1", "", "odd \"name\""})), role);
    }
  }

  void AddInputs() {
    ShapeEnv& shapes = graph_->shapes();
    batch_ = Dim::Symbol(shapes.AddInputSymbol(/*hint=*/8, 2, OneIn(2) ? 64 : kUnbounded));
    length_ = OneIn(3) ? Dim::Symbol(shapes.AddInputSymbol(/*hint=*/16)) : Dim(16);
    weight_ =
        graph_->AddInput(InputRole::kParameter, "layers.0.w", TypeOf(DType::kFloat32, {8, 8}));
    buffer_ = graph_->AddInput(InputRole::kBuffer, "cache", TypeOf(DType::kFloat32, {8}));
    values_.push_back(weight_);
    values_.push_back(
        graph_->AddInput(InputRole::kInput, "x", TypeOf(DType::kFloat32, {batch_, length_, 8})));
    values_.push_back(graph_->AddInput(InputRole::kInput, "tokens \xce\xb2",
                                       TypeOf(DType::kInt64, {batch_, length_})));
    counts_ =
        graph_->AddInput(InputRole::kInput, "counts", TypeOf(DType::kInt64, {2}), "\"counts\"");
    TensorType strided{DType::kBFloat16, {DeviceKind::kCpu, 0}, {4, batch_}, {batch_ * Dim(2), 2}};
    values_.push_back(graph_->AddInput(InputRole::kConstant, "", std::move(strided)));
    TensorType on_gpu = TypeOf(DType::kFloat32, {3, 5});
    on_gpu.device = {DeviceKind::kCuda, 1};
    values_.push_back(graph_->AddInput(InputRole::kConstant, "mask", std::move(on_gpu)));
  }

  Meta RandomMeta() {
    Meta meta;
    if (OneIn(8)) return meta;
    meta.module = Name(Pick<std::string>({"", "layers.0.attention.wq", "layers.1.feed_forward",
                                          "a \"b\" \\ \n \x01 \xce\xb2 \xff"}));
    meta.phase = Pick<Phase>({Phase::kForward, Phase::kLoss, Phase::kBackward});
    if (OneIn(2)) meta.sequence = Below(100);
    if (OneIn(2)) meta.source = Name("llama3.cc:" + std::to_string(Below(500)));
    if (OneIn(4)) meta.ep_role = static_cast<EpRole>(Below(4));
    if (OneIn(4)) meta.exchange = static_cast<TokenExchange>(Below(4));
    if (OneIn(4)) meta.recompute = static_cast<Recompute>(Below(5));
    if (OneIn(4)) meta.fsdp_bucket = Name("bucket_3");
    if (OneIn(4)) {
      ChunkMeta chunk;
      chunk.id = static_cast<int32_t>(Below(3));
      chunk.region = Name("layers.0.moe");
      chunk.role = static_cast<ChunkRole>(Below(5));
      chunk.producer = static_cast<ChunkProducer>(Below(2));
      chunk.backward = meta.phase == Phase::kBackward;
      if (OneIn(2)) chunk.original = Name("mm_3");
      chunk.proof = static_cast<ChunkProof>(Below(4));
      meta.chunk = std::make_shared<const ChunkMeta>(OneIn(5) ? ChunkMeta() : std::move(chunk));
    }
    return meta;
  }

  // Mostly recent values, so that graphs get deep.
  Value* Any() {
    const auto count = static_cast<int64_t>(values_.size());
    const int64_t back = OneIn(4) ? Below(count) : Below(std::min<int64_t>(count, 4));
    return values_[static_cast<size_t>(count - 1 - back)];
  }
  Argument Number() {
    return Pick<Argument>({Dim(2), Dim(-7), 2.0, -0.0, 1e-05, 0.1, 1e300, -1.5, true,
                           std::numeric_limits<double>::infinity(), batch_ * Dim(3) - Dim(1)});
  }
  NodeBuilder New(std::string_view op) {
    NodeBuilder builder(*graph_, op);
    builder.With(RandomMeta());
    return builder;
  }
  void Keep(Node* node) {
    for (int32_t i = 0; i < node->result_count(); ++i) {
      if (node->result(i)->type().defined()) values_.push_back(node->result(i));
    }
  }

  void AddNode() {
    Value* x = Any();
    const Dim last = x->type().rank() - 1;
    switch (Below(20)) {
      case 0:
        return Keep(New("aten::neg").Set("self", x).Insert());
      case 1:
        return Keep(New("aten::silu").Set("self", x).Named("a name!").Insert());
      case 2:
        return Keep(New("aten::add.Tensor").Set("self", x).Set("other", x).Insert());
      case 3:
        return Keep(New("aten::add.Tensor")
                        .Set("self", x)
                        .Set("other", Any())
                        .Set("alpha", Number())
                        .Insert());
      case 4:
        return Keep(New("aten::mul.Tensor").Set("self", x).Set("other", Number()).Insert());
      case 5:
        return Keep(New("aten::transpose.int")
                        .Set("self", x)
                        .Set("dim0", Dim(0))
                        .Set("dim1", last)
                        .Insert());
      case 6:
        return Keep(New("aten::slice.Tensor")
                        .Set("self", x)
                        .Set("dim", last)
                        .Set("start", Dim(Below(3)))
                        .Set("end", Dim(4))
                        .Insert());
      case 7:
        return Keep(New("aten::split.Tensor")
                        .Set("self", x)
                        .Set("split_size", Dim(1 + Below(4)))
                        .Set("dim", last)
                        .Insert());
      case 8:
        return Keep(New("aten::cat")
                        .Set("tensors", std::vector<Value*>{x, x, Any()})
                        .Set("dim", last)
                        .Insert());
      case 9:
        return Keep(New("aten::sum.dim_IntList")
                        .Set("self", x)
                        .Set("dim", Shape{last})
                        .Set("keepdim", OneIn(2))
                        .Insert());
      case 10:
        return Keep(
            New("aten::_to_copy")
                .Set("self", x)
                .Set("dtype", Pick<DType>({DType::kFloat32, DType::kBFloat16, DType::kFloat64}))
                .Insert());
      case 11:
        return Keep(New("aten::full")
                        .Set("size", Shape{batch_, 8})
                        .Set("fill_value", Number())
                        .Set("dtype", DType::kFloat32)
                        .Set("device", Device())
                        .Insert());
      case 12:
        return Keep(
            New("aten::view").Set("self", x).Set("size", Shape{x->type().numel()}).Insert());
      case 13:
        return Keep(New("aten::clamp").Set("self", x).Set("max", Number()).Insert());
      case 14:
        return Keep(New("aten::index.Tensor")
                        .Set("self", x)
                        .Set("indices", std::vector<Value*>{nullptr, values_[2]})
                        .Insert());
      case 15:
        return Keep(
            New("aten::native_dropout").Set("input", x).Set("p", 0.25).Set("train", true).Insert());
      case 16:
        return Keep(
            New("aten::_assert_async.msg").Set("self", x).Set("assert_msg", "\t\"ok\"").Insert());
      case 17:
        return Keep(New("aten::expand").Set("self", x).Set("size", Shape{batch_, 3, -1}).Insert());
      case 18:
        return AddDataRead();
      default:
        return AddFlexAttention();
    }
  }

  void AddDataRead() {
    if (!OneIn(4)) return;
    Node* read = New("gt::read_ints").Set("self", counts_).Insert();
    const Dim first = Dim::Symbol(read->bound_symbols()[0]);
    const Dim second = Dim::Symbol(read->bound_symbols()[1]);
    graph_->shapes().AddFact(first + second, batch_ * Dim(4));
    Keep(New("aten::zeros").Set("size", Shape{first + second, Max(first, second), 2}).Insert());
  }

  void AddFlexAttention() {
    if (!OneIn(4)) return;
    Value* qkv = New("aten::zeros")
                     .Set("size", Shape{batch_, 2, 16, 8})
                     .Set("dtype", DType::kFloat32)
                     .Result();
    auto score = std::make_shared<Graph>("score");
    score->ShareShapes(*graph_);
    const TensorType number = TypeOf(DType::kFloat32, {}), position = TypeOf(DType::kInt32, {});
    Value* s = score->AddInput(InputRole::kInput, "score", number);
    for (const char* name : {"b", "h", "q", "k"})
      score->AddInput(InputRole::kInput, name, position);
    Value* scaled =
        NodeBuilder(*score, "aten::mul.Tensor").Set("self", s).Set("other", Number()).Result();
    score->AddOutput(OutputRole::kResult, "score", scaled);
    Keep(New("gt::flex_attention")
             .Set("query", qkv)
             .Set("key", qkv)
             .Set("value", qkv)
             .Set("captures", std::vector<Value*>{})
             .Set("score_mod", GraphRef(score))
             .Set("scale", 0.125)
             .Insert());
  }

  void AddOutputs() {
    Value* loss = New("aten::sum").Set("self", weight_).Result();
    graph_->AddOutput(OutputRole::kLoss, "loss", loss);
    Value* gradient = New("aten::neg").Set("self", weight_).Result();
    graph_->AddOutput(OutputRole::kGradient, "layers.0.w", gradient);
    Value* update = New("aten::mul.Tensor").Set("self", buffer_).Set("other", 0.5).Result();
    graph_->AddOutput(OutputRole::kBufferUpdate, "cache", update);
    for (int64_t i = Below(4); i > 0; --i) {
      graph_->AddOutput(OneIn(2) ? OutputRole::kSaved : OutputRole::kResult, "r", Any());
    }
  }

  std::mt19937_64 random_;
  Graph* graph_ = nullptr;
  Dim batch_, length_;
  Value* weight_ = nullptr;
  Value* buffer_ = nullptr;
  Value* counts_ = nullptr;
  std::vector<Value*> values_;
};

inline std::unique_ptr<Graph> RandomGraph(uint64_t seed, int node_count = 30) {
  return RandomGraphMaker(seed).Make(node_count);
}

}  // namespace gt::testing
