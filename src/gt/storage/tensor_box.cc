#include "gt/storage/tensor_box.h"

#include <algorithm>
#include <cstring>

#include "gt/base/error.h"

namespace gt {
namespace {

// Walks through the common part of two boxes in steps that are contiguous in both.
class RunWalk {
 public:
  RunWalk(const TensorBox& common, const TensorBox& from, const TensorBox& to, size_t item_bytes)
      : sizes_(common.sizes), from_(common, from, item_bytes), to_(common, to, item_bytes) {
    // The innermost dimensions form one run as long as both boxes hold all of each of them.
    run_bytes_ = item_bytes;
    while (outer_ > 0) {
      const size_t dim = --outer_;
      run_bytes_ *= static_cast<size_t>(sizes_[dim]);
      if (sizes_[dim] != from.sizes[dim] || sizes_[dim] != to.sizes[dim]) break;
    }
  }

  void Copy(std::span<const std::byte> from, std::span<std::byte> to) {
    std::vector<int64_t> index(outer_, 0);
    do {
      std::memcpy(to.data() + to_.position, from.data() + from_.position, run_bytes_);
    } while (Advance(index));
  }

 private:
  // Where the walk is in the bytes of one of the boxes.
  struct Cursor {
    Cursor(const TensorBox& common, const TensorBox& box, size_t item_bytes)
        : strides(box.sizes.size()) {
      size_t stride = item_bytes;
      for (size_t dim = strides.size(); dim-- > 0;) {
        strides[dim] = stride;
        position += stride * static_cast<size_t>(common.offset[dim] - box.offset[dim]);
        stride *= static_cast<size_t>(box.sizes[dim]);
      }
    }

    void Forward(size_t dim) { position += strides[dim]; }
    void Rewind(size_t dim, int64_t count) {
      position -= strides[dim] * static_cast<size_t>(count);
    }

    std::vector<size_t> strides;  // bytes between neighbours in each dimension
    size_t position = 0;
  };

  // Counts up like an odometer; false after the last run.
  bool Advance(std::vector<int64_t>& index) {
    for (size_t dim = outer_; dim-- > 0;) {
      if (++index[dim] < sizes_[dim]) {
        from_.Forward(dim);
        to_.Forward(dim);
        return true;
      }
      index[dim] = 0;
      from_.Rewind(dim, sizes_[dim] - 1);
      to_.Rewind(dim, sizes_[dim] - 1);
    }
    return false;
  }

  const std::vector<int64_t>& sizes_;
  Cursor from_;
  Cursor to_;
  size_t outer_ = sizes_.size();  // dimensions that are not part of a run
  size_t run_bytes_ = 0;
};

void CheckBytes(const TensorBox& box, size_t bytes, size_t item_bytes) {
  GT_CHECK(box.IsInside(), "the box {} is not inside its tensor", BoxText(box));
  GT_CHECK(static_cast<size_t>(box.elements()) * item_bytes == bytes,
           "the box {} of items of {} bytes comes with {} bytes", BoxText(box), item_bytes, bytes);
}

}  // namespace

TensorBox TensorBox::All(std::vector<int64_t> sizes) {
  std::vector<int64_t> offset(sizes.size(), 0);
  return {sizes, std::move(offset), sizes};
}

int64_t TensorBox::elements() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

bool TensorBox::IsInside() const {
  if (offset.size() != whole.size() || sizes.size() != whole.size()) return false;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (sizes[i] < 0 || offset[i] < 0 || offset[i] > whole[i] || sizes[i] > whole[i] - offset[i]) {
      return false;
    }
  }
  return true;
}

TensorBox TensorBox::Intersect(const TensorBox& other) const {
  TensorBox common{whole, offset, sizes};
  for (size_t i = 0; i < whole.size(); ++i) {
    int64_t begin = std::max(offset[i], other.offset[i]);
    int64_t end = std::min(offset[i] + sizes[i], other.offset[i] + other.sizes[i]);
    common.offset[i] = begin;
    common.sizes[i] = std::max<int64_t>(end - begin, 0);
  }
  return common;
}

