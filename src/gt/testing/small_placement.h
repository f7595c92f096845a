// A small step to place in tests: repeated feed-forward layers, with their gradients.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "gt/ir/text.h"
#include "gt/placement/place.h"
#include "gt/sim/cluster.h"

namespace gt::testing {

// `layers` times y = x w, on x of [batch, width], in modules `prefix`0, `prefix`1, ...
inline std::string SmallStep(int layers, int64_t batch, int64_t width,
                             const std::string& prefix = "layers.") {
  std::string text = "graph @small(";
  for (int i = 0; i < layers; ++i) {
    text += fmt::format("%w{0}: param \"{1}{0}.weight\" f32[{2}, {2}], ", i, prefix, width);
  }
  text += fmt::format("%x0: input \"x\" f32[{0}, {1}], %d{2}: input \"dy\" f32[{0}, {1}]) {{\n",
                      batch, width, layers);
  for (int i = 0; i < layers; ++i) {
    text +=
        fmt::format("  %x{3} = aten::mm(%x{0}, %w{0}) : f32[{1}, {2}] {{module = \"{4}{0}\"}}\n", i,
                    batch, width, i + 1, prefix);
  }
  for (int i = layers - 1; i >= 0; --i) {
    const std::string meta = fmt::format("{{module = \"{}{}\", phase = backward}}", prefix, i);
    text += fmt::format("  %xt{0} = aten::t(%x{0}) : f32[{2}, {1}]{{1, {2}}} {3}\n", i, batch,
                        width, meta);
    text += fmt::format("  %g{0} = aten::mm(%xt{0}, %d{1}) : f32[{2}, {2}] {3}\n", i, i + 1, width,
                        meta);
    text +=
        fmt::format("  %wt{0} = aten::t(%w{0}) : f32[{1}, {1}]{{1, {1}}} {2}\n", i, width, meta);
    text += fmt::format("  %d{0} = aten::mm(%d{1}, %wt{0}) : f32[{2}, {3}] {4}\n", i, i + 1, batch,
                        width, meta);
  }
  text += fmt::format("  return result \"y\" %x{}, result \"dx\" %d0", layers);
  for (int i = 0; i < layers; ++i)
    text += fmt::format(", gradient \"{1}{0}.weight\" %g{0}", i, prefix);
  return text + "\n}\n";
}

// A step on a mesh of H100, with its placement.
class SmallPlacement {
 public:
  SmallPlacement(const std::string& text, const std::string& mesh,
                 placement::ProblemOptions options = {},
                 const placement::SearchOptions& search = {})
      : graph_(Parse(text, "small.gtir")),
        links_(ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml")),
        pricing_(placement::DeviceMesh::Parse(mesh), links_, SpeedOf("hopper")),
        problem_(*graph_, pricing_, std::move(options)),
        placement_(Search(problem_, search)) {}

  Graph& graph() { return *graph_; }
  const placement::PlaceProblem& problem() const { return problem_; }
  const placement::Placement& placement() const { return placement_; }

 private:
  std::unique_ptr<Graph> graph_;
  LinkModel links_;
  placement::Pricing pricing_;
  placement::PlaceProblem problem_;
  placement::Placement placement_;
};

}  // namespace gt::testing
