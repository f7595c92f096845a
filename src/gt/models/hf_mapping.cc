#include "gt/models/hf_mapping.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "gt/base/error.h"

namespace gt {
namespace {

// Places in a list of coordinates, and where they are within a range.
struct Selection {
  std::vector<int64_t> places, targets;

  Selection(const std::vector<int64_t>& coordinates, int64_t begin, int64_t end) {
    for (size_t i = 0; i < coordinates.size(); ++i) {
      if (coordinates[i] < begin || coordinates[i] >= end) continue;
      places.push_back(static_cast<int64_t>(i));
      targets.push_back(coordinates[i] - begin);
    }
  }
  static bool IsRange(const std::vector<int64_t>& numbers) {
    for (size_t i = 1; i < numbers.size(); ++i) {
      if (numbers[i] != numbers[i - 1] + 1) return false;
    }
    return true;
  }
};

at::Tensor Select(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& places) {
  auto count = static_cast<int64_t>(places.size());
  if (Selection::IsRange(places)) return x.narrow(dim, places.empty() ? 0 : places[0], count);
  return x.index_select(dim, at::tensor(places, at::kLong));
}

}  // namespace

// The entry's view of a tensor without data tells by its strides which of our dimensions each of the
// view's dimensions walks along.
HfMapping::HfMapping(const HfTensor& entry, const std::vector<int64_t>& whole)
    : sizes_(entry.sizes), whole_(whole) {
  at::Tensor ours = at::empty(whole, at::device(at::kMeta));
  at::Tensor view = entry.view ? entry.view(ours) : ours;
  view_sizes_ = view.sizes().vec();
  for (size_t d = 0; d < whole.size(); ++d) {
    int64_t stride = ours.stride(static_cast<int64_t>(d));
    std::vector<int64_t> coordinates = {view.storage_offset() / stride % whole[d]};
    for (int64_t i = 0; i < view.dim(); ++i) {
      int64_t count = view.size(i), step = view.stride(i);
      // A dimension of one element walks nowhere; it goes with the first of ours.
      bool along = count == 1 ? d == 0 : step >= stride && step < stride * whole[d];
      if (!along) continue;
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
}

TensorBox HfMapping::Bounds() const {
  TensorBox box = TensorBox::All(whole_);
  for (size_t d = 0; d < whole_.size(); ++d) {
    auto [low, high] = std::minmax_element(coordinates_[d].begin(), coordinates_[d].end());
    box.offset[d] = *low;
    box.sizes[d] = *high - *low + 1;
  }
  return box;
}

void HfMapping::Fill(const at::Tensor& stored, const at::Tensor& part, const TensorBox& box) const {
  std::vector<int64_t> shape;
  for (const auto& coordinates : coordinates_) {
    shape.push_back(static_cast<int64_t>(coordinates.size()));
  }
  at::Tensor values = stored.view(view_sizes_).permute(grouped_).reshape(shape);
  at::Tensor destination = part;
  std::vector<at::Tensor> scattered(whole_.size());
  bool ranges = true;
  for (size_t d = 0; d < whole_.size(); ++d) {
    Selection selection(coordinates_[d], box.offset[d], box.offset[d] + box.sizes[d]);
    if (selection.places.empty()) return;
    auto dim = static_cast<int64_t>(d);
    values = Select(values, dim, selection.places);
    ranges &= Selection::IsRange(selection.targets);
    std::vector<int64_t> along(whole_.size(), 1);
    along[d] = static_cast<int64_t>(selection.targets.size());
    scattered[d] = at::tensor(selection.targets, at::kLong).view(along).to(part.device());
    if (ranges) destination = destination.narrow(dim, selection.targets[0], along[d]);
  }
  if (ranges) {
    destination.copy_(values);
    return;
  }
  c10::List<std::optional<at::Tensor>> indices;
  for (const at::Tensor& index : scattered) indices.push_back(index);
  at::Tensor whole_part = part;
  whole_part.index_put_(indices, values.to(part.options()));
}

at::Tensor HfMapping::Extract(const at::Tensor& region, at::ScalarType dtype) const {
  TensorBox bounds = Bounds();
  at::Tensor values = region;
  for (size_t d = 0; d < whole_.size(); ++d) {
    std::vector<int64_t> places;
    for (int64_t coordinate : coordinates_[d]) places.push_back(coordinate - bounds.offset[d]);
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
