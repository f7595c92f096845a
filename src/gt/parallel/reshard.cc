#include "gt/parallel/reshard.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "gt/trace/recorder.h"

namespace gt {

thread_local std::shared_ptr<ReshardUnit::Entries> ReshardUnit::current_;

void ReshardUnit::Attach(nn::Module& module) {
  module.AddInputTransform([](const at::Tensor& x) {
    bool wanted = Recorder::Active() == nullptr && at::GradMode::is_enabled();
    current_ = wanted ? std::make_shared<Entries>() : nullptr;
    return x;
  });
  module.AddOutputTransform([](const at::Tensor& out) { return Leave(out); });
}

void ReshardUnit::Gathered(const at::Tensor& block, GatherAgain again) {
  if (!current_) return;
  current_->push_back({block.storage().getWeakStorageImpl(), std::move(again)});
}

// What autograd has saved are views of these storages; emptied and refilled, the views stay valid.
at::Tensor ReshardUnit::Leave(const at::Tensor& out) {
  std::shared_ptr<Entries> entries = std::move(current_);
  current_ = nullptr;
  if (!entries || entries->empty() || !out.requires_grad()) return out;
  for (Entry& entry : *entries) {
    if (auto storage = entry.storage.lock()) {
      storage->set_data_ptr_noswap(c10::DataPtr(nullptr, storage->device()));
    }
  }
  out.register_hook([entries](const at::Tensor&) {
    at::NoGradGuard no_gradients;
    for (Entry& entry : *entries) {
      auto storage = entry.storage.lock();
      if (!storage) continue;
      at::Tensor again = entry.again();
      c10::DataPtr none(nullptr, storage->device());
      storage->set_data_ptr_noswap(
          again.storage().unsafeGetStorageImpl()->set_data_ptr(std::move(none)));
    }
  });
  return out;
}

}  // namespace gt
