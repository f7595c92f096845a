#include <algorithm>
#include <vector>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/data/jsonl_line.h"
#include "gt/data/permutation.h"
#include "gt/data/text_units.h"
#include "gt/data/unit_sample.h"
#include "gt/data/unit_source.h"
#include "gt/storage/mapped_file.h"

namespace gt {
namespace {

// A file whose units are known: unit i reaches from starts[i] to starts[i + 1], the last one to the
// end of the file.
struct IndexedFile {
  DataFile file;
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
           file.file.path.string(), at, DecimalByteText(kLineMost));
    }
    // A blank line joins the document before it, where it does no harm.
    const bool is_unit = form == TextForm::kText || !IsBlank(rest.substr(0, *length));
    if (is_unit) file.starts.push_back(at);
    at += *length;
  }
}

class IndexedSource : public UnitSource {
 public:
  IndexedSource(const DataFiles& files, const UnitOrder& order, const UnitChoice& choice)
      : kind_(files.kind),
        form_(FormOf(kind_)),
        order_(order),
        choice_(choice),
        permutation_(0, 0) {
    std::vector<int64_t> held_out;
    int64_t units = 0;
    for (const DataFile& file : files.files) units += AddFile(file, units, held_out);
    units_ = PartNumbers(choice_.split.part, units, std::move(held_out));
    if (units == 0) {
      Fail(ErrorCode::kDataUnreadable, "the data in '{}' is empty: it has no text at all",
           files.name);
    }
    RequireItems(choice_.split, units_.size(), units, order_.world, UnitsText(kind_), files.name);
    Seek({});
  }

  Unit Next() override {
    while (place_.unit >= units_.size()) StartEpoch(place_.epoch + 1);
    const UnitPlace place = place_;
    place_.unit += order_.world;
    const int64_t number = units_(order_.shuffle ? permutation_(place.unit) : place.unit);
    at_ = Locate(number);
    const std::string_view text = at_.Text();
    Unit unit{.place = place, .text = text};
    if (form_ == TextForm::kJsonl) {
      document_ = ParseJsonlLine(text, choice_.text_field);
      if (!document_.problem.empty()) {
        Fail(ErrorCode::kBadData, "{}: the line {}", Where(), document_.problem);
      }
      unit.text = document_.text;
    } else if (order_.ContinuesFiles()) {
      unit.starts_document = at_.unit == 0 || !units_.Has(number - 1);
      unit.ends_document = at_.unit + 1 == at_.file->starts.size() || !units_.Has(number + 1);
    }
    return unit;
  }

  void Seek(const UnitPlace& place) override {
    StartEpoch(place.epoch);
    if (place == UnitPlace{}) return;
    if (place.unit < 0 || place.unit >= units_.size() || place.unit % order_.world != order_.rank) {
      Fail(ErrorCode::kCheckpointMismatch,
           "the saved place in the data is unit {}, which rank {} of {} cannot be at: there are {} "
           "units",
           place.unit, order_.rank, order_.world, units_.size());
    }
    place_.unit = place.unit;
  }

  std::string Where() const override {
    return fmt::format("{}:{}", at_.file->file.path.string(), at_.file->LineOf(at_.unit));
  }

  UnitSample Sample(std::size_t bytes) const override {
    UnitSample sample;
    sample.units = static_cast<double>(units_.size());
    sample.units_are_counted = true;
    sample.bytes = static_cast<double>(bytes_);
    sample.is_everything = bytes_ <= bytes;
    int64_t taken = units_.size();
    if (!sample.is_everything) {
      const auto wanted =
          static_cast<int64_t>(static_cast<double>(bytes) * sample.units / sample.bytes);
      taken = std::min(std::clamp<int64_t>(wanted, kFewestSampled, kMostSampled), taken);
    }
    const std::size_t most = std::max(bytes / static_cast<std::size_t>(taken), kSmallestSample);
    for (int64_t i = 0; i < taken; ++i) {
      // As doubles, so that no product overflows; exact where all are taken.
      const double share = static_cast<double>(i) / static_cast<double>(taken);
      const auto item = sample.is_everything ? i : static_cast<int64_t>(share * sample.units);
      const PlaceInFile place = Locate(units_(item));
      AddToSample(place.Text(), form_, choice_, place.file->file,
                  sample.is_everything ? bytes : most, sample);
    }
    return sample;
  }

 private:
  static constexpr int64_t kFewestSampled = 8, kMostSampled = 256;
  static constexpr std::size_t kSmallestSample = 4096;  // bytes of a unit

  struct PlaceInFile {
    const IndexedFile* file = nullptr;
    std::size_t unit = 0;
    std::string_view Text() const { return file->Text(unit); }
  };

  // Returns the number of units in the file. Its first one is number `first_unit` of all.
  int64_t AddFile(const DataFile& file, int64_t first_unit, std::vector<int64_t>& held_out) {
    IndexedFile indexed;
    indexed.file = file;
    indexed.mapping = MappedFile(file.path, ErrorCode::kDataUnreadable);
    const auto bytes = indexed.mapping.bytes();
    indexed.bytes = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    FindUnits(form_, indexed);
    if (indexed.starts.empty()) return 0;  // nothing in it
    indexed.first_unit = first_unit;
    const auto units = static_cast<int64_t>(indexed.starts.size());
    Divide(indexed, held_out);
    files_.push_back(std::move(indexed));
    return units;
  }

  // Splits the units of the file.
  void Divide(const IndexedFile& file, std::vector<int64_t>& held_out) {
    if (!choice_.split.divides()) {
      bytes_ += file.bytes.size() - file.starts[0];
      return;
    }
    for (std::size_t i = 0; i < file.starts.size(); ++i) {
      const bool is_own = choice_.split.HasText(file.Text(i));
      if (is_own) bytes_ += file.Text(i).size();
      if (is_own == (choice_.split.part == DataPart::kHeldOut)) {
        held_out.push_back(file.first_unit + static_cast<int64_t>(i));
      }
    }
  }

  void StartEpoch(int64_t epoch) {
    place_ = {.epoch = epoch, .unit = order_.rank};
    permutation_ =
        Permutation(units_.size(), CombineSeeds(order_.seed, static_cast<uint64_t>(epoch)));
  }

  PlaceInFile Locate(int64_t unit) const {
    const auto after =
        std::upper_bound(files_.begin(), files_.end(), unit,
                         [](int64_t value, const IndexedFile& f) { return value < f.first_unit; });
    const IndexedFile& file = *std::prev(after);
    return {&file, static_cast<std::size_t>(unit - file.first_unit)};
  }

  DataKind kind_;
  TextForm form_;
  UnitOrder order_;
  UnitChoice choice_;
  std::vector<IndexedFile> files_;
  PartNumbers units_;
  std::size_t bytes_ = 0;    // of the units
  Permutation permutation_;  // of this epoch
  UnitPlace place_;          // of the next unit
  PlaceInFile at_;           // of the unit returned last
  JsonlText document_;
};

}  // namespace

std::unique_ptr<UnitSource> MakeIndexedSource(const DataFiles& files, const UnitOrder& order,
                                              const UnitChoice& choice) {
  return std::make_unique<IndexedSource>(files, order, choice);
}

}  // namespace gt
