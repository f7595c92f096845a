#include "gt/train/batch.h"

#include <ATen/ATen.h>

namespace gt {

Batch ToDevice(const TokenBatch& batch, at::Device device) {
  auto tensor = [&](const std::vector<int64_t>& numbers) {
    return at::from_blob(const_cast<int64_t*>(numbers.data()), {batch.rows, batch.length},
                         at::kLong)
        .to(device, /*non_blocking=*/false, /*copy=*/true);
  };
  return {tensor(batch.tokens), tensor(batch.labels), tensor(batch.positions), batch.valid_tokens};
}

}  // namespace gt
