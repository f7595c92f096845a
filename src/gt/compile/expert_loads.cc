#include "gt/compile/expert_loads.h"

#include <vector>

#include "gt/job/config.h"
#include "gt/job/derived_options.h"
#include "gt/nn/moe.h"

namespace gt {
namespace {

std::vector<nn::Moe*> ModulesWithExperts(LanguageModel& model) {
  std::vector<nn::Moe*> found;
  for (nn::Module* module : nn::ModulesOf(model)) {
    if (auto* moe = dynamic_cast<nn::Moe*>(module)) found.push_back(moe);
  }
  return found;
}

}  // namespace

void ForceLoads(LanguageModel& model, const MoeLoad& load) {
  if (load.kind != MoeLoad::Kind::kZipf && load.kind != MoeLoad::Kind::kFile) return;
  const ExpertWeights weights(load);
  for (nn::Moe* moe : ModulesWithExperts(model)) {
    moe->ForceLoad(weights.Of(moe->fqn().str(), moe->config().experts, moe->config().top_k));
  }
}

ExpectedRouting ConfiguredLoads(LanguageModel& model, const Config& config, const Mesh& mesh) {
  std::vector<ExpertModule> modules;
  for (const nn::Moe* moe : ModulesWithExperts(model)) {
    modules.push_back({moe->fqn().str(), moe->config().experts, moe->config().top_k});
  }
  const int64_t tokens = config.training.local_batch_size * config.training.seq_len /
                         (mesh.size(MeshAxis::kTp) * mesh.size(MeshAxis::kCp));
  return ExpectedLoads(MoeLoadOf(config), modules, mesh.size(MeshAxis::kEp),
                       mesh.coordinate(MeshAxis::kEp), tokens);
}

RoutingLoads LoadsToPlanFor(const StepRequest& request) {
  ExpectedRouting expected = ConfiguredLoads(request.model, request.config, request.mesh);
  const bool alone = request.world == nullptr || request.world->pretended();
  return alone ? std::move(expected.own) : std::move(expected.over_ranks);
}

}  // namespace gt
