// What a run says before its first step. Of the first rank alone.
#pragma once

#include "gt/compile/compile.h"
#include "gt/sim/memory_curve.h"
#include "gt/train/job.h"

namespace gt {

// Model, ranks and data.
void Introduce(const Job& job);

// What was captured, what memory it needs, which chunks were chosen and what communication costs.
void AnnounceStep(const Job& job, const CompiledStep& step, const MemoryCurve& curve);

void AnnounceEager(const Job& job);

}  // namespace gt
