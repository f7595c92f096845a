#include "gt/torch_bridge/stored_tensor.h"

#include <ATen/ATen.h>

#include <cstring>

#include "gt/torch_bridge/convert.h"

namespace gt {

at::Tensor ToTensor(const TensorEntry& stored) {
  at::Tensor tensor = at::empty(stored.sizes, ToTorch(stored.dtype));
  if (!stored.bytes.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), stored.bytes.data(), stored.bytes.size());
  }
  return tensor;
}

at::Tensor ViewOf(const TensorEntry& stored) {
  auto address = reinterpret_cast<uintptr_t>(stored.bytes.data());
  at::ScalarType dtype = ToTorch(stored.dtype);
  if (address % c10::elementSize(dtype) != 0) return ToTensor(stored);
  return at::from_blob(const_cast<std::byte*>(stored.bytes.data()), stored.sizes, dtype);
}

TensorSource SourceOf(const std::string& name, const at::Tensor& tensor) {
  TensorSource source{name, FromTorch(tensor.scalar_type()), tensor.sizes().vec(), {}};
  source.write = [tensor](const ByteSink& sink) {
    at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
    sink({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  };
  return source;
}

}  // namespace gt
