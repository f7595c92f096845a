#include "gt/compile/configured_model.h"

#include <algorithm>

#include "gt/compile/expert_loads.h"
#include "gt/job/config.h"
#include "gt/job/derived_options.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/parallel/chunk_modules.h"
#include "gt/parallel/parallelize.h"

namespace gt {

at::ScalarType ToTorch(TrainingDtype dtype) {
  return dtype == TrainingDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

at::ScalarType ToTorch(ExportDtype dtype) {
  switch (dtype) {
    case ExportDtype::kBfloat16:
      return at::kBFloat16;
    case ExportDtype::kFloat16:
      return at::kHalf;
    case ExportDtype::kFloat32:
      break;
  }
  return at::kFloat;
}

void CastParametersForCompute(LanguageModel& model, at::ScalarType dtype) {
  for (nn::Module* module : nn::ModulesOf(model)) {
    module->ForEachParameter([dtype](const std::string&, nn::Parameter& parameter) {
      parameter.set_preparation([dtype](const at::Tensor& stored) { return stored.to(dtype); });
    });
  }
}

ModelPtr BuildConfiguredModel(const Config& config) {
  ModelOptions options;
  options.max_length = config.training.seq_len;
  options.attention = {config.model.attn, config.model.attn_mask_type};
  options.layers = config.model.n_layers;
  options.vocab = config.model.vocab_size;
  options.load_balance = config.model.load_balance_coeff;
  const MoeLoad load = MoeLoadOf(config);
  options.force_balance = load.kind == MoeLoad::Kind::kBalanced;
  options.dropout = config.model.dropout;
  ModelPtr model = config.model.hf_path.empty()
                       ? BuildModel(config.model.name, config.model.flavor, options)
                       : BuildModelFromHf(config.model.hf_path, options);
  ForceLoads(*model, load);
  nn::StoreAs(*model, ToTorch(config.training.dtype));
  const TrainingDtype compute = ComputeDtypeOf(config);
  if (compute != config.training.dtype) CastParametersForCompute(*model, ToTorch(compute));
  return model;
}

namespace {

// A pattern that selects nothing to cut is refused before anything is captured or written. With `auto`
// it is a reason to cut nothing (compile/overlap_choice.cc).
void RejectUselessChunks(LanguageModel& model, const EpOverlapSection& overlap) {
  if (overlap.enabled == AutoSwitch::kTrue) SelectChunkedModules(model, overlap);
}

}  // namespace

ModelPtr BuildConfiguredModel(const Config& config, World& world, const Mesh& mesh) {
  ModelPtr model = BuildConfiguredModel(config);
  RejectUselessChunks(*model, config.compile.ep_overlap);
  if (config.compile.enable_autoparallel) return model;  // its step is rewritten instead
  if (world.size() > 1 || config.debug.collectives_of_one) {
    Parallelize(*model, world, mesh, config, ToTorch(ComputeDtypeOf(config)));
  }
  const EpOverlapSection& overlap = config.compile.ep_overlap;
  if (overlap.enabled == AutoSwitch::kTrue && overlap.strategy == ChunkStrategy::kEager)
    ChunkModules(*model, overlap);
  return model;
}

void InitializeModel(LanguageModel& model, const Config& config, at::Device device) {
  at::ScalarType dtype = ToTorch(config.training.dtype);
  if (config.model.hf_path.empty()) {
    nn::Materialize(model, device, config.training.seed, dtype);
  } else {
    nn::Allocate(model, device, dtype);
    LoadHfWeights(model, config.model.hf_path);
  }
}

std::string ModelTitle(const Config& config) {
  if (!config.model.hf_path.empty()) return config.model.hf_path;
  return config.model.name + " " + config.model.flavor;
}

LossConfig LossConfigOf(const Config& config, const LanguageModel& model) {
  LossConfig loss{config.training.loss_chunks, config.training.z_loss_coeff};
  if (loss.chunks == 0) {
    constexpr int64_t kMostBytes = int64_t{256} << 20;
    int64_t bytes = config.training.local_batch_size * config.training.seq_len *
                    model.vocab_size() * static_cast<int64_t>(sizeof(float));
    loss.chunks = std::max<int64_t>(2, (bytes + kMostBytes - 1) / kMostBytes);
  }
  return loss;
}

}  // namespace gt
