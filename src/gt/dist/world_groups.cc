#include "gt/dist/world_groups.h"

#include "gt/base/error.h"

namespace gt {
namespace {

const Group& Known(const World& world, std::string_view name) {
  const Group* group = world.Find(std::string(name));
  if (group == nullptr) {
    Fail(ErrorCode::kNoBackend, "the graph names a process group '{}' that this job does not have",
         name);
  }
  return *group;
}

}  // namespace

ProcessGroups::Info WorldGroups::Find(std::string_view name) {
  const Group& group = Known(world_, name);
  return {reinterpret_cast<int64_t>(&group), group.ranks};
}

std::string WorldGroups::Separate(std::string_view source, Purpose purpose) {
  std::string name = std::string(source) + std::string(SuffixOf(purpose));
  if (world_.Find(name) != nullptr) return name;
  Group group = Known(world_, source);
  group.name = name;
  group.description = fmt::format("{} of group {}", name.substr(source.size() + 1), source);
  const bool urgent = purpose != Purpose::kGathers;
  group.priority = urgent ? GroupPriority::kHigh : GroupPriority::kNormal;
  world_.MakeGroup(std::move(group));
  return name;
}

const Group* FindSource(const World& world, std::string_view name) {
  while (true) {
    if (const Group* group = world.Find(std::string(name))) return group;
    const size_t dot = name.rfind('.');
    if (dot == name.npos) return nullptr;
    name = name.substr(0, dot);
  }
}

ProcessGroups::Info HypotheticalGroups::Find(std::string_view name) {
  if (const Group* group = world_.Find(std::string(name))) {
    return {reinterpret_cast<int64_t>(group), group->ranks};
  }
  Info info = identities_.Find(name);  // small numbers are nobody's address
  if (const Group* source = FindSource(world_, name)) info.ranks = source->ranks;
  return info;
}

std::string HypotheticalGroups::Separate(std::string_view source, Purpose purpose) {
  return identities_.Separate(source, purpose);
}

}  // namespace gt
