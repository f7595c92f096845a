#include "gt/placement/joined_axes.h"

#include <algorithm>
#include <utility>

namespace gt::placement {
namespace {

Layout Finer(const Layout& joined, int split, const DeviceMesh& mesh) {
  Layout layout;
  for (int axis = 0; axis < mesh.axes(); ++axis) layout[axis] = joined[axis < split ? 0 : 1];
  return layout;
}

std::vector<Layout> Finer(const std::vector<Layout>& joined, int split, const DeviceMesh& mesh) {
  std::vector<Layout> layouts;
  for (const Layout& layout : joined) layouts.push_back(Finer(layout, split, mesh));
  return layouts;
}

}  // namespace

DeviceMesh JoinAxes(const DeviceMesh& mesh, int split) {
  std::vector<int64_t> sizes = {1, 1};
  for (int axis = 0; axis < mesh.axes(); ++axis) sizes[axis < split ? 0 : 1] *= mesh.size(axis);
  return DeviceMesh(std::move(sizes));
}

std::vector<int32_t> LabelsOnFinerMesh(const PlaceProblem& joined,
                                       const std::vector<int32_t>& labels, int split,
                                       const PlaceProblem& finer) {
  const DeviceMesh& mesh = finer.pricing().mesh();
  std::vector<int32_t> found;
  for (size_t v = 0; v < labels.size(); ++v) {
    const PlacedVariable& coarse = joined.variables()[v];
    const PlacedVariable& fine = finer.variables()[v];
    const auto label = static_cast<size_t>(labels[v]);
    ptrdiff_t at = 0, count = 0;
    if (coarse.result >= 0) {
      const Layout layout = Finer(coarse.layouts[label], split, mesh);
      at = std::ranges::find(fine.layouts, layout) - fine.layouts.begin();
      count = std::ssize(fine.layouts);
    } else {
      const auto of = static_cast<size_t>(coarse.class_index);
      const Strategy& strategy = joined.strategies()[of][label];
      const std::vector<Layout> operands = Finer(strategy.operands, split, mesh);
      const std::vector<Layout> results = Finer(strategy.results, split, mesh);
      const std::vector<Strategy>& ways = finer.strategies()[of];
      at = std::ranges::find_if(ways,
                                [&](const Strategy& way) {
                                  return way.operands == operands && way.results == results;
                                }) -
           ways.begin();
      count = std::ssize(ways);
    }
    if (at == count) return {};
    found.push_back(static_cast<int32_t>(at));
  }
  return found;
}

}  // namespace gt::placement
