// The loaders whose batches a rank needs, as one: their rows follow each other.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gt/data/loader.h"
#include "gt/train/job_share.h"

namespace gt {

class BatchReader {
 public:
  // Makes the loader of a reader.
  using MakeLoader = std::function<std::unique_ptr<Loader>(int64_t reader)>;
  BatchReader(ReaderRange readers, const MakeLoader& make);

  TokenBatch Next();
  // One for each reader, in order.
  std::vector<nlohmann::json> State() const;
  // `states` are those of all readers.
  void Restore(const std::vector<nlohmann::json>& states);
  // Restarts from the beginning of the data.
  void Rewind();
  double waited_seconds() const;
  // A loader of the data that all readers share.
  const Loader& data() const { return *loaders_.front(); }

 private:
  ReaderRange readers_;
  std::vector<std::unique_ptr<Loader>> loaders_;
};

}  // namespace gt
