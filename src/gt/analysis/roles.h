// Where modules are in the model, by the roles that they declare (ir/modules.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gt/ir/graph.h"

namespace gt {

// Answers for the modules of one table, each module's name read once. The table must outlive it.
class Roles {
 public:
  explicit Roles(const ModuleTable& modules);
  explicit Roles(const Graph& graph) : Roles(graph.modules()) {}

  struct Place {
    int32_t block =
        -1;  // place of the outermost block around it in the model; -1: outside of blocks
    Name block_module;  // that block
    Name experts;       // the outermost experts around it; empty: their parameters are not its own
    std::optional<ModuleRole> role;  // of the innermost module around it, or itself, that has one
  };
  // Of a module, or of a parameter by its full name.
  const Place& Of(Name module);
  int32_t BlockOf(const Node& node) { return Of(node.meta().module).block; }

 private:
  Place Find(std::string_view module) const;

  const ModuleTable& modules_;
  std::unordered_map<Name, int32_t> blocks_;  // their places
  std::unordered_map<Name, Place> known_;
};

// The pattern (base/fqn_pattern.h) that names all these modules: layers.*.moe of layers.0.moe and
// layers.1.moe. Numbers, and what differs from module to module, become `*`. Empty if there are no
// modules or their names have different depths.
std::string PatternOf(std::span<const Name> modules);

}  // namespace gt
