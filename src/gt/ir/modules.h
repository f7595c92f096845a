// What the modules of a model are for. A module declares its role (nn/module.h), capturing a step
// copies the roles into the graph, and the text form keeps them. Passes ask for roles and never look
// at how a model names its modules.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/base/name.h"

namespace gt {

enum class ModuleRole : uint8_t {
  kBlock,  // one of the equal parts that run one after the other: a transformer layer
  kAttention,
  kFeedForward,
  kMoe,            // a mixture of experts as a whole
  kRouter,         // chooses the experts of each token
  kExperts,        // parameters that differ from rank to rank under expert parallelism
  kSharedExperts,  // the expert that every token visits
  kNorm,
  kEmbedding,
  kHead,
};
inline constexpr ModuleRole kLastModuleRole = ModuleRole::kHead;
inline constexpr size_t kModuleRoles = static_cast<size_t>(kLastModuleRole) + 1;

std::string_view Spelling(ModuleRole role);

// The roles of a graph's modules, by FQN. What is inside of a module is found by asking for the
// prefixes of its name (analysis/roles.h).
class ModuleTable {
 public:
  // False, and nothing changes, if the module has a role already.
  bool Declare(Name module, ModuleRole role);
  std::optional<ModuleRole> RoleOf(std::string_view module) const;
  // In the order of their declaration. Blocks are declared in the order in which they run.
  std::span<const Name> With(ModuleRole role) const { return by_role_[static_cast<size_t>(role)]; }
  bool empty() const { return roles_.empty(); }

 private:
  std::array<std::vector<Name>, kModuleRoles> by_role_;
  std::unordered_map<std::string_view, ModuleRole> roles_;  // keys are interned, so they stay
};

}  // namespace gt
