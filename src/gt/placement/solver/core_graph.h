// What the reduction leaves, laid out for speed: vertices and labels numbered without gaps, tables
// that are equal stored once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gt/placement/solver/label_graph.h"

namespace gt::placement {

// Costs of pairs of labels, in one of two precisions.
struct CoreTable {
  const double* wide = nullptr;
  const float* narrow = nullptr;
  double At(size_t i) const { return wide != nullptr ? wide[i] : double{narrow[i]}; }
  const void* address() const { return wide != nullptr ? static_cast<const void*>(wide) : narrow; }
};

struct CoreLink {
  int32_t a = 0;  // a < b
  int32_t b = 0;
  CoreTable table = {};  // a row for each label of a, a column for each of b
  int32_t edge = 0;      // of the graph this was made of
  int32_t Other(int32_t v) const { return v == a ? b : a; }
};

struct CoreUsage {
  int32_t begin = 0;
  int32_t end = 0;
  std::vector<int64_t> usage;  // by label of the core
};

class CoreGraph {
 public:
  // `narrow`: costs of pairs are rounded down to numbers of half the size, so that bounds stay bounds and
  // no labelling costs less by more than kNarrowing of that. Sweeps over large tables wait for memory.
  CoreGraph(const LabelGraph& graph, bool narrow);
  static constexpr double kNarrowing = 1.2e-7;

  int32_t size() const { return static_cast<int32_t>(variable_.size()); }
  int32_t variable(int32_t v) const { return variable_[static_cast<size_t>(v)]; }
  size_t first(int32_t v) const { return first_[static_cast<size_t>(v)]; }
  size_t labels(int32_t v) const { return first(v + 1) - first(v); }
  size_t all_labels() const { return label_.size(); }
  std::span<const double> costs(int32_t v) const { return {cost_.data() + first(v), labels(v)}; }
  std::span<const double> all_costs() const { return cost_; }
  // The problem's number of a label.
  int32_t label(int32_t v, int32_t x) const { return label_[first(v) + static_cast<size_t>(x)]; }
  const std::vector<CoreLink>& links() const { return links_; }
  const CoreLink& link(int32_t l) const { return links_[static_cast<size_t>(l)]; }
  // What a pair of labels costs.
  double Cost(const CoreLink& link, int32_t of_a, int32_t of_b) const {
    return link.table.At(static_cast<size_t>(of_a) * labels(link.b) + static_cast<size_t>(of_b));
  }
  // For each label of `to`, an end of the link, the least that a table of the link's shape has beside it,
  // less the weight of the label at the other end.
  void LeastBeside(const CoreLink& link, const CoreTable& table, int32_t to, const double* weight,
                   double* least) const;
  // Links of a vertex, by the number of the other end.
  std::span<const int32_t> links_of(int32_t v) const {
    const auto i = static_cast<size_t>(v);
    return {link_list_.data() + first_link_[i], first_link_[i + 1] - first_link_[i]};
  }
  const std::vector<CoreUsage>& usage(int32_t v) const { return usage_[static_cast<size_t>(v)]; }
  const std::vector<int64_t>& room() const { return room_; }
  double entries() const { return entries_; }  // of all tables
  bool has_usage() const { return has_usage_; }

  // With the constant part of the graph's cost.
  double CostOf(const std::vector<int32_t>& x) const;
  // Writes the labels of the core's variables into a labelling of the problem.
  void Export(const std::vector<int32_t>& x, std::vector<int32_t>& labels) const;

 private:
  void AddVertices(const LabelGraph& graph);
  void AddLinks(const LabelGraph& graph, bool narrow);

  std::vector<int32_t> variable_;
  std::vector<size_t> first_ = {0};
  std::vector<int32_t> label_;
  std::vector<double> cost_;
  std::vector<CoreLink> links_;
  std::vector<size_t> first_link_;
  std::vector<int32_t> link_list_;
  std::vector<std::vector<CoreUsage>> usage_;
  std::vector<int64_t> room_;
  bool has_usage_ = false;
  double constant_ = 0;
  double entries_ = 0;
  std::vector<std::unique_ptr<std::vector<double>>> wide_tables_;
  std::vector<std::unique_ptr<std::vector<float>>> narrow_tables_;
};

}  // namespace gt::placement
