#include "gt/nn/key_value_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "gt/base/error.h"

namespace gt::nn {
namespace {

// Doubling makes the copies of all growth together cost less than writing every slot twice.
int64_t GrownCapacity(int64_t capacity, int64_t slots) {
  constexpr int64_t kLeast = 64;
  return std::max({slots, 2 * capacity, kLeast});
}

}  // namespace

at::Tensor KeyValueCache::BeginPass(std::span<const int64_t> starts, int64_t tokens) {
  GT_CHECK(!starts.empty() && tokens > 0, "a pass needs tokens");
  first_pass_ = !begun_;
  begun_ = true;
  auto [least, most] = std::minmax_element(starts.begin(), starts.end());
  GT_CHECK(!first_pass_ || *most == 0, "the first pass begins at position {}", *most);
  common_start_ = *least == *most ? std::optional(*least) : std::nullopt;
  slots_ = *most + tokens;
  tokens_ = tokens;
  at::Tensor first = at::tensor(at::ArrayRef<int64_t>(starts.data(), starts.size()), at::kLong);
  positions_ = (first.unsqueeze(1) + at::arange(tokens, at::kLong)).to(device_);
  visible_ = at::Tensor();
  if (!first_pass_ && (tokens > 1 || !common_start_)) {
    at::Tensor slot = at::arange(slots_, positions_.options());
    visible_ = at::le(slot, positions_.unsqueeze(2)).unsqueeze(1);
  }
  return positions_;
}

void KeyValueCache::Store(const at::Tensor& slots, const at::Tensor& fresh) const {
  if (common_start_) {
    slots.narrow(2, *common_start_, tokens_).copy_(fresh.transpose(1, 2));
    return;
  }
  at::Tensor row = at::arange(fresh.size(0), positions_.options()).unsqueeze(1);
  slots.transpose(1, 2).index_put_({row, positions_}, fresh);
}

at::Tensor KeyValueCache::Extend(const Module& owner, const std::string& part,
                                 const at::Tensor& fresh) {
  at::Tensor& kept = kept_[{&owner, part}];
  int64_t capacity = kept.defined() ? kept.size(2) : 0;
  if (slots_ > capacity) {
    // Zeros, not whatever was in memory: a slot that is not seen has weight 0, and 0 times a number
    // that is not finite would be seen.
    at::Tensor grown =
        at::zeros({fresh.size(0), fresh.size(2), GrownCapacity(capacity, slots_), fresh.size(3)},
                  fresh.options());
    if (kept.defined()) grown.narrow(2, 0, capacity).copy_(kept);
    kept = grown;
  }
  Store(kept, fresh);
  return kept.narrow(2, 0, slots_);
}

void KeyValueCache::KeepRows(const at::Tensor& rows) {
  at::Tensor chosen = rows.to(device_);
  for (auto& [key, kept] : kept_) kept = kept.index_select(0, chosen);
}

}  // namespace gt::nn
