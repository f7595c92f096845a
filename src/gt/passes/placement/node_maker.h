// Nodes of a placed step, one line each. All get the metadata that is set; nothing is inserted for what
// changes nothing (a slice of everything, a view of the same sizes).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gt/ir/builder.h"
#include "gt/passes/placement/shard_geometry.h"

namespace gt {

class NodeMaker {
 public:
  NodeMaker(Graph& graph, const MeshRank& rank) : graph_(graph), rank_(rank) {}

  Graph& graph() { return graph_; }
  const MeshRank& rank() const { return rank_; }
  const Meta& meta() const { return meta_; }
  void set_meta(Meta meta) { meta_ = std::move(meta); }

  NodeBuilder Make(std::string_view op) { return std::move(NodeBuilder(graph_, op).With(meta_)); }

  // Local rearrangement.
  Value* Contiguous(Value* x);  // row-major, a copy if it is not
  Value* View(Value* x, Shape sizes);
  Value* ViewAs(Value* x, DType dtype);  // of the same width
  Value* Permute(Value* x, const std::vector<int64_t>& dims);
  Value* Slice(Value* x, int64_t dim, const Dim& begin, const Dim& length);
  Value* PadEnd(Value* x, int64_t dim, int64_t missing);
  Value* Concatenate(const std::vector<Value*>& parts, int64_t dim);
  Value* Arange(Dim end, Device device);

  // Collectives among the ranks along these axes, each with its wait. `x` is row-major.
  Value* AllGather(Value* x, const AxisList& axes);      // along dimension 0
  Value* ReduceScatter(Value* x, const AxisList& axes);  // of dimension 0
  Value* AllReduce(Value* x, std::string_view how, const AxisList& axes);
  Value* AllToAll(Value* x, Shape received, Shape sent, const AxisList& axes);

 private:
  Value* Wait(Value* x);

  Graph& graph_;
  const MeshRank& rank_;
  Meta meta_;
};

// Sets the metadata of what is made, for a scope.
class MetaScope {
 public:
  MetaScope(NodeMaker& make, Meta meta) : make_(make), before_(make.meta()) {
    make.set_meta(std::move(meta));
  }
  ~MetaScope() { make_.set_meta(before_); }
  MetaScope(const MetaScope&) = delete;
  MetaScope& operator=(const MetaScope&) = delete;

 private:
  NodeMaker& make_;
  Meta before_;
};

}  // namespace gt
