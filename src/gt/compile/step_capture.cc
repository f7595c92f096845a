#include "gt/compile/step_capture.h"

#include <span>

#include "gt/compile/configured_model.h"
#include "gt/compile/step_inputs.h"
#include "gt/torch_bridge/convert.h"

namespace gt {

Captured CaptureUncompiled(LanguageModel& model, const Config& config,
                           const Config::Compile::EpOverlap& overlap, c10::Device device,
                           bool symbolic_batch, const Mesh& mesh) {
  CaptureOptions options;
  options.device = FromTorch(device);
  options.name = "train_step";
  // First: the symbol that is cut is then s0.
  if (ChunksGraph(overlap)) {
    options.hooks.push_back(OpenChunkedDim(overlap, mesh.size(MeshAxis::kTp)));
  }
  if (symbolic_batch) options.hooks.push_back(OpenBatch());
  return CaptureTrainStep(
      model,
      [&model, loss = LossConfigOf(config, model)](std::span<const at::Tensor> given) {
        return LossOf(model, {given[0], given[2]}, given[1], given[3], loss);
      },
      StepInputs(config, mesh), options);
}

}  // namespace gt
