// A tensor without data that stands for a value of the graph being captured. It carries its value's
// sizes and strides (symbolic where the type is) and the dispatch keys of a real tensor on its
// device, so that libtorch takes the same decisions as it takes in eager runs, plus Fake, where the
// recorder listens below autograd.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "gt/ir/graph.h"

namespace gt {

class TracedTensor final : public c10::TensorImpl {
 public:
  TracedTensor(Value* value, ShapeEnv& shapes, c10::Device device);

  Value* value() const { return value_; }
  ShapeEnv& shapes() const { return shapes_; }

  // Null when the tensor is not a traced one.
  static TracedTensor* From(const at::Tensor& tensor);

  c10::IntArrayRef sizes_custom() const override;
  c10::IntArrayRef strides_custom() const override;
  int64_t numel_custom() const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version_counter, bool allow_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version_counter,
                                                         bool allow_metadata_change) const override;

 private:
  template <typename Version>
  c10::intrusive_ptr<TensorImpl> Copy(Version&& version_counter, bool allow_metadata_change) const;

  Value* value_;
  ShapeEnv& shapes_;
};

at::Tensor MakeTraced(Value* value, ShapeEnv& shapes);

}  // namespace gt
