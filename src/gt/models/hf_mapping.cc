#include "gt/models/hf_mapping.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "gt/base/error.h"

namespace gt {
namespace {

// Whether a dimension of the view walks along a dimension of ours, of this size and stride. One of a
// single element walks nowhere; it is matched to the first of ours.
bool WalksAlong(int64_t count, int64_t step, size_t our_dim, int64_t our_size, int64_t our_stride) {
  if (count == 1) return our_dim == 0;
  return step >= our_stride && step < our_stride * our_size;
}

bool IsRange(std::span<const int64_t> numbers) {
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i] != numbers[i - 1] + 1) return false;
  }
  return true;
}

at::Tensor Select(const at::Tensor& x, int64_t dim, std::span<const int64_t> places) {
  auto count = static_cast<int64_t>(places.size());
  if (IsRange(places)) return x.narrow(dim, places.empty() ? 0 : places[0], count);
  return x.index_select(dim, at::tensor(at::IntArrayRef(places.data(), places.size()), at::kLong));
}

// The coordinates within a range, ascending, and their places in the list.
struct Selection {
  std::vector<int64_t> places;
  std::vector<int64_t> targets;  // counted from the beginning of the range

  Selection(const std::vector<int64_t>& coordinates, bool ascending, int64_t begin, int64_t end) {
    if (ascending) {
      auto first = std::lower_bound(coordinates.begin(), coordinates.end(), begin);
      auto last = std::lower_bound(first, coordinates.end(), end);
      places.resize(static_cast<size_t>(last - first));
      std::iota(places.begin(), places.end(), first - coordinates.begin());
    } else {
      for (size_t i = 0; i < coordinates.size(); ++i) {
        if (coordinates[i] < begin || coordinates[i] >= end) continue;
        places.push_back(static_cast<int64_t>(i));
      }
      std::sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
        return coordinates[static_cast<size_t>(a)] < coordinates[static_cast<size_t>(b)];
      });
    }
    for (int64_t place : places) {
      targets.push_back(coordinates[static_cast<size_t>(place)] - begin);
    }
  }

  // Calls visit(places, first target) for each run of targets without gaps.
  template <typename Visit>
  void ForEachRun(const Visit& visit) const {
    for (size_t begin = 0, end = 0; begin < targets.size(); begin = end) {
      for (end = begin + 1; end < targets.size() && targets[end] == targets[end - 1] + 1;) ++end;
      visit(std::span(places).subspan(begin, end - begin), targets[begin]);
    }
  }
};

// Copies the selected elements along dimension `dim` and those after it.
void CopyRuns(const std::vector<Selection>& selections, size_t dim, const at::Tensor& from,
              const at::Tensor& to, const HfMapping::ReadAhead& read_ahead) {
  if (dim == selections.size()) {
    if (from.is_contiguous()) read_ahead(from);
    at::Tensor target = to;
    target.copy_(from);
    return;
  }
  auto along = static_cast<int64_t>(dim);
  selections[dim].ForEachRun([&](std::span<const int64_t> places, int64_t target) {
    CopyRuns(selections, dim + 1, Select(from, along, places),
             to.narrow(along, target, std::ssize(places)), read_ahead);
  });
}

}  // namespace

TensorBox BoundsInOurs(const HfTensor& entry, const std::vector<int64_t>& whole) {
  at::Tensor ours = at::empty(whole, at::device(at::kMeta));
  at::Tensor view = entry.view ? entry.view(ours) : ours;
  TensorBox box = TensorBox::All(whole);
  for (size_t d = 0; d < whole.size(); ++d) {
    int64_t stride = ours.stride(static_cast<int64_t>(d));
    box.offset[d] = view.storage_offset() / stride % whole[d];
    box.sizes[d] = 1;
    for (int64_t i = 0; i < view.dim(); ++i) {
      int64_t count = view.size(i), step = view.stride(i);
      if (!WalksAlong(count, step, d, whole[d], stride)) continue;
      box.sizes[d] += (count - 1) * (step / stride);
    }
  }
  return box;
}

// The entry's view of a tensor without data tells by its strides which of our dimensions each of the
// view's dimensions walks along.
HfMapping::HfMapping(const HfTensor& entry, const std::vector<int64_t>& whole)
    : sizes_(entry.sizes), bounds_(BoundsInOurs(entry, whole)) {
  at::Tensor ours = at::empty(whole, at::device(at::kMeta));
  at::Tensor view = entry.view ? entry.view(ours) : ours;
  view_sizes_ = view.sizes().vec();
  for (size_t d = 0; d < whole.size(); ++d) {
    int64_t stride = ours.stride(static_cast<int64_t>(d));
    std::vector<int64_t> coordinates = {bounds_.offset[d]};
    for (int64_t i = 0; i < view.dim(); ++i) {
      int64_t count = view.size(i), step = view.stride(i);
      if (!WalksAlong(count, step, d, whole[d], stride)) continue;
      grouped_.push_back(i);
      std::vector<int64_t> further;
      for (int64_t at : coordinates) {
        for (int64_t j = 0; j < count; ++j) further.push_back(at + j * (step / stride));
      }
      coordinates = std::move(further);
    }
    coordinates_.push_back(std::move(coordinates));
  }
  GT_CHECK(grouped_.size() == view_sizes_.size(), "'{}' is no plain view of '{}'", entry.name,
           entry.target);
  if (!entry.rows.empty()) {
    std::vector<int64_t> ordered;
    for (int64_t row : entry.rows) ordered.push_back(coordinates_[0][static_cast<size_t>(row)]);
    coordinates_[0] = std::move(ordered);
  }
  for (const auto& coordinates : coordinates_) {
    ascending_.push_back(std::is_sorted(coordinates.begin(), coordinates.end()));
  }
}

at::Tensor HfMapping::Arrange(const at::Tensor& stored) const {
  std::vector<int64_t> shape;
  for (const auto& coordinates : coordinates_) {
    shape.push_back(static_cast<int64_t>(coordinates.size()));
  }
  return stored.view(view_sizes_).permute(grouped_).reshape(shape);
}

void HfMapping::Fill(const at::Tensor& arranged, const at::Tensor& part, const TensorBox& box,
                     const ReadAhead& read_ahead) const {
  std::vector<Selection> selections;
  for (size_t d = 0; d < coordinates_.size(); ++d) {
    selections.emplace_back(coordinates_[d], ascending_[d], box.offset[d],
                            box.offset[d] + box.sizes[d]);
  }
  CopyRuns(selections, 0, arranged, part, read_ahead);
}

at::Tensor HfMapping::Extract(const at::Tensor& region, at::ScalarType dtype) const {
  at::Tensor values = region;
  for (size_t d = 0; d < coordinates_.size(); ++d) {
    std::vector<int64_t> places;
    for (int64_t coordinate : coordinates_[d]) places.push_back(coordinate - bounds_.offset[d]);
    values = Select(values, static_cast<int64_t>(d), places);
  }
  std::vector<int64_t> grouped_sizes, back(grouped_.size());
  for (size_t i = 0; i < grouped_.size(); ++i) {
    grouped_sizes.push_back(view_sizes_[static_cast<size_t>(grouped_[i])]);
    back[static_cast<size_t>(grouped_[i])] = static_cast<int64_t>(i);
  }
  at::Tensor view = values.to(at::kCPU, dtype).reshape(grouped_sizes).permute(back);
  return view.contiguous().view(sizes_);
}

}  // namespace gt
