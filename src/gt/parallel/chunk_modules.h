// Selects the modules that a job cuts into chunks (compile.ep_overlap.*), for both strategies, and
// makes them run chunk by chunk (nn/chunking.h) for strategy eager.
#pragma once

#include <string>
#include <vector>

#include "gt/job/sections/compile.h"
#include "gt/models/model.h"

namespace gt {

// The outermost modules that contain a mixture of experts and that module_fqn names, in registration
// order. A pattern that names a container (a list of blocks, which is never called) selects the
// modules inside it. The default pattern selects the model's blocks, whatever their names.
//
// Fails with NothingToChunk if there are none, and with ChunkAttention if chunk_dim is seq and a
// selected module contains attention; both errors name the patterns that work for this model.
std::vector<nn::Module*> SelectChunkedModules(LanguageModel& model,
                                              const EpOverlapSection& overlap);

// A pattern for the pass `chunk` that names exactly the selected modules.
std::string ChunkedModulesPattern(LanguageModel& model, const EpOverlapSection& overlap);

// Strategy eager: calls of the selected modules run chunk by chunk from now on.
void ChunkModules(LanguageModel& model, const EpOverlapSection& overlap);

// Fails with NothingToChunk if one of the modules has never been called through nn::Ref: neither
// strategy can cut it. For use after the first forward pass.
void RequireCalled(const std::vector<nn::Module*>& modules);
// The same for the modules of ChunkModules.
void RequireChunkedModulesCalled(LanguageModel& model);

}  // namespace gt
