#include "gt/train/model_fit.h"

#include <algorithm>
#include <filesystem>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/models/hf_config.h"

namespace gt {
namespace {

// Enough to see dense first layers and any pattern of experts after them.
constexpr int64_t kSampledLayers = 64;

// 0: as many as the flavor has.
int64_t LayersOf(const Config& config) {
  if (config.model.n_layers > 0 || config.model.hf_path.empty()) return config.model.n_layers;
  const std::filesystem::path folder = config.model.hf_path;
  return HfConfig::FromFile((folder / "config.json").string()).Int("num_hidden_layers");
}

double ParametersWith(Config config, int64_t layers) {
  config.model.n_layers = layers;
  return static_cast<double>(nn::ParameterCount(*BuildConfiguredModel(config)));
}

// A floating-point number: sizes of a configuration may multiply to more than 64 bits hold.
double ParametersOf(const Config& config) {
  const int64_t layers = LayersOf(config);
  if (layers <= kSampledLayers) return ParametersWith(config, layers);
  const double half = ParametersWith(config, kSampledLayers / 2);
  const double sampled = ParametersWith(config, kSampledLayers);
  const double per_layer = (sampled - half) / (kSampledLayers - kSampledLayers / 2);
  return sampled + per_layer * static_cast<double>(layers - kSampledLayers);
}

}  // namespace

void RequireModelFits(const Config& config, const World& world, c10::Device device) {
  if (!config.training.check_memory) return;
  double parameters = 0;
  try {
    parameters = ParametersOf(config);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kDoesNotFit) throw;
    return;
  }
  // A parameter and AdamW's two numbers for it. Gradients need not exist all at once.
  const double bytes =
      3 * parameters * static_cast<double>(c10::elementSize(ToTorch(config.training.dtype)));
  const int64_t each = MemoryForRank(world, device);
  if (bytes <= static_cast<double>(each) * static_cast<double>(world.size())) return;
  constexpr double kMost = 9e18;  // what an integer holds
  Fail(
      ErrorCode::kDoesNotFit,
      "the model of {} has about {:.3g} parameters, which need {} with AdamW's state, and {} {}{}; "
      "use a smaller model, fewer layers (--model.n_layers) or more ranks, or start all the same "
      "with --training.check_memory=false",
      ModelTitle(config), parameters, ByteText(static_cast<int64_t>(std::min(bytes, kMost))),
      device.is_cuda() ? "the GPU has" : "this machine has room for", ByteText(each),
      world.size() > 1 ? fmt::format(" for each of {} ranks", WithThousands(world.size())) : "");
}

}  // namespace gt
