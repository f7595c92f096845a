// Which nodes of a step are cut into chunks, and which values may leave them how.
//
// A root is a module that the pattern names and in which tokens are exchanged. The nodes of a root
// that the chunked symbol influences are its body: one region forward, one backward. Influence is
// decided by symbols alone: the chunked one, and those that influenced nodes bind (token counts). A
// node is influenced if its sizes mention such a symbol, or if it uses a value that does or one of a
// node that is influenced; parameters do not, so what prepares them (casts, gathers) belongs to no
// body. Random operators of a root are in its body too: each chunk draws its own numbers.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/passes/chunk/chunk.h"

namespace gt {

class ChunkRegions {
 public:
  static constexpr int32_t kNone = -1;

  // Numbers the nodes of the graph; nodes inserted later belong to no region.
  ChunkRegions(Graph& graph, const ChunkOptions& options, SymbolId symbol);

  int32_t root_count() const { return static_cast<int32_t>(roots_.size()); }
  int32_t region_count() const { return 2 * root_count(); }
  static int32_t RootOf(int32_t region) { return region / 2; }
  static bool IsBackward(int32_t region) { return region % 2 == 1; }
  Name name(int32_t root) const { return roots_[static_cast<size_t>(root)].name; }
  int64_t size(int32_t region) const { return sizes_[static_cast<size_t>(region)]; }

  // The region whose body the node is in.
  int32_t Of(const Node& node) const {
    return node.number() < 0 ? kNone : regions_[static_cast<size_t>(node.number())];
  }
  int32_t Of(const Value& value) const { return value.is_input() ? kNone : Of(*value.producer()); }

  // Made of nothing but sizes (an arange, zeros), by a module that the pattern names: a chunk makes
  // its own from its own sizes. One that another module made is data, and is cut.
  bool IsMadeOfSizes(const Value& value) const {
    return !value.is_input() && value.producer()->number() >= 0 &&
           made_of_sizes_[static_cast<size_t>(value.producer()->number())];
  }

  // Taken out of a body although the symbol influences it: what it computes is the whole.
  bool IsOfAllChunks(const Node& node) const { return node.number() >= 0 && left_.contains(&node); }

  // Nodes between a body and a parameter's gradient that do the same to a sum as to its parts.
  bool LeadsToGradient(const Node& node) const { return leads_to_gradient_.contains(&node); }

  // What has to be added up to the gradient that a body computes, in the order in which autograd
  // adds: the value itself, or, where a parameter is used several times, one value for each use.
  std::vector<Value*> Addends(Value* gradient) const;
  // A sum of such addends, whose place the sum over all chunks takes.
  bool IsReplacedSum(const Node& node) const { return replaced_sums_.contains(&node); }

  // The value that the step leaves in a buffer, when a body computes it; null otherwise.
  Value* UpdateOf(const Value& buffer) const {
    auto found = updates_.find(&buffer);
    return found == updates_.end() ? nullptr : found->second;
  }
  bool IsUpdate(const Value& value) const { return updated_.contains(&value); }

 private:
  struct Root {
    Name name;
    bool exchanges = false;
  };

  void FindRoots(const Graph& graph, const ChunkOptions& options);
  int32_t Matching(Name module, const std::string& pattern);
  void FindBodies(const Graph& graph);
  bool IsInfluenced(const Node& node) const;
  bool MentionsCut(const Dim& dim) const;
  bool MentionsCut(const Shape& shape) const;
  void CheckBody(const Node& node, int32_t root) const;
  void FindReplacedSums(const Graph& graph);
  void CutOffSuffixes(const Graph& graph);
  bool EndsWithCollective(const Value* value, std::vector<const Node*>& suffix) const;
  void FollowGradients(const Graph& graph);
  void FindUpdates(const Graph& graph);
  void Leave(const Node& node);

  SymbolId symbol_;
  ChunkDim dim_;
  std::vector<bool> cut_symbols_;  // by symbol: the chunked one, and those bound in bodies
  std::vector<Root> roots_;
  std::unordered_map<Name, int32_t> matching_;  // module -> root, among all that the pattern names
  std::vector<int32_t> regions_;                // by number
  std::vector<int64_t> sizes_;                  // by region
  std::vector<bool> made_of_sizes_;             // by number
  std::unordered_set<const Node*> left_;
  std::unordered_set<const Node*> leads_to_gradient_;
  std::unordered_set<const Node*> replaced_sums_;
  std::unordered_map<const Value*, Value*> updates_;  // buffer -> its new value
  std::unordered_set<const Value*> updated_;
};

}  // namespace gt
