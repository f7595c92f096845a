#include "gt/compile/overlap_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gt/analysis/roles.h"
#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/placed_step.h"
#include "gt/compile/prediction.h"
#include "gt/job/config.h"
#include "gt/parallel/chunk_modules.h"

namespace gt {
namespace {

using Overlap = EpOverlapSection;

// A gain that is worth the smaller kernels, given how well steps can be predicted.
constexpr double kWorthwhile = 0.99;
constexpr int64_t kMostChunks = 8;
// Layers with experts that tell the choices apart: the pipeline of chunks fills and drains in two.
constexpr int64_t kSampledLayers = 4;
// The plan of a few layers is another one than that of many: embedding and loss weigh too much in it.
constexpr int64_t kSampledPlacedLayers = 12;

struct Root {
  std::string modules;
  ChunkDim dim;
  int64_t extent;  // chunks there can be at the most
};

struct Extents {
  int64_t batch, positions;
};
// Of what a rank has at a time. In a placed step the plan decides; these are the most it can have.
Extents ExtentsOf(const Config& config, const Mesh& mesh) {
  const int64_t batch = config.training.local_batch_size, positions = config.training.seq_len;
  if (config.compile.enable_autoparallel) return {batch * mesh.size(MeshAxis::kBatch), positions};
  return {batch, positions / (mesh.size(MeshAxis::kTp) * mesh.size(MeshAxis::kCp))};
}

// What may be cut, and how finely.
std::vector<Root> RootsOf(const ModuleTable& model, const Config& config, const Extents& extents) {
  const Overlap& wishes = config.compile.ep_overlap;
  const Overlap defaults;
  const std::string blocks = PatternOf(model.With(ModuleRole::kBlock));
  std::vector<std::string> modules = {blocks, PatternOf(model.With(ModuleRole::kMoe))};
  if (wishes.module_fqn != defaults.module_fqn) modules = {wishes.module_fqn};
  std::vector<Root> roots;
  for (const std::string& pattern : modules) {
    if (pattern.empty()) continue;
    roots.push_back({pattern, ChunkDim::kBatch, extents.batch});
    // Attention needs whole sequences.
    if (pattern != blocks) roots.push_back({pattern, ChunkDim::kSeq, extents.positions});
  }
  if (wishes.chunk_dim != defaults.chunk_dim) {
    std::erase_if(roots, [&](const Root& root) { return root.dim != wishes.chunk_dim; });
  }
  std::erase_if(roots, [](const Root& root) { return root.extent < 2; });
  return roots;
}

// The number of the first block with experts and the number of blocks; nothing for a dense model.
struct Depth {
  int64_t first_sparse = -1, layers = 0;
};
Depth DepthOf(const ModuleTable& model) {
  Depth depth;
  depth.layers = static_cast<int64_t>(model.With(ModuleRole::kBlock).size());
  Roles roles(model);
  for (Name moe : model.With(ModuleRole::kMoe)) {
    const int32_t block = roles.Of(moe).block;
    if (block < 0) continue;
    if (depth.first_sparse < 0 || block < depth.first_sparse) depth.first_sparse = block;
  }
  return depth;
}

// Whether passes may cut the captured step, which is what the choice is about.
bool CutsGraphs(const CompileSection& compile) {
  return compile.enable_passes && compile.ep_overlap.strategy == ChunkStrategy::kGraph &&
         compile.inductor_compilation != InductorCompilation::kAutoparallelBackend;
}

std::string Describe(const Overlap& overlap) {
  if (overlap.enabled == AutoSwitch::kFalse) return "no chunks";
  return fmt::format("{} chunks of {} along the {}", overlap.num_chunks, overlap.module_fqn,
                     overlap.chunk_dim == ChunkDim::kBatch ? "batch" : "sequence");
}

class Search {
 public:
  explicit Search(const StepRequest& request)
      : config_(request.config),
        mesh_(request.mesh),
        world_(request.world),
        device_(request.device),
        cluster_(request.cluster),
        model_(nn::RolesOf(request.model)),
        depth_(DepthOf(model_)),
        all_layers_(request.config.model.n_layers) {
    config_.compile.ep_overlap.replan_interval = 0;
    config_.training.check_memory = false;  // what does not fit is compared with what does
  }

  // Whether rows travel to experts, so that there is something to hide.
  bool MovesRows() {
    if (depth_.first_sparse < 0 || mesh_.world_size() == 1) return false;
    return IsPlaced() ? Placed().MovesRows() : mesh_.size(MeshAxis::kEp) > 1;
  }

  struct Tried {
    Overlap overlap;
    double microseconds = 0;
    int64_t excess = 0;  // bytes beyond what fits the device
  };

