// Estimates the tokens of an epoch of text from a sample.
#pragma once

#include <optional>
#include <string_view>

#include "gt/data/loader.h"
#include "gt/data/packer.h"
#include "gt/data/unit_source.h"

namespace gt {

// Fills in everything but `what`. Every unit counts as a document with its begin and end tokens,
// unless the number of `documents` is given.
EpochSize MeasureText(const UnitSample& sample, const PackerOptions& options,
                      std::optional<double> documents);

// The share of bytes that are not text: control characters other than white space, and bytes that
// are not UTF-8.
double ShareOfNoText(std::string_view bytes);

}  // namespace gt
