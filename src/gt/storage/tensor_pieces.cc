#include "gt/storage/tensor_pieces.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <tuple>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

constexpr char kPlaceMark = '@';

// One number in the only way that PieceName writes it: digits, without leading zeros.
std::optional<int64_t> ParseOffset(std::string_view text) {
  const bool is_plain = !text.empty() && text[0] >= '0' && text[0] <= '9';
  if (!is_plain || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Whether they have anything in common. Of thousands of pieces a rank may need two, so that this
// must cost nothing.
bool Meets(std::span<const int64_t> offset, std::span<const int64_t> sizes, const TensorBox& box) {
  for (size_t i = 0; i < offset.size(); ++i) {
    if (std::max(offset[i], box.offset[i]) >=
        std::min(offset[i] + sizes[i], box.offset[i] + box.sizes[i])) {
      return false;
    }
  }
  return true;
}

// Takes `box` out of all of `left`.
void TakeOut(const TensorBox& box, std::vector<TensorBox>& left) {
  std::vector<TensorBox> rest;
  for (TensorBox& candidate : left) {
    if (!Meets(box.offset, box.sizes, candidate)) {
      rest.push_back(std::move(candidate));
      continue;
    }
    std::vector<TensorBox> remains = candidate.Without(box);
    std::move(remains.begin(), remains.end(), std::back_inserter(rest));
  }
  left = std::move(rest);
}

}  // namespace

std::string InfoText(const TensorInfo& info) {
  return fmt::format("{} [{}]", DTypeName(info.dtype), fmt::join(info.sizes, ", "));
}

std::string PieceName(std::string_view tensor, std::span<const int64_t> offset) {
  return fmt::format("{}{}{}", tensor, kPlaceMark, fmt::join(offset, ","));
}

std::optional<PiecePlace> ParsePieceName(std::string_view name) {
  const size_t mark = name.rfind(kPlaceMark);
  if (mark == std::string_view::npos) return std::nullopt;
  PiecePlace place{.tensor = name.substr(0, mark), .offset = {}};
  for (const std::string& number : Split(name.substr(mark + 1), ',')) {
    const auto value = ParseOffset(number);
    if (!value.has_value()) return std::nullopt;
    place.offset.push_back(*value);
  }
  if (place.offset.empty()) return std::nullopt;
  return place;
}

TensorPieces::TensorPieces(const TensorIndex& index) : has_index_(!index.empty()) {
  for (const auto& [name, info] : index) tensors_[name].info = info;
}

// The tensor that `stored` is a piece of, and where; null if there is none.
TensorPieces::Tensor* TensorPieces::Locate(const TensorEntry& stored,
                                           std::vector<int64_t>& offset) {
  if (!has_index_ && !tensors_.contains(stored.name)) {
    tensors_[stored.name].info = {.dtype = stored.dtype, .sizes = stored.sizes};
  }
  if (const auto found = tensors_.find(stored.name); found != tensors_.end()) {
    offset.assign(found->second.info.sizes.size(), 0);
    return &found->second;
  }
  auto place = ParsePieceName(stored.name);
  if (!place.has_value()) return nullptr;
  const auto found = tensors_.find(place->tensor);
  if (found == tensors_.end()) return nullptr;
  offset = std::move(place->offset);
  return &found->second;
}

void TensorPieces::Add(std::string_view file, const TensorEntry& stored,
                       std::vector<std::string>& problems) {
  std::vector<int64_t> offset;
  Tensor* tensor = Locate(stored, offset);
  if (tensor == nullptr) {
    problems.push_back(
        fmt::format("{}: {} is a piece of no tensor of the manifest", file, Quoted(stored.name)));
    return;
  }
  const TensorInfo mine = {.dtype = stored.dtype, .sizes = stored.sizes};
  const TensorBox box = {tensor->info.sizes, offset, stored.sizes};
  if (mine.dtype != tensor->info.dtype || !box.IsInside()) {
    problems.push_back(fmt::format("{}: {} is {}, which is no piece of {}", file,
                                   Quoted(stored.name), InfoText(mine), InfoText(tensor->info)));
    return;
  }
  tensor->pieces.push_back({std::move(offset), &stored});
}

TensorBox TensorPieces::BoxOf(const Tensor& tensor, const Piece& piece) {
  return {tensor.info.sizes, piece.offset, piece.stored->sizes};
}

// Ranks that hold the same box may all have written it. One is enough for reading: the first.
void TensorPieces::SortOut(std::vector<Piece>& pieces) {
  const auto key = [](const Piece& piece) { return std::tie(piece.offset, piece.stored->sizes); };
  std::stable_sort(pieces.begin(), pieces.end(),
                   [&](const Piece& a, const Piece& b) { return key(a) < key(b); });
  const auto same = [&](const Piece& a, const Piece& b) { return key(a) == key(b); };
  pieces.erase(std::unique(pieces.begin(), pieces.end(), same), pieces.end());
}

// What is wrong with the pieces, which are sorted, as a whole. In that order, pieces that form a
// grid leave at most one box per dimension open at any time, so that this takes linear time. No
// layout of ranks comes near the limit; it exists so that no made-up file takes longer.
std::optional<std::string> TensorPieces::Missing(const Tensor& tensor) {
  constexpr size_t kMostOpen = 1000;
  std::vector<TensorBox> open = {TensorBox::All(tensor.info.sizes)};
  if (open.front().elements() == 0) return std::nullopt;
  for (const Piece& piece : tensor.pieces) {
    TakeOut(BoxOf(tensor, piece), open);
    if (open.size() > kMostOpen) {
      return fmt::format("its {} pieces are scattered over it with too many gaps",
                         tensor.pieces.size());
    }
  }
  if (open.empty()) return std::nullopt;
  return fmt::format("no file has the range {} of it", BoxText(open.front()));
}

void TensorPieces::Finish(std::vector<std::string>& problems) {
  for (auto& [name, tensor] : tensors_) {
    SortOut(tensor.pieces);
    if (const auto missing = Missing(tensor)) {
      problems.push_back(
          fmt::format("tensor {}, {}: {}", Quoted(name), InfoText(tensor.info), *missing));
    }
  }
}

const TensorInfo* TensorPieces::Info(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.info;
}

void TensorPieces::Read(std::string_view name, const TensorBox& box,
                        std::span<std::byte> destination, std::string_view where) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    Fail(ErrorCode::kCheckpointMismatch, "{}: there is no tensor {}", where, Quoted(name));
  }
  const Tensor& tensor = found->second;
  if (tensor.info.sizes != box.whole) {
    Fail(ErrorCode::kCheckpointMismatch, "{}: tensor {} is {}, but a part of one of [{}] is needed",
         where, Quoted(name), InfoText(tensor.info), fmt::join(box.whole, ", "));
  }
  if (tensor.info.dtype == DType::kUndefined) {
    Fail(ErrorCode::kUnsupportedDType, "{}: tensor {} has a dtype that gt cannot compute with",
         where, Quoted(name));
  }
  const auto item_bytes = static_cast<size_t>(ItemSize(tensor.info.dtype));
  GT_CHECK(box.IsInside() && static_cast<size_t>(box.elements()) * item_bytes == destination.size(),
           "the box {} of tensor {}, {}, is read into {} bytes", BoxText(box), Quoted(name),
           InfoText(tensor.info), destination.size());
  for (const Piece& piece : tensor.pieces) {
    if (!Meets(piece.offset, piece.stored->sizes, box)) continue;
    CopyBox(BoxOf(tensor, piece), piece.stored->bytes, box, destination, item_bytes);
  }
}

}  // namespace gt
