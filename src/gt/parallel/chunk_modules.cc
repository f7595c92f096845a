#include "gt/parallel/chunk_modules.h"

#include <algorithm>
#include <typeinfo>

#include "gt/analysis/roles.h"
#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/nn/attention.h"
#include "gt/nn/moe.h"

namespace gt {
namespace {

using Modules = std::vector<nn::Module*>;

bool IsMoe(const nn::Module& module) {
  return module.role() == ModuleRole::kMoe || dynamic_cast<const nn::Moe*>(&module) != nullptr;
}

bool IsAttention(const nn::Module& module) {
  return module.role() == ModuleRole::kAttention ||
         dynamic_cast<const nn::DotProductAttention*>(&module) != nullptr;
}

bool Contains(nn::Module& root, bool (*is_wanted)(const nn::Module&)) {
  const Modules inside = nn::ModulesOf(root);
  return std::any_of(inside.begin(), inside.end(),
                     [is_wanted](const nn::Module* module) { return is_wanted(*module); });
}

// The base class itself has no forward, so such a module only holds others. The model itself is
// called by the step and not through nn::Ref.
bool IsContainer(const nn::Module& module) {
  return typeid(module) == typeid(nn::Module) || module.fqn().empty();
}

bool IsInside(std::string_view fqn, const nn::Module& root) {
  const std::string& outer = root.fqn().str();
  return fqn.size() > outer.size() && fqn.starts_with(outer) && fqn[outer.size()] == '.';
}

Modules Matching(LanguageModel& model, std::string_view pattern) {
  Modules selected;
  for (nn::Module* module : nn::ModulesOf(model)) {  // outer modules come before inner ones
    const std::string& fqn = module->fqn().str();
    const bool is_covered = !selected.empty() && IsInside(fqn, *selected.back());
    if (is_covered || IsContainer(*module) || !MatchingPrefix(pattern, fqn)) continue;
    if (Contains(*module, IsMoe)) selected.push_back(module);
  }
  return selected;
}

std::string PatternOfRole(LanguageModel& model, ModuleRole role) {
  return PatternOf(nn::RolesOf(model).With(role));
}

std::string PatternFor(LanguageModel& model, const EpOverlapSection& overlap) {
  if (overlap.module_fqn != EpOverlapSection().module_fqn) return overlap.module_fqn;
  const std::string blocks = PatternOfRole(model, ModuleRole::kBlock);
  return blocks.empty() ? overlap.module_fqn : blocks;
}

// Whether the pass, which cuts the shortest prefixes that match, would cut these modules.
bool CutsExactly(std::string_view pattern, const Modules& modules) {
  return std::all_of(modules.begin(), modules.end(), [pattern](const nn::Module* module) {
    const std::string& fqn = module->fqn().str();
    return MatchingPrefix(pattern, fqn) == fqn;
  });
}

// What to write instead of a pattern that cannot be used along this dimension.
std::string WorkingPatterns(LanguageModel& model, ChunkDim dim) {
  const std::string mixtures = PatternOfRole(model, ModuleRole::kMoe);
  std::string blocks =
      dim == ChunkDim::kBatch ? PatternOfRole(model, ModuleRole::kBlock) : std::string();
  if (Matching(model, blocks).empty()) blocks.clear();
  if (mixtures.empty() && blocks.empty()) {
    return "the model has no mixture of experts, so leave out --compile.ep_overlap.enabled";
  }
  std::string text = "use --compile.ep_overlap.module_fqn ";
  if (!mixtures.empty()) text += fmt::format("'{}' for the mixtures of experts", mixtures);
  if (!blocks.empty()) {
    text += fmt::format("{}'{}' for whole blocks", mixtures.empty() ? "" : ", or ", blocks);
  }
  return text;
}

[[noreturn]] void FailNothingSelected(LanguageModel& model, const std::string& pattern,
                                      ChunkDim dim) {
  std::vector<std::string> named;
  for (nn::Module* module : nn::ModulesOf(model)) {
    const std::string& fqn = module->fqn().str();
    if (!fqn.empty() && MatchesFqn(pattern, fqn)) named.push_back(fqn);
  }
  std::string what = "matches no module of the model";
  if (!named.empty()) {
    const std::string others =
        named.size() == 1 ? "" : fmt::format(" and {} more", named.size() - 1);
    what = fmt::format("matches {}{}, without a mixture of experts", named.front(), others);
  }
  Fail(ErrorCode::kNothingToChunk, "--compile.ep_overlap.module_fqn '{}' {}; {}", pattern, what,
       WorkingPatterns(model, dim));
}

}  // namespace

std::vector<nn::Module*> SelectChunkedModules(LanguageModel& model,
                                              const EpOverlapSection& overlap) {
  const std::string pattern = PatternFor(model, overlap);
  Modules selected = Matching(model, pattern);
  if (selected.empty()) FailNothingSelected(model, pattern, overlap.chunk_dim);
  if (overlap.chunk_dim == ChunkDim::kBatch) return selected;
  for (nn::Module* module : selected) {
    if (!Contains(*module, IsAttention)) continue;
    Fail(ErrorCode::kChunkAttention,
         "--compile.ep_overlap.chunk_dim seq cannot cut {}: it contains attention, which needs all "
         "keys and values of a sequence; {}",
         module->fqn().str(), WorkingPatterns(model, overlap.chunk_dim));
  }
  return selected;
}

std::string ChunkedModulesPattern(LanguageModel& model, const EpOverlapSection& overlap) {
  const Modules selected = SelectChunkedModules(model, overlap);
  std::string pattern = PatternFor(model, overlap);
  if (CutsExactly(pattern, selected)) return pattern;
  std::vector<Name> names;
  for (const nn::Module* module : selected) names.push_back(module->fqn());
  const std::string own = PatternOf(names);
  if (CutsExactly(own, selected) && Matching(model, own) == selected) return own;
  Fail(ErrorCode::kNothingToChunk,
       "--compile.ep_overlap.module_fqn '{}' names containers of {} and other modules at several "
       "depths, which no single pattern names; choose a pattern that names the modules themselves",
       pattern, names.front().str());
}

void ChunkModules(LanguageModel& model, const EpOverlapSection& overlap) {
  std::vector<std::string> names;
  for (nn::Module* module : SelectChunkedModules(model, overlap)) {
    module->set_chunking(
        {.dim = overlap.chunk_dim == ChunkDim::kSeq ? 1 : 0, .count = overlap.num_chunks});
    names.push_back(module->fqn().str());
  }
  log::Debug("ep_overlap: {} modules run in {} chunks along the {}: {}", names.size(),
             overlap.num_chunks, EnumName(overlap.chunk_dim), Join(names, ", "));
}

void RequireCalled(const std::vector<nn::Module*>& modules) {
  for (const nn::Module* module : modules) {
    if (module->was_called()) continue;
    Fail(ErrorCode::kNothingToChunk,
         "{} was selected by --compile.ep_overlap.module_fqn but did not run in chunks: the model "
         "does not call it, or calls its forward directly; call it through nn::Ref, or choose a "
         "pattern that leaves it out",
         module->fqn().str());
  }
}

void RequireChunkedModulesCalled(LanguageModel& model) {
  Modules chunked = nn::ModulesOf(model);
  std::erase_if(chunked, [](const nn::Module* module) { return !module->chunking(); });
  RequireCalled(chunked);
}

}  // namespace gt
