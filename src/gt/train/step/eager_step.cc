#include "gt/train/step/eager_step.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "gt/parallel/chunk_modules.h"

namespace gt {
namespace {

class EagerStep : public TrainStep {
 public:
  EagerStep(LanguageModel& model, const LossConfig& loss)
      : model_(model), loss_(loss), parameters_(model.parameters()) {}

  StepResult Run(const Batch& batch, int64_t valid_tokens) override {
    at::Tensor loss = LossOf(model_, {batch.tokens, batch.positions}, batch.labels,
                             ValidTokens(valid_tokens, batch), loss_);
    if (is_first_) RequireChunkedModulesCalled(model_);
    is_first_ = false;
    std::vector<at::Tensor> gradients =
        torch::autograd::grad({loss}, parameters_, {at::ones_like(loss)}, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    return {loss.detach(), std::move(gradients)};
  }

 private:
  LanguageModel& model_;
  LossConfig loss_;
  std::vector<at::Tensor> parameters_;
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<TrainStep> MakeEagerStep(LanguageModel& model, const LossConfig& loss) {
  return std::make_unique<EagerStep>(model, loss);
}

}  // namespace gt
