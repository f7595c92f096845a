// What a placement gives to parameters, inputs and modules, a row for all that are alike in repeated
// layers: layers.*.attention.wq. Tables and pictures are made of these rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gt/placement/place.h"

namespace gt {

// What an axis of the mesh cuts of a tensor.
struct AxisCut {
  enum class Kind { kWhole, kPartial, kBatch, kSequence, kExperts, kOther };
  Kind kind = Kind::kWhole;
  int32_t dim = 0;   // of the tensor
  int64_t size = 0;  // of what is cut
  friend bool operator==(const AxisCut&, const AxisCut&) = default;
};

struct PlacedTensor {
  std::string layout;  // "S(0)R"; empty: there is none to show
  std::vector<AxisCut> axes = {};
};

struct PlacedInput {
  std::string name;
  bool parameter = false;
  std::string type;  // "f32[4096, 1024]"
  PlacedTensor placed;
  int32_t count = 0;
  double bytes = 0;  // of a rank, all of them
};
// In the order of the graph's inputs.
std::vector<PlacedInput> PlacedInputs(const placement::PlaceProblem& problem,
                                      const placement::Placement& placement);

struct PlacedModule {
  std::string module;
  int32_t count = 0;     // modules
  PlacedTensor placed;   // the largest result in the forward
  double kernel_us = 0;  // of a rank, in the step
  double move_us = 0;
  double collectives = 0;
  double moved_bytes = 0;  // through the links, of a rank
};
// In the order in which they run first. Those of repeated layers share a row if they are laid out alike.
std::vector<PlacedModule> PlacedModules(const placement::PlaceProblem& problem,
                                        const placement::Placement& placement);

// "layers.*.attention" of "layers.0.attention".
std::string LayerPattern(const std::string& name);

}  // namespace gt
