#include "gt/passes/placement/node_maker.h"

#include <numeric>
#include <utility>

namespace gt {

Value* NodeMaker::Contiguous(Value* x) {
  const TensorType& type = x->type();
  if (type.strides == ContiguousStrides(type.sizes, graph_.shapes())) return x;
  return Make("aten::clone")
      .Set("self", x)
      .Set("memory_format", MemoryFormat::kContiguous)
      .Result();
}

Value* NodeMaker::View(Value* x, Shape sizes) {
  if (x->type().sizes == sizes) return x;
  return Make("aten::view").Set("self", x).Set("size", std::move(sizes)).Result();
}

Value* NodeMaker::ViewAs(Value* x, DType dtype) {
  return Make("aten::view.dtype").Set("self", x).Set("dtype", dtype).Result();
}

Value* NodeMaker::Permute(Value* x, const std::vector<int64_t>& dims) {
  Shape order(dims.begin(), dims.end());
  return Make("aten::permute").Set("self", x).Set("dims", std::move(order)).Result();
}

Value* NodeMaker::Slice(Value* x, int64_t dim, const Dim& begin, const Dim& length) {
  if (begin.Is(0) && x->type().sizes[static_cast<size_t>(dim)] == length) return x;
  return Make("aten::slice.Tensor")
      .Set("self", x)
      .Set("dim", Dim(dim))
      .Set("start", begin)
      .Set("end", begin + length)
      .Result();
}

Value* NodeMaker::PadEnd(Value* x, int64_t dim, int64_t missing) {
  if (missing == 0) return x;
  // Pairs of before and after, the last dimension first.
  Shape padding(2 * static_cast<size_t>(x->type().rank() - dim), Dim(0));
  padding.back() = missing;
  return Make("aten::constant_pad_nd").Set("self", x).Set("pad", std::move(padding)).Result();
}

Value* NodeMaker::Concatenate(const std::vector<Value*>& parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  return Make("aten::cat").Set("tensors", parts).Set("dim", Dim(dim)).Result();
}

Value* NodeMaker::Arange(Dim end, Device device) {
  return Make("aten::arange")
      .Set("end", std::move(end))
      .Set("dtype", DType::kInt64)
      .Set("layout", gt::Layout::kStrided)
      .Set("device", device)
      .Result();
}

Value* NodeMaker::Wait(Value* x) {
  return Make("_c10d_functional::wait_tensor").Set("tensor", x).Result();
}

Value* NodeMaker::AllGather(Value* x, const AxisList& axes) {
  return Wait(Make("_c10d_functional::all_gather_into_tensor")
                  .Set("input", x)
                  .Set("group_size", Dim(rank_.SizeOf(axes)))
                  .Set("group_name", MeshGroupName(axes))
                  .Result());
}

Value* NodeMaker::ReduceScatter(Value* x, const AxisList& axes) {
  return Wait(Make("_c10d_functional::reduce_scatter_tensor")
                  .Set("input", x)
                  .Set("reduce_op", std::string("sum"))
                  .Set("group_size", Dim(rank_.SizeOf(axes)))
                  .Set("group_name", MeshGroupName(axes))
                  .Result());
}

Value* NodeMaker::AllReduce(Value* x, std::string_view how, const AxisList& axes) {
  return Wait(Make("_c10d_functional::all_reduce")
                  .Set("input", x)
                  .Set("reduce_op", std::string(how))
                  .Set("group_name", MeshGroupName(axes))
                  .Result());
}

Value* NodeMaker::AllToAll(Value* x, Shape received, Shape sent, const AxisList& axes) {
  return Wait(Make("_c10d_functional::all_to_all_single")
                  .Set("input", x)
                  .Set("output_split_sizes", std::move(received))
                  .Set("input_split_sizes", std::move(sent))
                  .Set("group_name", MeshGroupName(axes))
                  .Result());
}

}  // namespace gt
