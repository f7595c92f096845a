#include "gt/passes/fsdp/block_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace gt::fsdp {

BlockBuckets::BlockBuckets(Graph& graph) : graph_(graph), roles_(graph) {
  graph.NumberNodes();
  for (const Node* node : graph.nodes()) {
    if (node->meta().phase == Phase::kBackward) continue;
    const Place& place = PlaceOf(node->meta().module);
    ends_[place.unit] = node->number();
    if (place.is_block) end_of_blocks_ = node->number();
  }
}

const BlockBuckets::Place& BlockBuckets::PlaceOf(Name module) {
  auto [found, is_new] = places_.try_emplace(module);
  if (is_new) {
    const Roles::Place& place = roles_.Of(module);
    const bool is_block = place.block >= 0;
    const std::string& name = module.str();
    found->second = {.unit = is_block ? place.block_module : Name(name.substr(0, name.find('.'))),
                     .experts = place.experts,
                     .is_block = is_block};
  }
  return found->second;
}

// A parameter of the model itself is known by its own name.
const BlockBuckets::Place& BlockBuckets::PlaceOf(const Member& member) {
  Name module = member.collective->meta().module;
  if (module.empty()) module = Name(graph_.inputs()[Index(member.parameter)]->name);
  return PlaceOf(module);
}

bool BlockBuckets::IsHead(const Place& place) const {
  if (place.is_block || end_of_blocks_ < 0) return false;
  auto end = ends_.find(place.unit);
  return end != ends_.end() && end->second > end_of_blocks_;
}

void BlockBuckets::Choose(std::span<Candidate> candidates) {
  for (Candidate& candidate : candidates) {
    const Place& place = PlaceOf(*candidate.member);
    candidate.key.unit = IsHead(place) ? Name() : place.unit;
    candidate.key.experts = place.experts;
  }
}

// By what they hold; the head's by all its modules, whichever of them a bucket has. Where a block
// needs several (groups, dtypes, chunks), the later ones are numbered in the order of their first
// parameters: the same parameters then have the same name in both directions.
void BlockBuckets::NameBuckets(std::vector<Bucket>& buckets) {
  const Name head(HeadName(buckets));
  std::vector<Bucket*> ordered;
  ordered.reserve(buckets.size());
  for (Bucket& bucket : buckets) ordered.push_back(&bucket);
  std::stable_sort(ordered.begin(), ordered.end(), [](const Bucket* a, const Bucket* b) {
    return a->members[0].parameter < b->members[0].parameter;
  });
  std::map<std::pair<const Operator*, bool>, std::unordered_map<Name, int>> taken;
  for (Bucket* bucket : ordered) {
    const Key& key = bucket->key;
    Name name = key.unit.empty() ? head : key.unit;
    if (!key.experts.empty()) name = key.experts;
    const int count = ++taken[{key.op, key.backward}][name];
    bucket->name = count == 1 ? name : Name(fmt::format("{}.bucket{}", name.str(), count));
  }
}

std::string BlockBuckets::HeadName(const std::vector<Bucket>& buckets) {
  std::vector<std::pair<int32_t, Name>> parts;
  for (const Bucket& bucket : buckets) {
    if (!bucket.key.unit.empty()) continue;
    for (const Member& member : bucket.members) {
      parts.emplace_back(member.parameter, PlaceOf(member).unit);
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string name;
  std::unordered_set<Name> seen;
  for (const auto& [parameter, unit] : parts) {
    if (!seen.insert(unit).second) continue;
    name += (name.empty() ? "" : "+") + unit.str();
  }
  return name;
}

}  // namespace gt::fsdp
