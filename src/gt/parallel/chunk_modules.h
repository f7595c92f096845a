// Makes the modules that a job selects run chunk by chunk (nn/chunking.h).
#pragma once

#include <string>

#include "gt/job/sections/compile.h"
#include "gt/models/model.h"

namespace gt {

// The pattern that says what is cut: --compile.ep_overlap.module_fqn, whose default means the
// model's blocks, whatever they are called.
std::string ChunkedModules(const LanguageModel& model, const EpOverlapSection& options);

// Modules that contain no mixture of experts are left alone, and so are modules inside a selected
// one. Fails with NothingToChunk when none is left, and with ChunkAttention when sequences would be
// cut in a module that contains attention.
void ChunkModules(LanguageModel& model, const EpOverlapSection& options);

}  // namespace gt
