// A nested graph as libtorch's dispatcher passes it around: operators such as gt::flex_attention take
// graphs as arguments, and an argument must be a value that libtorch knows how to carry.
#pragma once

#include <ATen/core/ivalue.h>

#include "gt/ir/operator.h"
#include "gt/torch_bridge/point_function.h"

namespace gt {

struct GraphObject : torch::CustomClassHolder {
  explicit GraphObject(GraphRef nested) : graph(std::move(nested)), function(*graph) {}
  const GraphRef graph;
  const PointFunction function;
};

c10::IValue ToIValue(const GraphRef& graph);
// None gives null.
c10::intrusive_ptr<GraphObject> ToGraphObject(const c10::IValue& value);

}  // namespace gt
