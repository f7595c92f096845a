// What attention modules remember of tokens that a model has seen, so that later tokens attend to them
// without anything being recomputed: keys and values, or latents that both are made from.
//
// A row is a sequence and a slot is a position in it: what belongs to position p is in slot p. Rows of
// different lengths therefore need no bookkeeping. A token sees the slots up to its own position, so
// what padding left in the slots beyond is never seen, and is overwritten by later tokens.
//
// Training knows nothing of this: without a cache in its inputs, attention computes what it always did.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace gt::nn {

class Module;

class KeyValueCache {
 public:
  explicit KeyValueCache(at::Device device) : device_(device) {}

  // Before every pass of the model: row r has `tokens` tokens from position starts[r] on. In the first
  // pass all start at 0. Returns the positions, [rows, tokens], int64.
  at::Tensor BeginPass(std::span<const int64_t> starts, int64_t tokens);

  // In the first pass a token sees only tokens of the pass itself: plain causal attention.
  bool first_pass() const { return first_pass_; }
  // Which slots each token of a later pass sees: bool [rows, 1, tokens, slots]. Undefined: all of them.
  const at::Tensor& visible() const { return visible_; }

  // Stores what `owner` computed for the tokens of this pass, [rows, tokens, heads, width], and returns
  // that of all positions so far, [rows, heads, slots, width]. `part` tells apart what one module keeps.
  at::Tensor Extend(const Module& owner, const std::string& part, const at::Tensor& fresh);

  // Only these rows go on, in this order. int64 [rows]
  void KeepRows(const at::Tensor& rows);

 private:
  void Store(const at::Tensor& slots, const at::Tensor& fresh) const;

  at::Device device_;
  bool first_pass_ = true, begun_ = false;
  int64_t slots_ = 0;  // in use: one more than the largest position
  int64_t tokens_ = 0;
  std::optional<int64_t> common_start_;  // of this pass, where all rows have the same
  at::Tensor positions_, visible_;
  // [rows, heads, capacity, width]
  std::map<std::pair<const Module*, std::string>, at::Tensor> kept_;
};

}  // namespace gt::nn
