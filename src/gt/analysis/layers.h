// Which transformer layer a node belongs to, read from its module's name.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "gt/ir/graph.h"

namespace gt {

// The number behind "layers." in a module's name, or -1.
inline int32_t LayerOf(std::string_view module) {
  constexpr std::string_view kLayers = "layers.";
  for (size_t at = 0; (at = module.find(kLayers, at)) != std::string_view::npos; ++at) {
    if (at > 0 && module[at - 1] != '.') continue;
    std::string_view rest = module.substr(at + kLayers.size());
    int32_t layer = -1;
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    bool whole = end == rest.data() + rest.size() || *end == '.';
    if (error == std::errc() && whole && layer >= 0) return layer;
  }
  return -1;
}

// Layers of nodes, each module's name read once.
class Layers {
 public:
  int32_t Of(const Node& node) {
    auto [found, is_new] = known_.try_emplace(node.meta().module, -1);
    if (is_new) found->second = LayerOf(found->first.str());
    return found->second;
  }

 private:
  std::unordered_map<Name, int32_t> known_;
};

}  // namespace gt
