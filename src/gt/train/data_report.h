// Describes how much data a run will read, and warns about suspicious data.
#pragma once

#include <string>
#include <vector>

#include "gt/train/job.h"

namespace gt {

struct DataReport {
  std::vector<std::string> lines;
  std::vector<std::string> warnings;
};

// Takes a fraction of a second, however large the data is. Call it before the first batch is read.
DataReport ReportData(const Job& job);

// "45 pieces of text, about 99,200 tokens"
std::string EpochText(const EpochSize& size);

// How tokenizer and vocabulary disagree; empty if they do not.
std::string VocabularyProblem(const TextCodec& codec, int64_t vocab_size);

}  // namespace gt
