// The text of a generated kernel while it is written: its lines, its variables, the sizes that are its arguments, and
// what has a name already. Knows nothing about operators.
#pragma once

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gt/fusion/index.h"
#include "gt/ir/graph.h"

namespace gt::fusion {

// Some part of the graph has no code.
struct NoCode {};

using Position = std::vector<Index>;  // of an element, by dimension

// What the first run through the graph finds out for the second, which writes the text.
struct KernelPlan {
  // By dimension of the loop, outermost first: it is counted together with the next one.
  std::vector<bool> joins_next;
  // By input and place without lanes: the numbers of elements from there on that lanes need.
  std::map<std::string, std::set<int64_t>> loaded;
};

class KernelText {
 public:
  // Without a plan: a run that finds one out.
  KernelText(const Graph& body, int lanes, const KernelPlan* plan);

  int lanes() const { return lanes_; }
  const KernelPlan* plan() const { return plan_; }
  int64_t Hint(const Dim& dim) const { return dim.Evaluate(hints_); }
  Index Number(const Dim& dim) const { return {dim, lanes_}; }

  // The loop: a variable for each dimension of the output, in the order of memory. Once.
  Position LoopOver(const TensorType& type);
  const Dim& threads() const { return threads_; }
  // Lines from the number of the thread to the loop's variables. May add arguments.
  std::vector<std::string> Head();
  // By dimension of the loop: whether all that was written steps through it and the next alike.
  std::vector<bool> JoinedDims() const;

  int NewVariable(std::string name, std::optional<Dim> extent);
  const std::string& NameOf(int variable) const {
    return variables_[static_cast<size_t>(variable)].name;
  }
  // For numbers in the names of variables.
  const std::vector<Variable>& variables() const { return variables_; }
  std::string NewName(char letter) { return fmt::format("{}{}", letter, names_++); }

  // Sizes and indices. Numbers up to 16 are part of the text, others are arguments.
  std::string SizeText(const Dim& dim);
  const std::vector<Dim>& sizes() const { return sizes_; }
  // Without what differs between lanes.
  std::string BaseText(const Index& index, int64_t number);
  std::string IndexText(const Index& index);

  template <typename... Args>
  void Line(const char* format, Args&&... args) {
    lines_.push_back(std::string(2 * (scopes_.size() - 1), ' ') +
                     fmt::format(fmt::runtime(format), std::forward<Args>(args)...));
  }
  const std::vector<std::string>& lines() const { return lines_; }

  // What is known by a key where lines are now. Inside of braces more is, and is forgotten after them.
  const std::string* Find(const std::string& key) const;
  void Remember(const std::string& key, const std::string& text) { scopes_.back()[key] = text; }
  void OpenScope() { scopes_.emplace_back(); }
  void CloseScope() { scopes_.pop_back(); }

 private:
  bool JoinsNext(int variable) const;

  const int lanes_;
  const KernelPlan* plan_;
  SymbolValues hints_;
  std::vector<Variable> variables_;
  std::vector<int> loop_;  // variables of the loop, outermost first
  Dim threads_;
  std::vector<Index> uses_;  // whatever is written as text
  std::vector<Dim> sizes_;
  std::vector<std::unordered_map<std::string, std::string>> scopes_;
  std::vector<std::string> lines_;
  int names_ = 0;
};

}  // namespace gt::fusion
