#include "gt/base/fold_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gt/base/text.h"

namespace gt {
namespace {

// The number that a component of a name is: "26", but neither "026" nor "w2".
std::optional<int64_t> NumberOf(std::string_view component) {
  constexpr size_t kMostDigits = 9;
  if (component.empty() || component.size() > kMostDigits) return std::nullopt;
  if (component[0] == '0' && component.size() > 1) return std::nullopt;
  int64_t number = 0;
  for (char digit : component) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + (digit - '0');
  }
  return number;
}

// "{0,2-4}"
std::string RangesText(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text = "{";
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (i > 0) text += ",";
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text + "}";
}

// A name taken apart at its dots, while it is folded with others.
struct Group {
  std::vector<std::string> components;
  std::vector<size_t> members;
};

// Folds groups that differ in the number at one position, and in nothing else.
std::vector<Group> FoldAt(std::vector<Group> groups, size_t position,
                          std::span<const std::string> keys) {
  std::vector<Group> folded;
  std::vector<std::vector<int64_t>> numbers;  // of each folded group; empty: no number there
  std::unordered_map<std::string, size_t> places;
  for (Group& group : groups) {
    std::optional<int64_t> number;
    if (position < group.components.size()) number = NumberOf(group.components[position]);
    if (!number) {
      folded.push_back(std::move(group));
      numbers.emplace_back();
      continue;
    }
    group.components[position] = "#";
    std::string key = fmt::format("{}\n{}\n{}", Join(group.components, "."),
                                  keys[group.members.front()], group.members.size());
    const auto [place, fresh] = places.try_emplace(std::move(key), folded.size());
    if (fresh) {
      folded.push_back(std::move(group));
      numbers.push_back({*number});
    } else {
      std::vector<size_t>& members = folded[place->second].members;
      members.insert(members.end(), group.members.begin(), group.members.end());
      numbers[place->second].push_back(*number);
    }
  }
  for (size_t i = 0; i < folded.size(); ++i) {
    if (numbers[i].empty()) continue;
    folded[i].components[position] =
        numbers[i].size() == 1 ? std::to_string(numbers[i][0]) : RangesText(std::move(numbers[i]));
  }
  return folded;
}

}  // namespace

std::vector<FoldedName> FoldNames(std::span<const std::string> names,
                                  std::span<const std::string> keys) {
  std::vector<Group> groups;
  groups.reserve(names.size());
  size_t depth = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    groups.push_back({Split(names[i], '.'), {i}});
    depth = std::max(depth, groups.back().components.size());
  }
  // Real names have a few components. A deeper one is kept as it is from there on.
  constexpr size_t kDeepest = 32;
  for (size_t position = 0; position < std::min(depth, kDeepest); ++position) {
    groups = FoldAt(std::move(groups), position, keys);
  }
  std::vector<FoldedName> folded;
  folded.reserve(groups.size());
  for (Group& group : groups) {
    folded.push_back({Join(group.components, "."), std::move(group.members)});
  }
  return folded;
}

}  // namespace gt
