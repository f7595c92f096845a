// FlexAttention: attention whose scores and mask are given as C++ functions over single pairs.
//
//   FlexAttention alibi({.score = [](const ScorePoint& p) { return p.score - 0.1 * (p.query - p.key); },
//                        .mask = [](const PairPoint& p) { return p.query >= p.key; }});
//   at::Tensor out = alibi(query, key, value, scale);
//
// The functions become graphs once, when the object is made; a captured step holds them as nested
// graphs, and eager steps run the same ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "gt/ir/operator.h"

namespace gt::nn {

// One query and one key: numbers as 0-dimensional int32 tensors, and the captured tensors, whole.
struct PairPoint {
  at::Tensor batch, head, query, key;
  std::span<const at::Tensor> captures;
  // captures[i][a, b, ...]
  at::Tensor Lookup(size_t capture, std::initializer_list<at::Tensor> index) const;
};

// The same with the score, a 0-dimensional float32 tensor.
struct ScorePoint : PairPoint {
  at::Tensor score;
};

struct CaptureType {
  at::ScalarType dtype = at::kInt;
  int64_t rank = 1;
};

struct FlexFunctions {
  std::function<at::Tensor(const ScorePoint&)> score = {};  // empty: the score as it is
  std::function<at::Tensor(const PairPoint&)> mask = {};    // empty: every pair counts
  // Tensors the functions look things up in. They get no gradient.
  std::vector<CaptureType> captures = {};
};

class FlexAttention {
 public:
  explicit FlexAttention(const FlexFunctions& functions);

  // query: [batch, heads, length, width]; key and value may have fewer heads, each serving equally
  // many query heads. Result like query, as wide as value. Differentiable.
  at::Tensor operator()(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        double scale, const std::vector<at::Tensor>& captures = {}) const;

  const GraphRef& score_graph() const { return score_; }
  const GraphRef& mask_graph() const { return mask_; }

 private:
  GraphRef score_, score_backward_, mask_;
  size_t capture_count_;
};

// Everything at or before the query.
FlexFunctions CausalFunctions();
// ... that is also in its document. Captures one int32 tensor [batch, length] of document numbers.
FlexFunctions DocumentFunctions();

}  // namespace gt::nn
