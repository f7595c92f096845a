// The process groups of a rank's world, for passes.
#pragma once

#include "gt/dist/world.h"
#include "gt/passes/process_groups.h"

namespace gt {

class WorldGroups : public ProcessGroups {
 public:
  explicit WorldGroups(World& world) : world_(world) {}

  Info Find(std::string_view name) override;
  // Every rank must ask for the same groups in the same order, as ranks that run the same passes on
  // their graphs do.
  std::string Apart(std::string_view source, Purpose purpose) override;

 private:
  World& world_;
};

}  // namespace gt
