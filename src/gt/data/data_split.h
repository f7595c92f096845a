// Splits data into a training part and a part that is held out for validation.
//
// Units of text (documents of JSON lines, pieces of text files) are split by a hash of their
// content: a text is on the same side in every file, for every order, number of ranks and seed, and a
// larger share holds out a superset. Rows and windows of token files are split by their numbers,
// because hashing their content would mean reading all of it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gt {

enum class DataPart { kAll, kTraining, kHeldOut };

struct DataSplit {
  double held_out = 0;  // share, in (0, 1) unless the part is kAll
  DataPart part = DataPart::kAll;

  bool divides() const { return part != DataPart::kAll; }
  // Ignores white space around the text: the last line of a file may lack its line feed.
  bool HasText(std::string_view text) const;
  bool HasRow(int64_t row) const;
  // The expected share of the data in this part.
  double share() const;

  bool operator==(const DataSplit&) const = default;
};

// Maps the items of a part to items of the whole: item i of the part is item part(i) of all. Only
// held-out items take memory.
class PartNumbers {
 public:
  PartNumbers() = default;
  // `held_out` are ascending numbers below `all`.
  PartNumbers(DataPart part, int64_t all, std::vector<int64_t> held_out);

  int64_t size() const;
  int64_t all() const { return all_; }
  int64_t operator()(int64_t item) const;
  // Whether the part has this item of all.
  bool Has(int64_t item) const;

 private:
  DataPart part_ = DataPart::kAll;
  int64_t all_ = 0;
  std::vector<int64_t> held_out_;
};

// DataUnreadable if the part has fewer items than there are ranks. `items` is the size of the part,
// `all` that of the data called `name`, and `what` names the items: "documents".
void RequireItems(const DataSplit& split, int64_t items, int64_t all, int64_t ranks,
                  std::string_view what, std::string_view name);

}  // namespace gt
