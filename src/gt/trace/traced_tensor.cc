#include "gt/trace/traced_tensor.h"

#include "gt/base/error.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/scope.h"
#include "gt/trace/symbolic.h"

namespace gt {
namespace {

c10::DispatchKeySet KeysOn(c10::Device device) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kCuda({DispatchKey::Fake, DispatchKey::CUDA,
                                       DispatchKey::AutogradCUDA, DispatchKey::ADInplaceOrView});
  constexpr c10::DispatchKeySet kCpu({DispatchKey::Fake, DispatchKey::CPU, DispatchKey::AutogradCPU,
                                      DispatchKey::ADInplaceOrView});
  return device.is_cuda() ? kCuda : kCpu;
}

[[noreturn]] void ConcreteSizeAsked(const TracedTensor& tensor, const char* what) {
  const TensorType& type = tensor.value()->type();
  std::string sizes;
  for (const Dim& dim : type.sizes) {
    sizes += (sizes.empty() ? "" : ", ") + tensor.shapes().Print(dim);
  }
  Fail(ErrorCode::kConcreteSize,
       "{} in module '{}' asks for the plain {} of a tensor whose sizes [{}] are symbolic; taking "
       "them would fix the "
       "graph to one size. Use the symbolic form (sym_sizes, view_symint, ...), or do not mark the "
       "dimension as symbolic",
       CurrentOperation(), CurrentScope().module.str(), what, sizes);
}

}  // namespace

TracedTensor::TracedTensor(Value* value, ShapeEnv& shapes, c10::Device device)
    : TensorImpl(KeysOn(device), c10::scalarTypeToTypeMeta(ToTorch(value->type().dtype)), device),
      value_(value),
      shapes_(shapes) {
  const TensorType& type = value->type();
  bool symbolic = false;
  for (const Dim& dim : type.sizes) symbolic |= !dim.is_const();
  for (const Dim& dim : type.strides) symbolic |= !dim.is_const();
  if (symbolic) {
    c10::SmallVector<c10::SymInt, 5> sizes, strides;
    for (const Dim& dim : type.sizes) sizes.push_back(ToSymInt(dim, shapes));
    for (const Dim& dim : type.strides) strides.push_back(ToSymInt(dim, shapes));
    set_sizes_and_strides(sizes, strides, c10::SymInt(0));
  } else {
    c10::SmallVector<int64_t, 5> sizes, strides;
    for (const Dim& dim : type.sizes) sizes.push_back(*dim.as_const());
    for (const Dim& dim : type.strides) strides.push_back(*dim.as_const());
    set_sizes_and_strides(sizes, strides, 0);
  }
}

TracedTensor* TracedTensor::From(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return dynamic_cast<TracedTensor*>(tensor.unsafeGetTensorImpl());
}

c10::IntArrayRef TracedTensor::sizes_custom() const { ConcreteSizeAsked(*this, "sizes"); }

c10::IntArrayRef TracedTensor::strides_custom() const { ConcreteSizeAsked(*this, "strides"); }

int64_t TracedTensor::numel_custom() const { ConcreteSizeAsked(*this, "number of elements"); }

template <typename Version>
c10::intrusive_ptr<c10::TensorImpl> TracedTensor::Copy(Version&& version_counter,
                                                       bool allow_metadata_change) const {
  auto copy = c10::make_intrusive<TracedTensor>(value_, shapes_, *device_opt_);
  copy_tensor_metadata(this, copy.get(), std::forward<Version>(version_counter),
                       allow_metadata_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TracedTensor::shallow_copy_and_detach(
    const c10::VariableVersion& version_counter, bool allow_metadata_change) const {
  return Copy(version_counter, allow_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> TracedTensor::shallow_copy_and_detach(
    c10::VariableVersion&& version_counter, bool allow_metadata_change) const {
  return Copy(std::move(version_counter), allow_metadata_change);
}

at::Tensor MakeTraced(Value* value, ShapeEnv& shapes) {
  return at::detail::make_tensor<TracedTensor>(value, shapes, ToTorch(value->type().device));
}

}  // namespace gt
