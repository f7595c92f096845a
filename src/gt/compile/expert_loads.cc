#include "gt/compile/expert_loads.h"

#include <utility>
#include <vector>

#include "gt/compile/global_step.h"
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

namespace {

// Of one rank that represents all its own, of a rank among others those that the fullest has.
RoutingLoads ToPlanFor(const StepRequest& request, ExpectedRouting expected) {
  const bool alone = request.world == nullptr || request.world->pretended();
  return alone ? std::move(expected.own) : std::move(expected.over_ranks);
}

}  // namespace

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
  return ToPlanFor(request, ConfiguredLoads(request.model, request.config, request.mesh));
}

RoutingLoads LoadsToPlanFor(const StepRequest& request, const PlacedStep& placed,
                            const placement::DeviceMesh& mesh) {
  const MeshRank rank(mesh, placed.rank);
  const MoeLoad load = MoeLoadOf(request.config);
  const Config& config = request.config;
  const int64_t ranks = mesh.ranks();
  const int64_t tokens = GlobalBatch(config, ranks) * config.training.seq_len / ranks;
  RoutingLoads loads;
  for (const nn::Moe* moe : ModulesWithExperts(request.model)) {
    const ExpertModule module = {moe->fqn().str(), moe->config().experts, moe->config().top_k};
    auto found = placed.expert_axes.find(module.fqn);
    const AxisList axes = found == placed.expert_axes.end() ? AxisList{} : found->second;
    loads.modules.merge(ToPlanFor(request, ExpectedLoads(load, {&module, 1}, rank.SizeOf(axes),
                                                         rank.IndexIn(axes), tokens))
                            .modules);
  }
  return loads;
}

}  // namespace gt