std::vector<TensorBox> TensorBox::Without(const TensorBox& other) const {
  const TensorBox common = Intersect(other);
  if (elements() == 0) return {};
  if (common.elements() == 0) return {*this};
  std::vector<TensorBox> left;
  // Dimension by dimension what is before and after the common part; the rest narrows down to
  // the common part itself.
  TensorBox rest = *this;
  for (size_t i = 0; i < whole.size(); ++i) {
    const int64_t end = rest.offset[i] + rest.sizes[i];
    const int64_t common_end = common.offset[i] + common.sizes[i];
    if (rest.offset[i] < common.offset[i]) {
      left.push_back(rest);
      left.back().sizes[i] = common.offset[i] - rest.offset[i];
    }
    if (common_end < end) {
      left.push_back(rest);
      left.back().offset[i] = common_end;
      left.back().sizes[i] = end - common_end;
    }
    rest.offset[i] = common.offset[i];
    rest.sizes[i] = common.sizes[i];
  }
  return left;
}

BoxRows::BoxRows(const TensorBox& box) : box_(box) {
  for (size_t i = 0; i + 1 < box.sizes.size(); ++i) count_ *= box.sizes[i];
  if (!box.sizes.empty()) length_ = box.sizes.back();
}

int64_t BoxRows::First(int64_t row) const {
  int64_t index = 0, stride = 1;
  for (size_t i = box_.sizes.size(); i-- > 0;) {
    int64_t position = box_.offset[i];
    if (i + 1 < box_.sizes.size()) {
      position += row % box_.sizes[i];
      row /= box_.sizes[i];
    }
    index += position * stride;
    stride *= box_.whole[i];
  }
  return index;
}

std::vector<TensorBox> SplitBox(const TensorBox& box, int64_t most) {
  GT_CHECK(most > 0, "a box is split into pieces of {} elements", most);
  if (box.elements() == 0) return {};
  // The innermost dimensions stay whole as long as they fit; the next one is cut, and of those
  // outside of it each piece has one index.
  int64_t inner = 1;
  size_t cut = box.sizes.size();
  while (cut > 0 && inner * box.sizes[cut - 1] <= most) inner *= box.sizes[--cut];
  if (cut == 0) return {box};
  const int64_t step = most / inner, end = box.offset[cut - 1] + box.sizes[cut - 1];
  std::vector<TensorBox> pieces;
  TensorBox piece = box;
  for (size_t i = 0; i + 1 < cut; ++i) piece.sizes[i] = 1;
  const auto advance = [&] {  // the outer dimensions count up like an odometer
    for (size_t i = cut - 1; i-- > 0;) {
      if (++piece.offset[i] < box.offset[i] + box.sizes[i]) return true;
      piece.offset[i] = box.offset[i];
    }
    return false;
  };
  do {
    for (int64_t begin = box.offset[cut - 1]; begin < end; begin += step) {
      piece.offset[cut - 1] = begin;
      piece.sizes[cut - 1] = std::min(step, end - begin);
      pieces.push_back(piece);
    }
  } while (advance());
  return pieces;
}

std::string BoxText(const TensorBox& box) {
  std::string text;
  for (size_t i = 0; i < box.sizes.size() && i < box.offset.size(); ++i) {
    text += fmt::format("{}{}:{}", i > 0 ? ", " : "", box.offset[i], box.offset[i] + box.sizes[i]);
  }
  return "[" + text + "]";
}

void CopyBox(const TensorBox& from_box, std::span<const std::byte> from, const TensorBox& to_box,
             std::span<std::byte> to, size_t item_bytes) {
  GT_CHECK(from_box.whole == to_box.whole, "a box of a tensor [{}] is copied to one of [{}]",
           fmt::join(from_box.whole, ", "), fmt::join(to_box.whole, ", "));
  CheckBytes(from_box, from.size(), item_bytes);
  CheckBytes(to_box, to.size(), item_bytes);
  const TensorBox common = from_box.Intersect(to_box);
  if (common.elements() > 0) RunWalk(common, from_box, to_box, item_bytes).Copy(from, to);
}

}  // namespace gt
