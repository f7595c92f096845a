#include "gt/parallel/parallelize.h"

#include <ATen/ATen.h>

#include <unordered_map>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"
#include "gt/dist/collectives.h"
#include "gt/job/config.h"
#include "gt/nn/attention.h"
#include "gt/nn/blocks.h"
#include "gt/nn/moe.h"
#include "gt/parallel/expert_parallel.h"
#include "gt/parallel/parameter_sharding.h"
#include "gt/parallel/reshard.h"

namespace gt {
namespace {

constexpr int64_t kSequenceDim = 1;  // of [batch, length, ...]

void RequireDivides(int64_t degree, int64_t number, std::string_view axis, std::string_view what,
                    std::string_view module) {
  if (number % degree == 0) return;
  Fail(ErrorCode::kNotDivisible, "{}: {} {} cannot be shared out evenly among {} {} ranks",
       module.empty() ? "the model" : module, number, what, degree, axis);
}

nn::Transform MoveSequence(TensorSplit::Sequence move, const Group* group) {
  if (move == TensorSplit::Sequence::kGathered) {
    return [group](const at::Tensor& x) { return GatherAlong(x, kSequenceDim, group); };
  }
  return [group](const at::Tensor& x) { return ReduceScatterAlong(x, kSequenceDim, group); };
}

class Parallelizer {
 public:
  Parallelizer(LanguageModel& model, World& world, const Mesh& mesh, const Config& config,
               at::ScalarType compute)
      : model_(model),
        world_(world),
        mesh_(mesh),
        config_(config),
        compute_(compute),
        modules_(nn::ModulesOf(model)) {}

  void Run() {
    CheckLengths();
    if (mesh_.size(MeshAxis::kTp) > 1) SplitTensors();
    if (mesh_.size(MeshAxis::kCp) > 1) ShardSequences();
    if (mesh_.size(MeshAxis::kEp) > 1) ShardExperts();
    ShardParameters();
    if (config_.parallelism.fsdp_reshard_after_forward != ReshardAfterForward::kNever) {
      ReshardBlocks();
    }
  }

 private:
  void ReshardBlocks() {
    bool any = false;
    for (nn::Module* module : modules_) {
      if (module->role() != ModuleRole::kBlock) continue;
      ReshardUnit::Attach(*module);
      any = true;
    }
    if (any || config_.compile.mode != CompileMode::kEager || world_.rank() != 0) return;
    log::Warn(
        "no module of this model declares that it is a block, so gathered parameters stay until "
        "the end of the step; call set_role(ModuleRole::kBlock) in its blocks (nn/module.h)");
  }

  void CheckLengths() const {
    int64_t length = config_.training.seq_len, cp = mesh_.size(MeshAxis::kCp);
    int64_t tp = mesh_.size(MeshAxis::kTp);
    int64_t pieces = (cp > 1 ? 2 * cp : 1) * tp;
    if (length % pieces == 0) return;
    Fail(ErrorCode::kNotDivisible,
         "--training.seq_len {} must be a multiple of {}: {}tp {} ranks share every sequence",
         length, pieces, cp > 1 ? fmt::format("2 x cp {} stretches and ", cp) : "", tp);
  }

  void SplitTensors() {
    const Group* group = world_.Along(mesh_, MeshAxis::kTp);
    std::vector<TensorSplit> plan = model_.TensorSplits();
    if (plan.empty()) {
      Fail(ErrorCode::kUnsupportedParallelism,
           "--parallelism.tensor_parallel_degree {}: this model does not say how its matrices are "
           "split (LanguageModel::TensorSplits)",
           group->size());
    }
    for (const TensorSplit& split : plan) {
      for (nn::Module* module : modules_) {
        if (MatchesFqn(split.module, module->fqn().str())) SplitModule(split, group, *module);
      }
    }
    model_.ShardHead({group, group->index * (model_.vocab_size() / group->size())});
  }

  void SplitModule(const TensorSplit& split, const Group* group, nn::Module& module) {
    using Sequence = TensorSplit::Sequence;
    if (split.input != Sequence::kUnchanged) {
      module.AddInputTransform(MoveSequence(split.input, group));
    }
    if (split.output != Sequence::kUnchanged) {
      module.AddOutputTransform(MoveSequence(split.output, group));
    }
    if (split.weight == TensorSplit::Weight::kWhole) return;
    RequireDivides(group->size(), split.units, "tensor-parallel", split.unit, module.fqn().str());
    int64_t dim = split.weight == TensorSplit::Weight::kRows ? 0 : 1;
    module.ForEachParameter([&](const std::string&, nn::Parameter& parameter) {
      splits_[&parameter] = {{dim, group->size(), group->index}, MeshAxis::kFsdp};
    });
    if (auto* embedding = dynamic_cast<nn::Embedding*>(&module)) {
      int64_t rows = split.units / group->size();
      embedding->KeepRows(group->index * rows, rows);
    }
  }

