// Which nodes of a graph its picture shows, and what they need of each other.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/report/graph_picture.h"

namespace gt::boxes {

// Where a module is in relation to the pattern.
struct Place {
  Name root;  // the module that the pattern fits
  Name part;  // the component of the module's name below it; empty: the root itself
  bool inside = false;
};

class Region {
 public:
  struct Need {
    size_t node;
    const Value* value;  // null: a size that the node reads from a tensor
  };

  // Fails if the pattern is wrong or no node fits it. The options must outlive the region.
  Region(const Graph& graph, const PictureOptions& options);

  size_t size() const { return nodes_.size(); }
  const Node& node(size_t i) const { return *nodes_[i]; }
  const Place& place(size_t i) const { return *places_[i]; }
  const std::vector<Need>& needs(size_t i) const { return needs_[i]; }
  bool Contains(const Node& node) const { return position_.contains(&node); }
  std::optional<size_t> PositionOf(const Node* node) const {
    auto found = position_.find(node);
    return found == position_.end() ? std::nullopt : std::optional(found->second);
  }
  // The one module that the pattern fits; empty when there are several.
  const std::string& root() const { return several_roots_ ? Name().str() : root_.str(); }
  // The buffer that a node computes the new value of, or null.
  const std::string* BufferOf(const Node& node) const {
    auto found = buffers_.find(&node);
    return found == buffers_.end() ? nullptr : found->second;
  }

 private:
  const Place* PlaceOf(const Node& node);
  const Place& PlaceOf(Name module);
  void Add(const Node& node, const Place& place);
  void FindNeeds(size_t i);
  void FindBufferUpdates(const Graph& graph);
  [[noreturn]] void FailEmpty(const Graph& graph) const;

  const PictureOptions& options_;
  std::vector<const Node*> nodes_;  // in the order of the graph
  std::vector<const Place*> places_;
  std::vector<std::vector<Need>> needs_;
  std::unordered_map<const Node*, size_t> position_;
  std::unordered_map<SymbolId, size_t> binder_;
  std::unordered_map<Name, Place> places_by_module_;  // places do not move when it grows
  std::unordered_map<const Node*, const std::string*> buffers_;
  Name root_;
  bool several_roots_ = false;
};

}  // namespace gt::boxes
