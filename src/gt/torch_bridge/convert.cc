#include "gt/torch_bridge/convert.h"

#include <ATen/core/List.h>
#include <ATen/ops/scalar_tensor.h>

#include <array>
#include <unordered_map>

#include "gt/analysis/host_reads.h"
#include "gt/base/error.h"
#include "gt/torch_bridge/generator.h"
#include "gt/torch_bridge/graph_object.h"

namespace gt {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, kDTypeCount> kDTypePairs = {{
    {DType::kBool, at::kBool},
    {DType::kUInt8, at::kByte},
    {DType::kInt8, at::kChar},
    {DType::kInt16, at::kShort},
    {DType::kInt32, at::kInt},
    {DType::kInt64, at::kLong},
    {DType::kFloat8E4M3, at::kFloat8_e4m3fn},
    {DType::kFloat8E5M2, at::kFloat8_e5m2},
    {DType::kFloat16, at::kHalf},
    {DType::kBFloat16, at::kBFloat16},
    {DType::kFloat32, at::kFloat},
    {DType::kFloat64, at::kDouble},
    {DType::kComplex64, at::kComplexFloat},
    {DType::kComplex128, at::kComplexDouble},
    {DType::kUInt64, at::kUInt64},
    {DType::kUndefined, at::ScalarType::Undefined},
}};

}  // namespace

at::ScalarType ToTorch(DType dtype) { return kDTypePairs[static_cast<size_t>(dtype)].second; }

DType FromTorch(at::ScalarType dtype) {
  for (const auto& [ours, theirs] : kDTypePairs) {
    if (theirs == dtype) return ours;
  }
  Fail(ErrorCode::kUnsupportedDType, "tensors of dtype {} cannot be part of a graph",
       c10::toString(dtype));
}

c10::Device ToTorch(Device device) {
  switch (device.kind) {
    case DeviceKind::kCpu:
      return {c10::kCPU, device.index};
    case DeviceKind::kCuda:
      return {c10::kCUDA, device.index};
    case DeviceKind::kMeta:
      return {c10::kMeta, device.index};
  }
  GT_CHECK(false, "device kind {}", static_cast<int>(device.kind));
}

Device FromTorch(c10::Device device) {
  switch (device.type()) {
    case c10::kCPU:
      return {DeviceKind::kCpu, device.index()};
    case c10::kCUDA:
      return {DeviceKind::kCuda, device.index()};
    case c10::kMeta:
      return {DeviceKind::kMeta, device.index()};
    default:
      Fail(ErrorCode::kUnsupportedDevice, "tensors on device {} cannot be part of a graph",
           device.str());
  }
}

at::MemoryFormat ToTorch(MemoryFormat format) {
  return format == MemoryFormat::kContiguous ? at::MemoryFormat::Contiguous
                                             : at::MemoryFormat::Preserve;
}

MemoryFormat FromTorch(at::MemoryFormat format) {
  if (format == at::MemoryFormat::Contiguous) return MemoryFormat::kContiguous;
  if (format == at::MemoryFormat::Preserve) return MemoryFormat::kPreserve;
  Fail(ErrorCode::kBadOperands, "channels-last tensors cannot be part of a graph");
}

std::string FullName(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

namespace {

c10::OperatorHandle HandleNamed(const std::string& full) {
  size_t colons = full.find("::");
  size_t dot = full.find('.', colons);
  std::string name = full.substr(0, dot);
  std::string overload = dot == std::string::npos ? "" : full.substr(dot + 1);
  auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle) {
    Fail(ErrorCode::kNoKernel, "libtorch has no operator {}; it cannot be run here", full);
  }
  return *handle;
}

}  // namespace

c10::OperatorHandle HandleOf(const Operator& op) { return HandleNamed(op.name.str()); }

c10::OperatorHandle KernelOf(const Node& node) {
  const bool counts = node.op().transfer == Transfer::kOffload && FeedsHostRead(*node.result());
  return counts ? HandleNamed("gt::offload_counts") : HandleOf(node.op());
}