  void ShardSequences() {
    const Group* group = world_.Along(mesh_, MeshAxis::kCp);
    for (nn::Module* module : modules_) {
      auto* attention = dynamic_cast<nn::DotProductAttention*>(module);
      if (attention == nullptr) continue;
      attention->ShardSequence({group->size(), group->index, [group](const at::Tensor& x) {
                                  return GatherAlong(x, kSequenceDim, group);
                                }});
    }
  }

  void ShardExperts() {
    const Group* group = world_.Along(mesh_, MeshAxis::kEp);
    bool any = false;
    for (nn::Module* module : modules_) {
      auto* moe = dynamic_cast<nn::Moe*>(module);
      if (moe == nullptr) continue;
      any = true;
      RequireDivides(group->size(), moe->config().experts, "expert-parallel", "experts",
                     moe->fqn().str());
      moe->ShardExperts(MakeExpertExchange(group));
    }
    if (!any) {
      Fail(ErrorCode::kUnsupportedParallelism,
           "--parallelism.expert_parallel_degree {}: the model has no experts; use 1",
           group->size());
    }
  }

  // Every parameter ends up sharded over the very same ranks, those of the shard axis: the ones
  // that tensor parallelism splits by fsdp, experts by efsdp, all others directly.
  void ShardParameters() {
    const Group* replicas = world_.Along(mesh_, MeshAxis::kDpReplicate);
    for (nn::Module* module : modules_) {
      bool experts = dynamic_cast<nn::Experts*>(module) != nullptr;
      module->ForEachParameter([&](const std::string& name, nn::Parameter& parameter) {
        ParameterSharding share;
        share.compute = compute_;
        share.replica_group = replicas;
        MeshAxis axis = MeshAxis::kShard;
        if (experts) {
          axis = MeshAxis::kEfsdp;
          share.split = {0, mesh_.size(MeshAxis::kEp), mesh_.coordinate(MeshAxis::kEp)};
        } else if (auto split = splits_.find(&parameter); split != splits_.end()) {
          share.split = split->second.slice;
          axis = split->second.shard_axis;
        }
        share.shard_group = world_.Along(mesh_, SameAs(axis));
        std::vector<int64_t> whole = parameter.box().whole;
        share.shard = {ShardDim(share.BlockSizes(whole), mesh_.size(axis), experts),
                       mesh_.size(axis), mesh_.coordinate(axis)};
        parameter.set_preparation(Prepare(share, whole));
        const TensorBox box = share.Box(whole);
        module->KeepPart(name, box, Owns(box));
      });
    }
  }

  // Replicas hold what the first of them holds; what is whole on every rank is rank 0's.
  bool Owns(const TensorBox& box) const {
    if (mesh_.coordinate(MeshAxis::kDpReplicate) > 0) return false;
    return !box.IsWhole() || mesh_.size(MeshAxis::kShard) == 1 || mesh_.rank() == 0;
  }

  // Without tensor parallelism the axes fsdp and shard are the same ranks: one group serves both.
  MeshAxis SameAs(MeshAxis axis) const {
    bool same = axis == MeshAxis::kShard && mesh_.size(MeshAxis::kTp) == 1;
    return same ? MeshAxis::kFsdp : axis;
  }

  // Experts are few and large: with fewer of them than ranks, their rows are sharded instead.
  static int64_t ShardDim(const std::vector<int64_t>& block, int64_t ranks, bool experts) {
    return experts && block[0] < ranks ? 1 : 0;
  }

  struct Split {
    Slice slice;
    MeshAxis shard_axis;
  };

  LanguageModel& model_;
  World& world_;
  const Mesh& mesh_;
  const Config& config_;
  at::ScalarType compute_;
  std::vector<nn::Module*> modules_;
  std::unordered_map<const nn::Parameter*, Split> splits_;
};

}  // namespace

void Parallelize(LanguageModel& model, World& world, const Mesh& mesh, const Config& config,
                 at::ScalarType compute) {
  Parallelizer(model, world, mesh, config, compute).Run();
}

}  // namespace gt
