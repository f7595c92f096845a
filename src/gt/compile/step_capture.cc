#include "gt/compile/step_capture.h"

#include <span>

#include "gt/compile/configured_model.h"
#include "gt/compile/step_inputs.h"
#include "gt/torch_bridge/convert.h"

namespace gt {

Captured CaptureUncompiled(const StepRequest& request, const EpOverlapSection& overlap) {
  const bool sequence = overlap.chunk_dim == ChunkDim::kSeq;
  return CaptureUncompiled(request, overlap, sequence ? request.mesh.size(MeshAxis::kTp) : 1);
}

Captured CaptureUncompiled(const StepRequest& request, const EpOverlapSection& overlap,
                           int64_t parts) {
  CaptureOptions options;
  options.device = FromTorch(request.device);
  options.name = "train_step";
  // First: the symbol that is cut is then s0.
  if (ChunksGraph(overlap)) {
    options.hooks.push_back(OpenChunkedDim(overlap, parts));
  }
  if (request.symbolic_batch) options.hooks.push_back(OpenBatch());
  LanguageModel& model = request.model;
  Captured captured = CaptureTrainStep(
      model,
      [&model, loss = LossConfigOf(request.config, model)](std::span<const at::Tensor> given) {
        return LossOf(model, {given[0], given[2]}, given[1], given[3], loss);
      },
      StepInputs(request.config, request.mesh), options);
  captured.graph->modules() = nn::RolesOf(model);
  return captured;
}

}  // namespace gt