  // Bytes beyond what fits the device, of the step of all layers.
  int64_t ExcessOfAllLayers(const Tried& tried) {
    if (scale_ == 1 || IsPlaced())
      return tried.excess;  // plans are searched within the memory there is
    Config config = config_;
    config.model.n_layers = all_layers_;
    config.compile.ep_overlap = tried.overlap;
    return PredictStep(config, mesh_, world_, device_, cluster_).excess;
  }

  // All that were tried, the best first; empty if there is nothing to choose from.
  std::vector<Tried> Run() {
    const std::vector<Root> roots = RootsOf(model_, config_, ExtentsOf(config_, mesh_));
    if (!CutsGraphs(config_.compile) || roots.empty()) return {};
    SampleLayers();
    if (!MovesRows()) return {};
    Overlap none = config_.compile.ep_overlap;
    none.enabled = AutoSwitch::kFalse;
    if (!Try(none)) return {};  // the job fails like this, and says why
    for (const Root& root : roots) TryChunks(root);
    std::stable_sort(tried_.begin(), tried_.end(), [](const Tried& a, const Tried& b) {
      if (a.excess != b.excess) return a.excess < b.excess;
      return a.microseconds < b.microseconds;
    });
    return std::move(tried_);
  }

 private:
  bool IsPlaced() const { return config_.compile.enable_autoparallel; }

  void SampleLayers() {
    const int64_t enough =
        depth_.first_sparse + (IsPlaced() ? kSampledPlacedLayers : kSampledLayers);
    // A stored plan names every layer.
    const bool stored = !config_.compile.autoparallel_plan.empty();
    if (depth_.first_sparse < 0 || stored || depth_.layers <= enough + 2) return;
    scale_ = static_cast<double>(depth_.layers) / static_cast<double>(enough);
    config_.model.n_layers = enough;
  }

  PlacedPredictor& Placed() {
    if (!placed_) {
      sample_ = BuildConfiguredModel(config_);
      placed_request_.emplace(StepRequest{*sample_, config_, device_, mesh_, world_, cluster_});
      placed_ = std::make_unique<PlacedPredictor>(*placed_request_);
    }
    return *placed_;
  }

  Prediction Predict(const Overlap& overlap) {
    if (IsPlaced()) return Placed().Predict(overlap);
    Config config = config_;
    config.compile.ep_overlap = overlap;
    return PredictStep(config, mesh_, world_, device_, cluster_);
  }

  // More chunks hide more until their kernels are too small: the first number that does not help is
  // the last.
  void TryChunks(const Root& root) {
    const Overlap& wishes = config_.compile.ep_overlap;
    const bool fixed = wishes.num_chunks != Overlap().num_chunks;
    double best = 0;
    int misses = 0;
    for (int64_t chunks = 2; chunks <= std::min(root.extent, kMostChunks) && misses < 2; ++chunks) {
      Overlap overlap = wishes;
      overlap.enabled = AutoSwitch::kTrue;
      overlap.module_fqn = root.modules;
      overlap.chunk_dim = root.dim;
      overlap.num_chunks = fixed ? std::min(wishes.num_chunks, root.extent) : chunks;
      const std::optional<double> time = Try(overlap);
      if (!time || fixed) return;
      misses = best == 0 || *time < best ? 0 : misses + 1;
      best = best == 0 ? *time : std::min(best, *time);
    }
  }

  std::optional<double> Try(const Overlap& overlap) {
    try {
      const Prediction prediction = Predict(overlap);
      tried_.push_back({overlap, prediction.microseconds * scale_, prediction.excess});
      log::Debug("overlap, {}: {:.1f} ms", Describe(overlap), tried_.back().microseconds / 1e3);
      return prediction.microseconds;
    } catch (const Error& error) {  // not every module can be cut
      log::Debug("overlap, {}: {}", Describe(overlap), error.what());
      return std::nullopt;
    }
  }

