#include "gt/train/batch_reader.h"

#include <utility>

namespace gt {

BatchReader::BatchReader(ReaderRange readers, const MakeLoader& make) : readers_(readers) {
  for (int64_t reader = readers.first; reader < readers.last; ++reader) {
    loaders_.push_back(make(reader));
  }
}

TokenBatch BatchReader::Next() {
  TokenBatch all = loaders_.front()->Next();
  auto append = [](std::vector<int64_t>& to, const std::vector<int64_t>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  for (size_t i = 1; i < loaders_.size(); ++i) {
    const TokenBatch more = loaders_[i]->Next();
    append(all.tokens, more.tokens);
    append(all.labels, more.labels);
    append(all.positions, more.positions);
    all.rows += more.rows;
    all.valid_tokens += more.valid_tokens;
  }
  return all;
}

std::vector<nlohmann::json> BatchReader::State() const {
  std::vector<nlohmann::json> states;
  for (const auto& loader : loaders_) states.push_back(loader->State());
  return states;
}

void BatchReader::Restore(const std::vector<nlohmann::json>& states) {
  for (size_t i = 0; i < loaders_.size(); ++i) {
    loaders_[i]->Restore(states[static_cast<size_t>(readers_.first) + i]);
  }
}

void BatchReader::Rewind() {
  for (const auto& loader : loaders_) loader->Rewind();
}

double BatchReader::waited_seconds() const {
  double seconds = 0;
  for (const auto& loader : loaders_) seconds += loader->waited_seconds();
  return seconds;
}

}  // namespace gt
