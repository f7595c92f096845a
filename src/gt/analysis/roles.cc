#include "gt/analysis/roles.h"

#include <algorithm>
#include <vector>

#include "gt/base/text.h"

namespace gt {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

Roles::Roles(const ModuleTable& modules) : modules_(modules) {
  for (Name block : modules.With(ModuleRole::kBlock)) {
    blocks_.emplace(block, static_cast<int32_t>(blocks_.size()));
  }
}

const Roles::Place& Roles::Of(Name module) {
  auto [found, is_new] = known_.try_emplace(module);
  if (is_new) found->second = Find(module.str());
  return found->second;
}

Roles::Place Roles::Find(std::string_view module) const {
  Place place;
  size_t end = 0;
  for (bool whole = false; !whole; ++end) {
    end = std::min(module.find('.', end), module.size());
    whole = end == module.size();
    const std::string_view prefix = module.substr(0, end);
    const std::optional<ModuleRole> role = modules_.RoleOf(prefix);
    if (!role) continue;
    place.role = role;
    if (role == ModuleRole::kBlock && place.block < 0) {
      place.block_module = Name(prefix);
      place.block = blocks_.at(place.block_module);
    }
    if (role == ModuleRole::kExperts && place.experts.empty()) place.experts = Name(prefix);
  }
  return place;
}

std::string PatternOf(std::span<const Name> modules) {
  if (modules.empty()) return "";
  std::vector<std::string> pattern = Split(modules.front().str(), '.');
  for (Name module : modules) {
    const std::vector<std::string> components = Split(module.str(), '.');
    if (components.size() != pattern.size()) return "";
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (components[i] != pattern[i] || IsNumber(components[i])) pattern[i] = "*";
    }
  }
  return Join(pattern, ".");
}

}  // namespace gt
