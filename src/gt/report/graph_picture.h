// A part of a graph as a picture: the nodes of some modules, gathered into boxes that a reader can
// take in (a router, an exchange of tokens, the experts), with what they read from the rest of the
// step and what they hand back. Chunks are side by side in columns and time runs downwards, so
// that a region before and after chunking can be compared at a glance.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gt/base/text.h"
#include "gt/ir/graph.h"

namespace gt {

enum class PicturePhase : uint8_t { kForward, kBackward, kAll };
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<PicturePhase> = {"forward", "backward",
                                                                             "all"};

// Which nodes may share a box: those of one part of the module, those of one role in the exchange
// of tokens whatever their part, or none.
enum class PictureGroups : uint8_t { kModule, kRole, kNone };
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<PictureGroups> = {"module", "role",
                                                                              "none"};

struct PictureOptions {
  std::string
      module_fqn;  // a pattern (base/fqn_pattern.h); submodules belong to the modules it fits
  PicturePhase phase = PicturePhase::kForward;  // the loss counts as forward
  PictureGroups groups = PictureGroups::kModule;
  std::string title;        // empty: the graph's name and the pattern
  size_t most_boxes = 400;  // more could not be read
};

// The picture as SVG, the same text for the same graph. It needs nothing from elsewhere: no fonts,
// no scripts, a background of its own. Pointing at a box lists its nodes, at an edge its values.
// Fails when the pattern fits nothing, or more than can be drawn.
std::string GraphPicture(const Graph& graph, const PictureOptions& options);

}  // namespace gt
