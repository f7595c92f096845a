// Cuts a file into units from beginning to end, without holding the whole file in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "gt/base/byte_stream.h"
#include "gt/data/data_split.h"
#include "gt/data/files.h"
#include "gt/data/text_units.h"

namespace gt {

class UnitReader {
 public:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  // Returns the units of one part of `split`. With a limit, stops after the unit that reaches so many
  // bytes, and before a unit that is longer than the limit itself.
  UnitReader(TextForm form, const DataFile& file, const DataSplit& split = {},
             std::size_t most_bytes = kNoLimit);

  // False at the end. The unit stays valid until the next call of anything here.
  bool Next(std::string_view& unit);
  // Whether the unit before the last returned one is of another part, or there is none.
  bool starts_document() const { return starts_document_; }
  // Whether the unit after it is of another part, or there is none.
  bool EndsDocument();
  int64_t line() const { return line_; }  // of the unit returned last; JSON lines only

  // Counts units of all parts so far.
  int64_t units_seen() const { return units_seen_; }
  std::size_t bytes_seen() const { return bytes_seen_; }
  // Bytes read so far, as stored and decompressed. Reads ahead of the units.
  std::size_t bytes_stored() const { return stream_->consumed(); }
  std::size_t bytes_read() const { return bytes_read_; }
  // Whether all units of the file were returned.
  bool AtEnd();

 private:
  static constexpr std::size_t kFirstRead = std::size_t{1} << 18;

  bool Peek(std::string_view& unit);
  void Take(std::size_t length);
  void RefuseEndlessLine(std::string_view rest) const;
  void Grow(std::size_t count);

  TextForm form_;
  std::string path_;
  DataSplit split_;
  std::size_t most_bytes_;
  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  std::size_t begin_ = 0;
  bool complete_ = false;
  std::size_t bytes_read_ = 0;
  bool starts_document_ = true, after_gap_ = true;
  int64_t line_ = 1, next_line_ = 1;
  int64_t units_seen_ = 0;
  std::size_t bytes_seen_ = 0;
};

}  // namespace gt
