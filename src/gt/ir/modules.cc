#include "gt/ir/modules.h"

namespace gt {

std::string_view Spelling(ModuleRole role) {
  constexpr std::array<std::string_view, kModuleRoles> kSpellings = {
      "block",   "attention",      "feed_forward", "moe",       "router",
      "experts", "shared_experts", "norm",         "embedding", "head"};
  return kSpellings[static_cast<size_t>(role)];
}

bool ModuleTable::Declare(Name module, ModuleRole role) {
  if (!roles_.try_emplace(module.str(), role).second) return false;
  by_role_[static_cast<size_t>(role)].push_back(module);
  return true;
}

std::optional<ModuleRole> ModuleTable::RoleOf(std::string_view module) const {
  auto found = roles_.find(module);
  if (found == roles_.end()) return std::nullopt;
  return found->second;
}

}  // namespace gt
