#include <algorithm>
#include <optional>
#include <vector>

#include "gt/base/byte_stream.h"
#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/data/permutation.h"
#include "gt/data/text_units.h"
#include "gt/data/unit_source.h"

namespace gt {
namespace {

// Cuts the bytes of a stream into units.
class UnitReader {
 public:
  UnitReader(TextForm form, const DataFile& file)
      : form_(form),
        path_(file.path.string()),
        stream_(OpenByteStream(file.path, file.compression)) {
    Grow(kFirstRead);
    begin_ = ByteOrderMarkLength(buffer_);
  }

  // False at the end. The unit stays valid until the next call of anything here.
  bool Next(std::string_view& unit) {
    while (!AtEnd()) {
      const std::string_view rest = std::string_view(buffer_).substr(begin_);
      if (const auto length = UnitLength(form_, rest, complete_)) {
        unit = rest.substr(0, *length);
        line_ = next_line_;
        next_line_ += form_ == TextForm::kJsonl;
        begin_ += *length;
        if (form_ == TextForm::kText || !IsBlank(unit)) return true;
      } else {
        RefuseEndlessLine(rest);
        // Grows by the size of what could not be cut: then a long line is searched for its end a
        // few times, not once for every read.
        Grow(std::max(rest.size(), kFirstRead));
      }
    }
    return false;
  }

  // Whether the unit returned last was the last one; for text, where no unit is blank.
  bool AtEnd() {
    if (begin_ == buffer_.size() && !complete_) Grow(kFirstRead);
    return begin_ == buffer_.size();
  }

  int64_t line() const { return line_; }  // of the unit returned last; JSON lines only

 private:
  static constexpr std::size_t kFirstRead = std::size_t{1} << 18;

  void RefuseEndlessLine(std::string_view rest) const {
    if (rest.size() < kLineMost) return;
    Fail(ErrorCode::kBadData,
         "{}:{}: the line is longer than {}; is this file really made of lines?", path_, next_line_,
         DecimalByteText(kLineMost));
  }

  void Grow(std::size_t count) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    std::size_t size = buffer_.size();
    buffer_.resize(size + count);
    // A stream gives what it has at hand, which may be little.
    while (size < buffer_.size() && !complete_) {
      const std::size_t got = stream_->Read(buffer_.data() + size, buffer_.size() - size);
      complete_ = got == 0;
      size += got;
    }
    buffer_.resize(size);
  }

  TextForm form_;
  std::string path_;
  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  std::size_t begin_ = 0;
  bool complete_ = false;
  int64_t line_ = 1, next_line_ = 1;
};

// Units that are in memory together and can be shuffled.
class Block {
 public:
  // Reads as many units as belong to one block; false when there are none left.
  bool Fill(UnitReader& reader) {
    text_.clear();
    ends_.clear();
    lines_.clear();
    std::string_view unit;
    while (size() < kBlockUnits && text_.size() < kBlockBytes && reader.Next(unit)) {
      text_ += unit;
      ends_.push_back(text_.size());
      lines_.push_back(reader.line());
    }
    return size() > 0;
  }

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string_view Text(int64_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  int64_t Line(int64_t i) const { return lines_[i]; }

 private:
  std::string text_;  // of all units, one after another
  std::vector<std::size_t> ends_;
  std::vector<int64_t> lines_;
};

class StreamedSource : public UnitSource {
 public:
  StreamedSource(const DataFiles& files, const UnitOrder& order)
      : form_(files.kind == DataKind::kJsonl ? TextForm::kJsonl : TextForm::kText),
        data_(files),
        order_(order),
        file_order_(0, 0),
        unit_order_(0, 0) {
    StartEpoch(0);
  }

  Unit Next() override {
    place_.unit = NextOwn(place_.unit);
    while (place_.unit >= place_.block_begin + block_.size()) {
      NextBlock();
      place_.unit = NextOwn(place_.unit);
    }
    const int64_t in_order = place_.unit - place_.block_begin;
    in_block_ = order_.shuffle ? unit_order_(in_order) : in_order;
    Unit unit{.place = place_, .text = block_.Text(in_block_)};
    if (form_ == TextForm::kJsonl) {
      unit.text = ReadDocument(unit.text);
    } else if (order_.ContinuesFiles()) {
      unit.starts_document = place_.block == 0 && in_block_ == 0;
      unit.ends_document = in_block_ + 1 == block_.size() && reader_->AtEnd();
    }
    epoch_has_units_ = true;
    place_.unit += 1;
    return unit;
  }

