// The units of text data (documents of JSON lines, pieces of text files) that belong to one rank,
// in the order of each epoch, forever. See data/text_units.h for what a unit is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gt/data/data_split.h"
#include "gt/data/files.h"
#include "gt/data/text_units.h"

namespace gt {

// Where a unit is in the order of all ranks. The last three say how a compressed file is
// entered: which file of the epoch's order, which block of it, and the number of the block's first
// unit.
struct UnitPlace {
  int64_t epoch = 0;
  int64_t unit = 0;  // counted within the epoch
  int64_t file = 0;
  int64_t block = 0;
  int64_t block_begin = 0;

  bool operator==(const UnitPlace&) const = default;
};

struct Unit {
  UnitPlace place;
  std::string_view text;  // valid until the next call of Next() or Seek()
  // Both true unless the unit is a piece of a text file that is read in order by one rank. Where
  // pieces are held out, the text before and after them is two documents.
  bool starts_document = true;
  bool ends_document = true;
};

struct UnitOrder {
  bool shuffle = false;
  uint64_t seed = 0;
  int64_t rank = 0;
  int64_t world = 1;

  // Pieces of a file follow one another only where nobody reorders them or takes some of them away.
  bool ContinuesFiles() const { return !shuffle && world == 1; }
};

// Which units a source has, and which field of a JSON line has the text (data/jsonl_line.h).
struct UnitChoice {
  DataSplit split;
  std::string text_field;
};

// A sample of units, to estimate the size of an epoch.
struct UnitSample {
  struct Text {
    std::string text;
    double bytes = 0;  // its size in the file, uncompressed
    std::string file;
  };
  std::vector<Text> texts;
  bool is_everything = false;  // all units, uncut
  // Totals of an epoch, over all ranks.
  double units = 0;
  bool units_are_counted = false;
  double bytes = 0;
};

class UnitSource {
 public:
  virtual ~UnitSource() = default;

  // The next unit of this rank. At the end of an epoch the next one begins; an epoch that had no
  // unit for this rank is an error.
  virtual Unit Next() = 0;

  // Makes Next() go on at `place`: the default one, or that of a unit which Next() returned in this
  // or an earlier run with the same data and order.
  virtual void Seek(const UnitPlace& place) = 0;

  // File and place of the unit that Next() returned last, for messages: "data/a.jsonl:17".
  virtual std::string Where() const = 0;

  // Takes about `bytes` of text from all over the data. Does not affect Next(). Skips units without a
  // text, which are errors when they are read.
  virtual UnitSample Sample(std::size_t bytes) const = 0;
};

// Plain files are mapped and read once to find their units, so that they can be shuffled as a whole
// and entered anywhere.
std::unique_ptr<UnitSource> MakeIndexedSource(const DataFiles& files, const UnitOrder& order,
                                              const UnitChoice& choice = {});

// For compressed files, or a mix of compressed and plain ones. They are read front to back, in an
// order of files drawn anew for each epoch; the units are shuffled within blocks, which hold
// kBlockUnits units of one file, or fewer where these are large.
std::unique_ptr<UnitSource> MakeStreamedSource(const DataFiles& files, const UnitOrder& order,
                                               const UnitChoice& choice = {});

inline constexpr int64_t kBlockUnits = 4096;
inline constexpr std::size_t kBlockBytes = std::size_t{64} << 20;

inline TextForm FormOf(DataKind kind) {
  return kind == DataKind::kJsonl ? TextForm::kJsonl : TextForm::kText;
}

// What units are called.
inline std::string_view UnitsText(DataKind kind) {
  return kind == DataKind::kJsonl ? "documents" : "pieces of text";
}

}  // namespace gt
