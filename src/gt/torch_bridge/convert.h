// Between our vocabulary and libtorch's: dtypes, devices, arguments. The only place that knows both
// spellings.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "gt/ir/operator.h"
#include "gt/ir/type.h"

namespace gt {

class Node;

at::ScalarType ToTorch(DType dtype);
DType FromTorch(at::ScalarType dtype);  // throws for dtypes that graphs do not know

c10::Device ToTorch(Device device);
Device FromTorch(c10::Device device);

at::MemoryFormat ToTorch(MemoryFormat format);
MemoryFormat FromTorch(at::MemoryFormat format);

// The dispatcher's entry for an operator. Throws when libtorch has no such operator (our own
// operators are registered with libtorch under the same name).
c10::OperatorHandle HandleOf(const Operator& op);
// What runs a node: the operator's entry, or that of gt::offload_counts for a copy to the host that the
// host reads (exec/transfer.h).
c10::OperatorHandle KernelOf(const Node& node);
// Our entry for a dispatcher operator, or null. Cached by address: capturing asks for every node.
const Operator* OperatorOf(const c10::OperatorHandle& handle);
// "aten::add.Tensor"
std::string FullName(const c10::OperatorName& name);

// A plain argument (no tensors, no symbols) as the kernel wants it. Dims are evaluated with
// `symbols`.
c10::IValue ToIValue(const ArgSpec& spec, const Argument& argument, SymbolValues symbols);

// A number as libtorch passes it where the schema says Tensor: it takes part in type promotion as a
// Python scalar does.
at::Tensor WrappedNumber(const at::Scalar& number);

// The type of a real tensor.
TensorType TypeOf(const at::Tensor& tensor);

// Whether a tensor is what a type says it is when the symbols have these values. The stride of a
// dimension of size one, and all strides of an empty tensor, mean nothing.
bool FitsType(const at::Tensor& tensor, const TensorType& type, SymbolValues symbols);

}  // namespace gt
