#include "gt/data/packer.h"

#include <algorithm>
#include <utility>

#include "gt/base/error.h"

namespace gt {

Packer::Packer(std::unique_ptr<UnitSource> source, PackerOptions options)
    : source_(std::move(source)), options_(std::move(options)) {}

void Packer::NextRow(int64_t* tokens, int64_t* labels, int64_t* positions) {
  const auto length = static_cast<std::size_t>(options_.length);
  while (tokens_.size() - next_ < length + 1) AppendUnit();
  const int32_t* row = tokens_.data() + next_;
  std::copy(row, row + length, tokens);
  std::copy(row + 1, row + length + 1, labels);
  WritePositions(positions);
  next_ += length;
  DropUsed();
  const Segment& segment = segments_.front();
  place_ = {segment.unit, static_cast<int64_t>(next_ - segment.begin)};
}

void Packer::Seek(const PackerPlace& place) {
  tokens_.clear();
  segments_.clear();
  next_ = 0;
  epoch_ = place.unit.epoch;
  epoch_tokens_ = 0;
  epoch_is_whole_ = place == PackerPlace{};
  source_->Seek(place.unit);
  place_ = place;
  if (epoch_is_whole_) return;
  AppendUnit();
  if (place.token < 0 || place.token >= static_cast<int64_t>(tokens_.size()) ||
      segments_.front().unit != place.unit) {
    Fail(
        ErrorCode::kCheckpointMismatch,
        "the saved place in the data is token {} of {}, which has {} tokens now; has the tokenizer "
        "changed since?",
        place.token, source_->Where(), tokens_.size());
  }
  next_ = static_cast<std::size_t>(place.token);
}

void Packer::AppendUnit() {
  const Unit unit = source_->Next();
  CheckEpoch(unit.place);
  const std::size_t begin = tokens_.size();
  AppendTokens(unit);
  if (tokens_.size() == begin) return;
  CheckTokens(begin);
  epoch_tokens_ += static_cast<int64_t>(tokens_.size() - begin);
  segments_.push_back({unit.place, begin, unit.starts_document});
}

void Packer::AppendTokens(const Unit& unit) {
  if (unit.text.empty()) return;
  if (unit.starts_document && options_.bos_id) tokens_.push_back(*options_.bos_id);
  options_.encode(unit.text, tokens_);
  if (unit.ends_document && options_.eos_id) tokens_.push_back(*options_.eos_id);
}

void Packer::CheckTokens(std::size_t begin) const {
  for (std::size_t i = begin; i < tokens_.size(); ++i) {
    if (tokens_[i] >= 0 && tokens_[i] < options_.vocab_size) continue;
    Fail(
        ErrorCode::kTokenOutOfVocabulary,
        "{}: the tokenizer gave token {} of this text the id {}, but the model's vocabulary has {} "
        "entries",
        source_->Where(), i - begin, tokens_[i], options_.vocab_size);
  }
}

// Without this, data that tokenizes to nothing would be read forever in search of a row.
void Packer::CheckEpoch(const UnitPlace& place) {
  if (place.epoch == epoch_) return;
  if (epoch_is_whole_ && epoch_tokens_ < 2) {
    Fail(ErrorCode::kDataUnreadable,
         "all data of this rank together is {} token(s), and predicting one from another needs at "
         "least 2",
         epoch_tokens_);
  }
  epoch_ = place.epoch;
  epoch_tokens_ = 0;
  epoch_is_whole_ = true;
}

void Packer::WritePositions(int64_t* positions) const {
  const std::size_t end = next_ + static_cast<std::size_t>(options_.length);
  std::size_t at = next_;
  int64_t position = 0;
  // Segment 0 is the one the row starts in.
  for (std::size_t next = 1; at < end; ++next) {
    const bool is_last = next == segments_.size() || segments_[next].begin >= end;
    const std::size_t stop = is_last ? end : segments_[next].begin;
    for (; at < stop; ++at) *positions++ = position++;
    if (!is_last && segments_[next].starts_document) position = 0;
  }
}

void Packer::DropUsed() {
  while (segments_.size() > 1 && segments_[1].begin <= next_) segments_.pop_front();
  // Moving what is left costs less than what was used up since the last time.
  if (next_ < tokens_.size() - next_) return;
  const std::size_t begin = segments_.front().begin;
  if (begin == 0) return;
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(begin));
  next_ -= begin;
  for (Segment& segment : segments_) segment.begin -= begin;
}

}  // namespace gt
