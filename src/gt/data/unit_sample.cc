#include "gt/data/unit_sample.h"

#include <algorithm>
#include <utility>

#include "gt/base/utf8.h"
#include "gt/data/jsonl_line.h"
#include "gt/data/unit_reader.h"

namespace gt {
namespace {

constexpr std::size_t kFilesSampled = 8;
constexpr std::size_t kBytesSeen = std::size_t{1} << 18;  // of each file

// Totals over the sampled files.
struct Seen {
  double units = 0, bytes = 0;          // of all parts
  double own_units = 0, own_bytes = 0;  // of this one
  double stored = 0, read = 0;
  bool is_whole = true;
};

void SampleFile(const DataFile& file, TextForm form, const UnitChoice& choice, std::size_t bytes,
                Seen& seen, UnitSample& sample) {
  UnitReader reader(form, file, choice.split, kBytesSeen);
  double taken = 0;
  for (std::string_view unit; reader.Next(unit);) {
    seen.own_units += 1;
    seen.own_bytes += static_cast<double>(unit.size());
    if (taken < static_cast<double>(bytes)) {
      AddToSample(unit, form, choice, file, bytes, sample);
      taken += static_cast<double>(unit.size());
    } else {
      sample.is_everything = false;
    }
  }
  seen.units += static_cast<double>(reader.units_seen());
  seen.bytes += static_cast<double>(reader.bytes_seen());
  seen.stored += static_cast<double>(reader.bytes_stored());
  seen.read += static_cast<double>(reader.bytes_read());
  seen.is_whole &= reader.AtEnd();
}

}  // namespace

void AddToSample(std::string_view unit, TextForm form, const UnitChoice& choice,
                 const DataFile& file, std::size_t most, UnitSample& sample) {
  std::string text(form == TextForm::kText ? unit : "");
  if (form == TextForm::kJsonl) {
    JsonlText document = ParseJsonlLine(unit, choice.text_field);
    if (!document.problem.empty()) {
      sample.is_everything = false;
      return;
    }
    text = std::move(document.text);
  }
  auto bytes = static_cast<double>(unit.size());
  if (text.size() > most) {
    std::size_t cut = most;
    while (cut > 0 && most - cut < 3 && IsUtf8Continuation(text[cut])) --cut;
    bytes *= static_cast<double>(cut) / static_cast<double>(text.size());
    text.resize(cut);
    sample.is_everything = false;
  }
  sample.texts.push_back({std::move(text), bytes, file.path.string()});
}

UnitSample SampleFiles(const DataFiles& data, const UnitChoice& choice, std::size_t bytes) {
  UnitSample sample;
  sample.is_everything = true;
  Seen seen;
  const std::size_t files = data.files.size(), count = std::min(files, kFilesSampled);
  for (std::size_t i = 0; i < count; ++i) {
    SampleFile(data.files[i * files / count], FormOf(data.kind), choice, bytes / count, seen,
               sample);
  }
  sample.units_are_counted = seen.is_whole && count == files;
  sample.is_everything &= sample.units_are_counted;
  sample.units = seen.own_units;
  sample.bytes = seen.own_bytes;
  if (sample.units_are_counted || seen.units == 0 || seen.stored == 0) return sample;
  const auto stored = static_cast<double>(data.TotalSize());
  sample.bytes = stored * seen.read / seen.stored * choice.split.share();
  sample.units = sample.bytes / (seen.bytes / seen.units);
  return sample;
}

}  // namespace gt
