#include "gt/nn/chunking.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "gt/base/error.h"

namespace gt::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// The same tensor, whose gradient arrives contiguous: as a piece of the whole gradient that was cut
// as inputs are.
class ContiguousGradient : public torch::autograd::Function<ContiguousGradient> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.view_as(x); }
  static tensor_list backward(AutogradContext*, tensor_list gradients) {
    return {gradients[0].contiguous()};
  }
};

std::string ShapeText(const at::Tensor& tensor) {
  std::ostringstream text;
  text << "a tensor of shape " << tensor.sym_sizes();
  return text.str();
}

}  // namespace

ChunkedCall::ChunkedCall(Name root, const Chunking& chunking, const at::Tensor& x)
    : root_(root), chunking_(chunking) {
  if (x.dim() <= chunking.dim) RejectInput(ShapeText(x));
  extent_ = x.sym_size(chunking.dim);
  if (extent_ < chunking.count) {
    Fail(ErrorCode::kChunkExtent,
         "{}: dimension {} of its input has {} elements, which cannot make {} chunks", root.str(),
         chunking.dim, extent_.guard_int(__FILE__, __LINE__), chunking.count);
  }
  for (int64_t i = 0; i < chunking.count; ++i) {
    sizes_.push_back((extent_ + (chunking.count - 1 - i)) / chunking.count);
  }
}

Annotation ChunkedCall::Marked(ChunkRole role, int64_t id) const {
  auto chunk = std::make_shared<ChunkMeta>();
  chunk->id = static_cast<int32_t>(id);
  chunk->region = root_;
  chunk->role = role;
  chunk->producer = ChunkProducer::kEager;
  return {.chunk = std::move(chunk)};
}

std::vector<at::Tensor> ChunkedCall::Pieces(const at::Tensor& whole) const {
  if (!whole.defined()) return std::vector<at::Tensor>(sizes_.size());
  if (whole.dim() <= chunking_.dim || whole.sym_size(chunking_.dim) != extent_) {
    RejectInput(ShapeText(whole));
  }
  std::vector<at::Tensor> pieces;
  {
    AnnotationGuard split(Marked(ChunkRole::kSplitBoundary, -1));
    pieces = whole.split_with_sizes_symint(sizes_, chunking_.dim);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    AnnotationGuard own(Marked(ChunkRole::kChunkInput, static_cast<int64_t>(i)));
    pieces[i] = pieces[i].contiguous();
  }
  return pieces;
}

at::Tensor ChunkedCall::Join(std::vector<at::Tensor> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    at::Tensor& result = results[i];
    if (!result.defined()) RejectResult("an undefined tensor");
    if (result.dim() <= chunking_.dim || result.sym_size(chunking_.dim) != sizes_[i]) {
      RejectResult(ShapeText(result));
    }
    if (!result.requires_grad()) continue;
    AnnotationGuard own(Marked(ChunkRole::kChunkInput, static_cast<int64_t>(i)));
    result = ContiguousGradient::apply(result);
  }
  AnnotationGuard join(Marked(ChunkRole::kMaterialization, -1));
  return at::cat(results, chunking_.dim);
}

std::vector<at::Tensor> ChunkedCall::JoinLists(std::vector<std::vector<at::Tensor>> results) {
  std::vector<at::Tensor> joined;
  for (size_t t = 0; t < results[0].size(); ++t) {
    std::vector<at::Tensor> column;
    for (const std::vector<at::Tensor>& result : results) {
      if (result.size() != results[0].size()) {
        RejectResult(fmt::format("a list of {} tensors in one chunk and {} in another",
                                 results[0].size(), result.size()));
      }
      column.push_back(result[t]);
    }
    joined.push_back(Join(std::move(column)));
  }
  return joined;
}

void ChunkedCall::RejectInput(const std::string& what) const {
  Fail(ErrorCode::kChunkSignature,
       "{} cannot be run in chunks along dimension {}: input {} is {}; inputs must be tensors with "
       "the extent of the first input there, or structs of such tensors with a ForEachTensor",
       root_.str(), chunking_.dim, std::max(inputs_seen_, 1), what);
}

void ChunkedCall::RejectResult(const std::string& what) const {
  Fail(ErrorCode::kChunkSignature,
       "{} cannot be run in chunks along dimension {}: it returns {}; results must be tensors with "
       "the chunk's extent there, or tuples and lists of such tensors",
       root_.str(), chunking_.dim, what);
}

}  // namespace gt::nn