  Config config_;
  const Mesh& mesh_;
  World* world_;
  c10::Device device_;
  const JobCluster& cluster_;
  ModuleTable model_;
  Depth depth_;
  const int64_t all_layers_;  // as configured
  double scale_ = 1;          // from the layers that are looked at to all
  std::vector<Tried> tried_;
  ModelPtr sample_;  // of a placed step, of as many layers as are looked at
  std::optional<StepRequest> placed_request_;
  std::unique_ptr<PlacedPredictor> placed_;
};

std::string WhyNothing(const StepRequest& request) {
  const Config& config = request.config;
  if (!config.compile.enable_passes) return "compile.enable_passes is false";
  if (config.compile.inductor_compilation == InductorCompilation::kAutoparallelBackend) {
    return "compile.inductor_compilation autoparallel_backend cuts no graph";
  }
  if (!CutsGraphs(config.compile)) return "compile.ep_overlap.strategy eager cuts no graph";
  const ModuleTable modules = nn::RolesOf(request.model);
  if (modules.With(ModuleRole::kBlock).empty()) return "no module declares that it is a block";
  if (DepthOf(modules).first_sparse < 0) return "the model has no experts";
  if (!config.compile.enable_autoparallel && request.mesh.size(MeshAxis::kEp) == 1) {
    return "experts are not spread over ranks";
  }
  if (RootsOf(modules, config, ExtentsOf(config, request.mesh)).empty()) {
    return "a rank has one sequence at a time, and only its sequences may be cut";
  }
  if (config.compile.enable_autoparallel) {
    return "no plan sends rows to experts on other ranks, or none can be cut";
  }
  try {
    SelectChunkedModules(request.model, config.compile.ep_overlap);
  } catch (const Error& error) {
    return "no module could be cut: " + error.message();
  }
  return "no module could be cut";
}

nlohmann::json ToJson(const OverlapChoice& choice) {
  return {{"enabled", choice.overlap.enabled == AutoSwitch::kTrue},
          {"module_fqn", choice.overlap.module_fqn},
          {"batch", choice.overlap.chunk_dim == ChunkDim::kBatch},
          {"num_chunks", choice.overlap.num_chunks},
          {"reasons", choice.reasons}};
}

OverlapChoice FromJson(const nlohmann::json& json, Overlap overlap) {
  overlap.enabled = json.at("enabled").get<bool>() ? AutoSwitch::kTrue : AutoSwitch::kFalse;
  overlap.module_fqn = json.at("module_fqn").get<std::string>();
  overlap.chunk_dim = json.at("batch").get<bool>() ? ChunkDim::kBatch : ChunkDim::kSeq;
  overlap.num_chunks = json.at("num_chunks").get<int64_t>();
  return {overlap, json.at("reasons").get<std::vector<std::string>>()};
}

// The fastest of those tried that fits, or the step without chunks if that is nearly as fast. What does not fit
// is chosen only if nothing does, and then for needing least. Few candidates are looked at with all layers,
// which takes as long as compiling the job's step.
const Search::Tried& Choose(Search& search, const std::vector<Search::Tried>& tried,
                            const Search::Tried& whole) {
  const bool fits = tried.front().excess < whole.excess;
  const bool faster = tried.front().microseconds < kWorthwhile * whole.microseconds;
  if (!fits && !faster) return whole;
  constexpr int kMostWithAllLayers = 3;
  int looked_at = 0;
  for (const Search::Tried& one : tried) {
    if (&one == &whole || one.microseconds > kWorthwhile * whole.microseconds) continue;
    if (search.ExcessOfAllLayers(one) == 0) return one;
    if (++looked_at == kMostWithAllLayers) break;
  }
  const Search::Tried& first =
      &tried.front() == &whole && tried.size() > 1 ? tried[1] : tried.front();
  return search.ExcessOfAllLayers(whole) <= search.ExcessOfAllLayers(first) ? whole : first;
}

OverlapChoice Decide(const StepRequest& request) {
  OverlapChoice choice{request.config.compile.ep_overlap, {}};
  choice.overlap.enabled = AutoSwitch::kFalse;
  Search search(request);
  const std::vector<Search::Tried> tried = search.Run();
  if (tried.size() <= 1) {
    choice.reasons.push_back("chunks: no, since " + WhyNothing(request));
    return choice;
  }
  const auto whole = std::find_if(tried.begin(), tried.end(), [](const Search::Tried& one) {
    return one.overlap.enabled == AutoSwitch::kFalse;
  });
  const Search::Tried& chosen = Choose(search, tried, *whole);
  choice.overlap = chosen.overlap;
  constexpr size_t kRunnersUp = 3;
  std::vector<std::string> others;
  for (const Search::Tried& one : tried) {
    if (&one == &chosen || (others.size() >= kRunnersUp && &one != &*whole)) continue;
    others.push_back(fmt::format("{} {:.1f} ms", Describe(one.overlap), one.microseconds / 1e3));
  }
  choice.reasons.push_back(fmt::format("chunks: {}, predicted to take about {:.1f} ms; {}",
                                       Describe(chosen.overlap), chosen.microseconds / 1e3,
                                       Join(others, ", ")));
  if (&chosen == &*whole && tried.front().microseconds < kWorthwhile * whole->microseconds) {
    choice.reasons.push_back(
        "chunks would be faster, but their step does not fit the device's memory");
  }
  return choice;
}

}  // namespace

OverlapChoice ChooseOverlap(const StepRequest& request) {
  auto decide = [&] { return ToJson(Decide(request)).dump(); };
  const std::string text = request.world != nullptr
                               ? request.world->DecideForAll("which chunks are cut", decide)
                               : decide();
  return FromJson(ParseJson(text), request.config.compile.ep_overlap);
}

}  // namespace gt
