#include "gt/parallel/chunk_modules.h"

#include "gt/analysis/roles.h"
#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"
#include "gt/nn/attention.h"
#include "gt/nn/moe.h"

namespace gt {
namespace {

template <typename M>
bool ContainsModule(nn::Module& root) {
  for (nn::Module* module : nn::ModulesOf(root)) {
    if (dynamic_cast<M*>(module) != nullptr) return true;
  }
  return false;
}

}  // namespace

std::string ChunkedModules(const LanguageModel& model, const EpOverlapSection& options) {
  if (options.module_fqn != EpOverlapSection().module_fqn) return options.module_fqn;
  const std::string blocks = PatternOf(nn::RolesOf(model).With(ModuleRole::kBlock));
  return blocks.empty() ? options.module_fqn : blocks;
}

void ChunkModules(LanguageModel& model, const EpOverlapSection& options) {
  const std::string pattern = ChunkedModules(model, options);
  const bool sequence = options.chunk_dim == ChunkDim::kSeq;
  std::vector<std::string> roots;
  for (nn::Module* module : nn::ModulesOf(model)) {
    const std::string& fqn = module->fqn().str();
    if (MatchingPrefix(pattern, fqn) != fqn || !ContainsModule<nn::Moe>(*module)) {
      continue;
    }
    if (sequence && ContainsModule<nn::DotProductAttention>(*module)) {
      Fail(ErrorCode::kChunkAttention,
           "--compile.ep_overlap.chunk_dim seq cannot cut {}: it contains attention, which needs "
           "all keys and values",
           fqn);
    }
    module->set_chunking({.dim = sequence ? 1 : 0, .count = options.num_chunks});
    roots.push_back(fqn);
  }
  if (roots.empty()) {
    Fail(ErrorCode::kNothingToChunk,
         "--compile.ep_overlap.module_fqn {} names no module with a mixture of experts", pattern);
  }
  log::Debug("ep_overlap: {} modules run in {} chunks along the {}: {}", roots.size(),
             options.num_chunks, EnumName(options.chunk_dim), Join(roots, ", "));
}

}  // namespace gt
