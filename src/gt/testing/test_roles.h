// Roles for graphs that tests write in words of their own. Text in .gtir declares its roles itself.
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>

#include "gt/ir/graph.h"

namespace gt::testing {

// Declares layers.0 up to the largest number that occurs as blocks, and modules called experts as
// experts.
inline void DeclareLayers(Graph& graph) {
  int last = -1;
  std::set<std::string> experts;
  auto look = [&](const std::string& name) {
    int number = -1;
    if (std::sscanf(name.c_str(), "layers.%d", &number) == 1) last = std::max(last, number);
    const size_t at = name.find(".experts");
    if (at != std::string::npos)
      experts.insert(name.substr(0, at + std::string(".experts").size()));
  };
  for (const auto& input : graph.inputs()) look(input->name);
  for (const Node* node : graph.nodes()) look(node->meta().module.str());
  for (int i = 0; i <= last; ++i) {
    graph.modules().Declare(Name(fmt::format("layers.{}", i)), ModuleRole::kBlock);
  }
  for (const std::string& module : experts)
    graph.modules().Declare(Name(module), ModuleRole::kExperts);
}

}  // namespace gt::testing
