// Tensors of files as libtorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include "gt/storage/safetensors.h"

namespace gt {

// Copied: the bytes of a file may begin at any address.
at::Tensor ToTensor(const TensorEntry& stored);

// Without a copy, for reading, while the file is open; bytes that are not aligned for their type are
// copied all the same.
at::Tensor ViewOf(const TensorEntry& stored);

// Writes a tensor on any device, through host memory; `tensor` is read when the file is written.
TensorSource SourceOf(const std::string& name, const at::Tensor& tensor);

}  // namespace gt
