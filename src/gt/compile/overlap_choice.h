// Which chunks a job with --compile.ep_overlap.enabled auto gets: which modules are cut, along which
// dimension, into how many chunks, or none. Every choice is captured, compiled and predicted, in a
// model of a few layers where the whole one is deep: layers repeat, so that what is fastest for some
// is fastest for all.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "gt/config/config.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/models/model.h"

namespace gt {

struct OverlapChoice {
  Config::Compile::EpOverlap overlap;  // as configured, but `enabled` is true or false
  // For people: what was chosen and what the runners-up would take.
  std::vector<std::string> reasons;
};

// Options that differ from their defaults are taken as wishes and kept. The first rank decides for
// all; `world` may be null.
OverlapChoice ChooseOverlap(const LanguageModel& model, const Config& config, const Mesh& mesh,
                            World* world, c10::Device device);

}  // namespace gt
