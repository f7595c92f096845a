// Measured times of nodes, and the files that hold them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "gt/ir/graph.h"

namespace gt {

// Times by what is run: operator, types of operands at the sizes' hints, and arguments.
class CostTable {
 public:
  // "aten::mm(bf16[4096,2048],bf16[2048,1408]{1,2048})": the same for nodes that do the same work.
  // Written as in the text form of graphs, so that a key can be read back; a graph among the
  // arguments is its hash. "" for nodes that no table has a time of: those that take none (views,
  // waits), and collectives, which are a matter of links.
  static std::string KeyOf(const Node& node, SymbolValues symbols);

  const double* Find(const std::string& key) const;
  void Set(const std::string& key, double microseconds) { costs_[key] = microseconds; }
  size_t size() const { return costs_.size(); }
  const std::map<std::string, double, std::less<>>& costs() const { return costs_; }

  std::string device;  // that they were measured on

  // JSON: {"device": "...", "unit": "us", "costs": {key: microseconds}}. Reading fails with BadCosts,
  // naming file and place.
  std::string ToJson() const;
  static CostTable FromJson(std::string_view text, std::string_view file);

 private:
  std::map<std::string, double, std::less<>> costs_;
};

// A graph of one node that has this key; null for keys that do not say enough (a nested graph, an
// operator of another version).
std::unique_ptr<Graph> GraphOfKey(const std::string& key);

}  // namespace gt
