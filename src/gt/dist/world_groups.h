// The process groups of a rank's world, for passes.
#pragma once

#include "gt/dist/world.h"
#include "gt/passes/framework/process_groups.h"

namespace gt {

class WorldGroups : public ProcessGroups {
 public:
  explicit WorldGroups(World& world) : world_(world) {}

  Info Find(std::string_view name) override;
  // Every rank must ask for the same groups in the same order, as ranks that run the same passes on
  // their graphs do.
  std::string Separate(std::string_view source, Purpose purpose) override;

 private:
  World& world_;
};

// The same for a step that one rank alone looks at: groups of their own have a name, and nothing is
// made for them.
class HypotheticalGroups : public ProcessGroups {
 public:
  explicit HypotheticalGroups(World& world) : world_(world) {}

  Info Find(std::string_view name) override;
  std::string Separate(std::string_view source, Purpose purpose) override;

 private:
  World& world_;
  NamedGroups identities_;
};

// The group of that name, or the one that a name made by ProcessGroups::Separate was made from; null when
// there is neither.
const Group* FindSource(const World& world, std::string_view name);

}  // namespace gt
