#include "gt/passes/pipeline.h"

#include "gt/passes/canonicalize.h"
#include "gt/passes/common_subexpression_elimination.h"
#include "gt/passes/concretize.h"
#include "gt/passes/cpu_offload.h"
#include "gt/passes/dead_code_elimination.h"
#include "gt/passes/rematerialize.h"
#include "gt/passes/reshard_after_forward.h"

namespace gt {

PassList DefaultPipeline(const PipelineOptions& options) {
  PassList passes;
  passes.push_back(std::make_unique<DeadCodeElimination>());
  passes.push_back(std::make_unique<Canonicalize>());
  if (options.share_subexpressions) {
    passes.push_back(std::make_unique<CommonSubexpressionElimination>());
  }
  passes.push_back(std::make_unique<DeadCodeElimination>());
  if (options.memory.policy != MemoryPolicy::kNone) {
    passes.push_back(std::make_unique<ApplyMemoryPolicy>(options.memory));
    passes.push_back(std::make_unique<Rematerialize>());
  }
  // Behind rematerialization: what is computed again is then a backward user as any other, and
  // reads what came back.
  if (options.memory.policy == MemoryPolicy::kSacAndOffload) {
    passes.push_back(std::make_unique<CpuOffload>(options.offload));
  }
  // Behind rematerialization: what is computed again then uses parameters that are gathered again.
  if (options.reshard_after_forward) passes.push_back(std::make_unique<ReshardParameters>());
  if (options.chunk) {
    passes.push_back(std::make_unique<Chunk>(*options.chunk));
    passes.push_back(std::make_unique<DeadCodeElimination>());
    passes.push_back(std::make_unique<Concretize>());
  }
  return passes;
}

}  // namespace gt
