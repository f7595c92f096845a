#include <algorithm>
#include <optional>
#include <vector>

#include "gt/base/error.h"
#include "gt/data/jsonl_line.h"
#include "gt/data/permutation.h"
#include "gt/data/unit_reader.h"
#include "gt/data/unit_sample.h"
#include "gt/data/unit_source.h"

namespace gt {
namespace {

// Units that are in memory together and can be shuffled.
class Block {
 public:
  // Reads as many units as belong to one block; false when there are none left.
  bool Fill(UnitReader& reader) {
    text_.clear();
    ends_.clear();
    lines_.clear();
    starts_document_.clear();
    std::string_view unit;
    while (size() < kBlockUnits && text_.size() < kBlockBytes && reader.Next(unit)) {
      text_ += unit;
      ends_.push_back(text_.size());
      lines_.push_back(reader.line());
      starts_document_.push_back(reader.starts_document());
    }
    return size() > 0;
  }

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string_view Text(int64_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  int64_t Line(int64_t i) const { return lines_[i]; }
  bool StartsDocument(int64_t i) const { return starts_document_[i]; }

 private:
  std::string text_;  // of all units, one after another
  std::vector<std::size_t> ends_;
  std::vector<int64_t> lines_;
  std::vector<bool> starts_document_;
};

class StreamedSource : public UnitSource {
 public:
  StreamedSource(const DataFiles& files, const UnitOrder& order, const UnitChoice& choice)
      : form_(FormOf(files.kind)),
        data_(files),
        order_(order),
        choice_(choice),
        file_order_(0, 0),
        unit_order_(0, 0) {
    if (choice.split.divides()) RequirePart();
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
      const int64_t next = in_block_ + 1;
      unit.starts_document = block_.StartsDocument(in_block_);
      unit.ends_document =
          next < block_.size() ? block_.StartsDocument(next) : reader_->EndsDocument();
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

  UnitSample Sample(std::size_t bytes) const override { return SampleFiles(data_, choice_, bytes); }

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
    document_ = ParseJsonlLine(line, choice_.text_field);
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
    reader_.emplace(form_, data_.files[FileIndex(position)], choice_.split);
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
    const int64_t units = place_.block_begin;
    if (units == 0) FailEmpty();
    RequireItems(choice_.split, units, units, order_.world, UnitsText(data_.kind), data_.name);
  }

  // Otherwise a part that is too small would only be noticed after reading all data.
  void RequirePart() const {
    int64_t own = 0, all = 0;
    for (const DataFile& file : data_.files) {
      UnitReader reader(form_, file, choice_.split);
      std::string_view unit;
      while (own < order_.world && reader.Next(unit)) ++own;
      all += reader.units_seen();
      if (own == order_.world) return;
    }
    if (all == 0) FailEmpty();
    RequireItems(choice_.split, own, all, order_.world, UnitsText(data_.kind), data_.name);
  }

  [[noreturn]] void FailEmpty() const {
    Fail(ErrorCode::kDataUnreadable, "the data in '{}' is empty: it has no text at all",
         data_.name);
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
  UnitChoice choice_;
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

std::unique_ptr<UnitSource> MakeStreamedSource(const DataFiles& files, const UnitOrder& order,
                                               const UnitChoice& choice) {
  return std::make_unique<StreamedSource>(files, order, choice);
}

}  // namespace gt
