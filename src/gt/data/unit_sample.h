// Sampling units of text.
#pragma once

#include <cstddef>
#include <string_view>

#include "gt/data/unit_source.h"

namespace gt {

// Adds the text of a unit, cut after `most` bytes. Skips lines without a text. Either clears
// is_everything.
void AddToSample(std::string_view unit, TextForm form, const UnitChoice& choice,
                 const DataFile& file, std::size_t most, UnitSample& sample);

// Samples the beginnings of some files; the middle of a compressed file cannot be read without
// reading all before it. Units and bytes are counted if the files are small, else estimated.
UnitSample SampleFiles(const DataFiles& data, const UnitChoice& choice, std::size_t bytes);

}  // namespace gt