const Operator* OperatorOf(const c10::OperatorHandle& handle) {
  thread_local std::unordered_map<const void*, const Operator*> cache;
  const c10::OperatorName& name = handle.operator_name();
  auto [entry, fresh] = cache.try_emplace(&name, nullptr);
  if (fresh) entry->second = FindOperator(FullName(name));
  return entry->second;
}

c10::IValue ToIValue(const ArgSpec& spec, const Argument& argument, SymbolValues symbols) {
  if (std::holds_alternative<std::monostate>(argument)) {
    if (spec.kind == ArgKind::kGenerator) return c10::IValue(CurrentGenerator());
    // A missing tensor is none where the schema allows it, and an undefined tensor everywhere else.
    bool undefined = spec.kind == ArgKind::kTensor && !spec.optional;
    return undefined ? c10::IValue(at::Tensor()) : c10::IValue();
  }
  switch (spec.kind) {
    case ArgKind::kInt:
      return std::get<Dim>(argument).Evaluate(symbols);
    case ArgKind::kIntList: {
      c10::List<int64_t> list;
      for (const Dim& dim : std::get<Shape>(argument)) list.push_back(dim.Evaluate(symbols));
      return list;
    }
    case ArgKind::kFloat: {
      if (const Dim* dim = std::get_if<Dim>(&argument)) {
        return static_cast<double>(dim->Evaluate(symbols));
      }
      return std::get<double>(argument);
    }
    case ArgKind::kFloatList:
      return std::get<std::vector<double>>(argument);
    case ArgKind::kBool:
      return std::get<bool>(argument);
    case ArgKind::kBoolList: {
      c10::List<bool> list;
      for (bool value : std::get<std::vector<bool>>(argument)) list.push_back(value);
      return list;
    }
    case ArgKind::kString:
      return std::get<std::string>(argument);
    case ArgKind::kScalar:
    case ArgKind::kTensor: {  // a number in the place of a tensor: the caller wraps it
      if (const Dim* dim = std::get_if<Dim>(&argument)) return at::Scalar(dim->Evaluate(symbols));
      if (const bool* flag = std::get_if<bool>(&argument)) return at::Scalar(*flag);
      return at::Scalar(std::get<double>(argument));
    }
    case ArgKind::kDType:
      return static_cast<int64_t>(ToTorch(std::get<DType>(argument)));
    case ArgKind::kDevice:
      return ToTorch(std::get<Device>(argument));
    case ArgKind::kLayout:
      return static_cast<int64_t>(at::kStrided);
    case ArgKind::kMemoryFormat:
      return static_cast<int64_t>(ToTorch(std::get<MemoryFormat>(argument)));
    case ArgKind::kGraph:
      return ToIValue(std::get<GraphRef>(argument));
    case ArgKind::kTensorList:
    case ArgKind::kGenerator:
      break;
  }
  GT_CHECK(false, "argument '{}' is not a plain value", spec.name);
}

at::Tensor WrappedNumber(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(number, at::device(at::kCPU).dtype(number.type()));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

TensorType TypeOf(const at::Tensor& tensor) {
  TensorType type;
  type.dtype = FromTorch(tensor.scalar_type());
  type.device = FromTorch(tensor.device());
  for (int64_t size : tensor.sizes()) type.sizes.emplace_back(size);
  for (int64_t stride : tensor.strides()) type.strides.emplace_back(stride);
  return type;
}

bool FitsType(const at::Tensor& tensor, const TensorType& type, SymbolValues symbols) {
  if (tensor.dim() != type.rank() || tensor.scalar_type() != ToTorch(type.dtype)) return false;
  if (tensor.device().type() != ToTorch(type.device).type()) return false;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    auto at = static_cast<size_t>(d);
    if (tensor.size(d) != type.sizes[at].Evaluate(symbols)) return false;
    bool meaningful = tensor.size(d) > 1 && tensor.numel() > 0;
    if (meaningful && tensor.stride(d) != type.strides[at].Evaluate(symbols)) return false;
  }
  return true;
}

}  // namespace gt
