#include <algorithm>
#include <vector>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/data/permutation.h"
#include "gt/data/text_units.h"
#include "gt/data/unit_source.h"
#include "gt/storage/mapped_file.h"

namespace gt {
namespace {

// A file whose units are known: unit i reaches from starts[i] to starts[i + 1], the last one to the
// end of the file.
struct IndexedFile {
  std::string path;
  MappedFile mapping;
  std::string_view bytes;
  std::vector<uint64_t> starts;
  int64_t first_unit = 0;  // counted over all files

  std::string_view Text(std::size_t unit) const {
    const std::size_t end = unit + 1 < starts.size() ? starts[unit + 1] : bytes.size();
    return bytes.substr(starts[unit], end - starts[unit]);
  }

  int64_t LineOf(std::size_t unit) const {
    const std::string_view before = bytes.substr(0, starts[unit]);
    return 1 + std::count(before.begin(), before.end(), '\n');
  }
};

void FindUnits(TextForm form, IndexedFile& file) {
  std::size_t at = ByteOrderMarkLength(file.bytes);
  while (at < file.bytes.size()) {
    const std::string_view rest = file.bytes.substr(at);
    const auto length = UnitLength(form, rest, /*complete=*/true);
    if (!length) {
      Fail(ErrorCode::kBadData,
           "{}: the line that starts at byte {} is longer than {}; is this file "
           "really made of lines?",
           file.path, at, DecimalByteText(kLineMost));
    }
    // A blank line joins the document before it, where it does no harm.
    const bool is_unit = form == TextForm::kText || !IsBlank(rest.substr(0, *length));
    if (is_unit) file.starts.push_back(at);
    at += *length;
  }
}

class IndexedSource : public UnitSource {
 public:
  IndexedSource(const DataFiles& files, const UnitOrder& order)
      : form_(files.kind == DataKind::kJsonl ? TextForm::kJsonl : TextForm::kText),
        order_(order),
        permutation_(0, 0) {
    for (const DataFile& file : files.files) AddFile(file);
    RequireUnits(files.name);
    Seek({});
  }

  Unit Next() override {
    while (place_.unit >= units_) StartEpoch(place_.epoch + 1);
    const UnitPlace place = place_;
    place_.unit += order_.world;
    Locate(order_.shuffle ? permutation_(place.unit) : place.unit);
    const std::string_view text = file_->Text(unit_in_file_);
    Unit unit{.place = place, .text = text};
    if (form_ == TextForm::kJsonl) {
      document_ = ParseJsonlLine(text);
      if (!document_.problem.empty()) {
        Fail(ErrorCode::kBadData, "{}: the line {}", Where(), document_.problem);
      }
      unit.text = document_.text;
    } else if (order_.ContinuesFiles()) {
      unit.starts_document = unit_in_file_ == 0;
      unit.ends_document = unit_in_file_ + 1 == file_->starts.size();
    }
    return unit;
  }

  void Seek(const UnitPlace& place) override {
    StartEpoch(place.epoch);
    if (place == UnitPlace{}) return;
    if (place.unit < 0 || place.unit >= units_ || place.unit % order_.world != order_.rank) {
      Fail(ErrorCode::kCheckpointMismatch,
           "the saved place in the data is unit {}, which rank {} of {} cannot be at: there are {} "
           "units",
           place.unit, order_.rank, order_.world, units_);
    }
    place_.unit = place.unit;
  }

  std::string Where() const override {
    return fmt::format("{}:{}", file_->path, file_->LineOf(unit_in_file_));
  }

 private:
  void AddFile(const DataFile& file) {
    IndexedFile indexed;
    indexed.path = file.path.string();
    indexed.mapping = MappedFile(file.path, ErrorCode::kDataUnreadable);
    const auto bytes = indexed.mapping.bytes();
    indexed.bytes = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    FindUnits(form_, indexed);
    if (indexed.starts.empty()) return;  // nothing in it
    indexed.first_unit = units_;
    units_ += static_cast<int64_t>(indexed.starts.size());
    files_.push_back(std::move(indexed));
  }

  void RequireUnits(const std::string& name) const {
    if (units_ == 0) {
      Fail(ErrorCode::kDataUnreadable, "the data in '{}' is empty: it has no text at all", name);
    }
    if (units_ < order_.world) {
      Fail(ErrorCode::kDataUnreadable,
           "the data in '{}' has {} {}, too few for {} ranks to get one each; use more data or "
           "fewer "
           "ranks",
           name, units_, form_ == TextForm::kJsonl ? "documents" : "pieces of text", order_.world);
    }
  }

  void StartEpoch(int64_t epoch) {
    place_ = {.epoch = epoch, .unit = order_.rank};
    permutation_ = Permutation(units_, CombineSeeds(order_.seed, static_cast<uint64_t>(epoch)));
  }

  void Locate(int64_t unit) {
    const auto after =
        std::upper_bound(files_.begin(), files_.end(), unit,
                         [](int64_t value, const IndexedFile& f) { return value < f.first_unit; });
    file_ = &*std::prev(after);
    unit_in_file_ = static_cast<std::size_t>(unit - file_->first_unit);
  }

  TextForm form_;
  UnitOrder order_;
  std::vector<IndexedFile> files_;
  int64_t units_ = 0;
  Permutation permutation_;  // of this epoch
  UnitPlace place_;          // of the next unit
  const IndexedFile* file_ = nullptr;
  std::size_t unit_in_file_ = 0;
  JsonlText document_;
};

}  // namespace

std::unique_ptr<UnitSource> MakeIndexedSource(const DataFiles& files, const UnitOrder& order) {
  return std::make_unique<IndexedSource>(files, order);
}

}  // namespace gt
