// What changed between two graphs: operator counts, nodes added, removed and changed, by module.
// For people reading pass dumps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

struct GraphDiff {
  struct Count {
    int64_t before = 0;
    int64_t after = 0;
    friend bool operator==(const Count&, const Count&) = default;
  };
  struct Change {
    std::string before;
    std::string after;
  };
  std::map<std::string, Count> by_operator;  // operators whose count changed
  std::map<std::string, Count>
      by_module;  // modules in which nodes were added or removed: removed, added
  // Printed as in the text form, in graph order; nodes of nested graphs included.
  // Inputs, outputs, symbols, facts and guards that were added or removed are first, with a word
  // that says what they are.
  std::vector<std::string> added;
  std::vector<std::string> removed;
  std::vector<Change> changed;  // same name, but another operator, arguments, types or metadata
  int64_t moved = 0;  // how few of the nodes in both graphs can be moved to get the new order

  bool empty() const {
    return by_operator.empty() && added.empty() && removed.empty() && changed.empty() && moved == 0;
  }
};

// Nodes are matched by the name of their first result, which passes never change; nodes without
// results by the symbols they bind, or else by their text.
GraphDiff Diff(const Graph& before, const Graph& after);
// "no difference", or a summary followed by the lines prefixed with -, + and ~.
std::string Print(const GraphDiff& diff);

}  // namespace gt
