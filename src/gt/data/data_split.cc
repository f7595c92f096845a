#include "gt/data/data_split.h"

#include <algorithm>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/data/permutation.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

// Must never change: checkpoints rely on the same documents being held out.
bool IsHeldOut(uint64_t hash, double share) {
  constexpr int kBitsOfADouble = 53;
  return static_cast<double>(hash >> (64 - kBitsOfADouble)) * 0x1p-53 < share;
}

}  // namespace

bool DataSplit::HasText(std::string_view text) const {
  if (!divides()) return true;
  return IsHeldOut(Xxh64Of(Trim(text)), held_out) == (part == DataPart::kHeldOut);
}

bool DataSplit::HasRow(int64_t row) const {
  if (!divides()) return true;
  return IsHeldOut(MixBits(static_cast<uint64_t>(row)), held_out) == (part == DataPart::kHeldOut);
}

double DataSplit::share() const {
  if (!divides()) return 1;
  return part == DataPart::kHeldOut ? held_out : 1 - held_out;
}

PartNumbers::PartNumbers(DataPart part, int64_t all, std::vector<int64_t> held_out)
    : part_(part), all_(all), held_out_(std::move(held_out)) {}

int64_t PartNumbers::size() const {
  return part_ == DataPart::kHeldOut ? std::ssize(held_out_) : all_ - std::ssize(held_out_);
}

int64_t PartNumbers::operator()(int64_t item) const {
  if (part_ == DataPart::kHeldOut) return held_out_[static_cast<std::size_t>(item)];
  // The number of held-out items before it: those with at most `item` kept items before them.
  int64_t low = 0, high = std::ssize(held_out_);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (held_out_[static_cast<std::size_t>(middle)] - middle <= item) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return item + low;
}

bool PartNumbers::Has(int64_t item) const {
  const bool is_held_out = std::binary_search(held_out_.begin(), held_out_.end(), item);
  return part_ == DataPart::kAll || is_held_out == (part_ == DataPart::kHeldOut);
}

void RequireItems(const DataSplit& split, int64_t items, int64_t all, int64_t ranks,
                  std::string_view what, std::string_view name) {
  if (items >= ranks) return;
  if (!split.divides()) {
    Fail(ErrorCode::kDataUnreadable,
         "the data in '{}' has {} {}, too few for {} ranks to get one each; use more data or fewer "
         "ranks",
         name, all, what, ranks);
  }
  const bool is_held_out = split.part == DataPart::kHeldOut;
  const std::string needed =
      ranks == 1 ? "" : fmt::format(", too few for {} ranks to get one each", ranks);
  Fail(ErrorCode::kDataUnreadable, "--validation.split {} {} {} of the {} {} in '{}'{}{}; {}",
       split.held_out, is_held_out ? "holds out" : "leaves",
       items == 0 ? "none" : fmt::to_string(items), all, what, name,
       is_held_out ? "" : " to train on", needed,
       is_held_out ? "raise it, use more data, or validate on other data "
                     "(--validation.dataset_path)"
                   : "lower it, or use more data");
}

}  // namespace gt