  void Seek(const UnitPlace& place) override {
    StartEpoch(place.epoch);
    if (place == UnitPlace{}) return;
    if (place.file < 0 || place.file >= FileCount() || place.block < 0) Lost(place);
    // Files before the place are not even opened; blocks of its own file are read over.
    OpenFile(place.file);
    while (blocks_read_ <= place.block) {
      if (!ReadBlock()) Lost(place);
    }
    place_ = place;
    epoch_has_units_ = true;  // the one at the place
    const bool is_in_block =
        place.unit >= place.block_begin && place.unit < place.block_begin + block_.size();
    if (!is_in_block || place.unit != NextOwn(place.unit)) Lost(place);
  }

  std::string Where() const override {
    if (form_ == TextForm::kText) return FilePath();
    return fmt::format("{}:{}", FilePath(), block_.Line(in_block_));
  }

 private:
  int64_t FileCount() const { return static_cast<int64_t>(data_.files.size()); }
  int64_t FileIndex(int64_t position) const {
    return order_.shuffle ? file_order_(position) : position;
  }
  std::string FilePath() const { return data_.files[FileIndex(place_.file)].path.string(); }

  // The first unit from `unit` on that belongs to this rank.
  int64_t NextOwn(int64_t unit) const {
    return unit + (order_.rank - unit % order_.world + order_.world) % order_.world;
  }

  std::string_view ReadDocument(std::string_view line) {
    document_ = ParseJsonlLine(line);
    if (!document_.problem.empty()) {
      Fail(ErrorCode::kBadData, "{}: the line {}", Where(), document_.problem);
    }
    return document_.text;
  }

  void StartEpoch(int64_t epoch) {
    place_ = {.epoch = epoch};
    epoch_seed_ = CombineSeeds(order_.seed, static_cast<uint64_t>(epoch));
    file_order_ = Permutation(FileCount(), epoch_seed_);
    epoch_has_units_ = false;
    block_ = {};
    OpenFile(0);
  }

  void OpenFile(int64_t position) {
    place_.file = position;
    blocks_read_ = 0;
    reader_.emplace(form_, data_.files[FileIndex(position)]);
  }

  // The next block of the open file; false when it has no more.
  bool ReadBlock() {
    if (!block_.Fill(*reader_)) return false;
    const auto file = static_cast<uint64_t>(FileIndex(place_.file));
    unit_order_ = Permutation(block_.size(), CombineSeeds(CombineSeeds(epoch_seed_, file),
                                                          static_cast<uint64_t>(blocks_read_)));
    place_.block = blocks_read_++;
    return true;
  }

  // The next block of this file, of the files after it, or of the next epoch.
  void NextBlock() {
    place_.block_begin += block_.size();
    while (!ReadBlock()) {
      if (place_.file + 1 < FileCount()) {
        OpenFile(place_.file + 1);
      } else {
        RequireUnits();
        StartEpoch(place_.epoch + 1);
      }
    }
  }

  void RequireUnits() const {
    if (epoch_has_units_) return;
    if (place_.block_begin == 0) {
      Fail(ErrorCode::kDataUnreadable, "the data in '{}' is empty: it has no text at all",
           data_.name);
    }
    Fail(ErrorCode::kDataUnreadable,
         "the data in '{}' has {} {}, too few for {} ranks to get one each; use more data or fewer "
         "ranks",
         data_.name, place_.block_begin, form_ == TextForm::kJsonl ? "documents" : "pieces of text",
         order_.world);
  }

  [[noreturn]] void Lost(const UnitPlace& place) const {
    Fail(ErrorCode::kCheckpointMismatch,
         "the saved place in the data (file {}, block {}, unit {}) does not exist in '{}' for rank "
         "{} of {}; has the data changed since?",
         place.file, place.block, place.unit, data_.name, order_.rank, order_.world);
  }

  TextForm form_;
  DataFiles data_;
  UnitOrder order_;
  uint64_t epoch_seed_ = 0;
  Permutation file_order_;  // of this epoch
  std::optional<UnitReader> reader_;
  int64_t blocks_read_ = 0;  // from reader_
  Block block_;
  Permutation unit_order_;        // of this block
  UnitPlace place_;               // of the block, and of the next unit or one before it
  bool epoch_has_units_ = false;  // for this rank
  int64_t in_block_ = 0;
  JsonlText document_;
};

}  // namespace

std::unique_ptr<UnitSource> MakeStreamedSource(const DataFiles& files, const UnitOrder& order) {
  return std::make_unique<StreamedSource>(files, order);
}

}  // namespace gt
