// What the loader asks of the two ways to make batches: from tokens in files (token_rows.cc) and
// from packed text (packed_text.cc).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gt/data/files.h"
#include "gt/data/loader.h"

namespace gt {

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Fills the three arrays, which have room for rows * length numbers each.
  virtual void Fill(TokenBatch& batch) = 0;

  // Where the next batch begins, as an object of a few numbers.
  virtual nlohmann::json Place() const = 0;
  virtual void Seek(const nlohmann::json& place) = 0;

  // See Loader::MeasureEpoch; does not touch the place.
  virtual EpochSize MeasureEpoch() const = 0;

  // What the data is, between the number of files and their size: "text".
  virtual std::string Describe() const = 0;
  virtual bool is_shuffled() const = 0;
};

std::unique_ptr<BatchSource> MakeTokenRows(const DataFiles& files, const LoaderOptions& options);
std::unique_ptr<BatchSource> MakePackedText(const DataFiles& files, const LoaderOptions& options);

// A number of a saved place; anything but an integer that is not negative is an error
// (CheckpointMismatch) that names the key.
int64_t PlaceNumber(const nlohmann::json& place, const char* key);

}  // namespace gt
