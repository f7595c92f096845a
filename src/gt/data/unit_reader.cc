#include "gt/data/unit_reader.h"

#include <algorithm>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"

namespace gt {

UnitReader::UnitReader(TextForm form, const DataFile& file, const DataSplit& split,
                       std::size_t most_bytes)
    : form_(form),
      path_(file.path.string()),
      split_(split),
      most_bytes_(most_bytes),
      stream_(OpenByteStream(file.path, file.compression)) {
  Grow(std::min(kFirstRead, most_bytes_));
  begin_ = ByteOrderMarkLength(buffer_);
}

bool UnitReader::Next(std::string_view& unit) {
  while (bytes_seen_ < most_bytes_ && Peek(unit)) {
    line_ = next_line_;
    starts_document_ = after_gap_;
    Take(unit.size());
    ++units_seen_;
    const bool is_own = split_.HasText(unit);
    after_gap_ = !is_own;
    if (is_own) return true;
  }
  return false;
}

bool UnitReader::EndsDocument() {
  std::string_view next;
  return !Peek(next) || !split_.HasText(next);
}

bool UnitReader::AtEnd() {
  if (begin_ == buffer_.size() && !complete_) Grow(kFirstRead);
  return begin_ == buffer_.size();
}

// Looks at the next unit without taking it; takes blank lines before it.
bool UnitReader::Peek(std::string_view& unit) {
  while (!AtEnd()) {
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    if (const auto length = UnitLength(form_, rest, complete_)) {
      unit = rest.substr(0, *length);
      if (form_ == TextForm::kText || !IsBlank(unit)) return true;
      Take(unit.size());
    } else {
      RefuseEndlessLine(rest);
      if (rest.size() >= most_bytes_) return false;
      // Grows by the size of what could not be cut: then a long line is searched for its end a few
      // times, not once for every read.
      Grow(std::max(rest.size(), std::min(kFirstRead, most_bytes_)));
    }
  }
  return false;
}

void UnitReader::Take(std::size_t length) {
  begin_ += length;
  bytes_seen_ += length;
  next_line_ += form_ == TextForm::kJsonl;
}

void UnitReader::RefuseEndlessLine(std::string_view rest) const {
  if (rest.size() < kLineMost) return;
  Fail(ErrorCode::kBadData, "{}:{}: the line is longer than {}; is this file really made of lines?",
       path_, next_line_, DecimalByteText(kLineMost));
}

void UnitReader::Grow(std::size_t count) {
  buffer_.erase(0, begin_);
  begin_ = 0;
  std::size_t size = buffer_.size();
  buffer_.resize(size + count);
  // A stream gives what it has at hand, which may be little.
  while (size < buffer_.size() && !complete_) {
    const std::size_t got = stream_->Read(buffer_.data() + size, buffer_.size() - size);
    complete_ = got == 0;
    size += got;
    bytes_read_ += got;
  }
  buffer_.resize(size);
}

}  // namespace gt
