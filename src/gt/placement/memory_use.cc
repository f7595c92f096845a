#include "gt/placement/memory_use.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gt/ir/node_map.h"
#include "gt/sim/type_sizes.h"

namespace gt::placement {
namespace {

// How many copies of something are alive from where to where.
class Profile {
 public:
  void Add(int32_t begin, int32_t end, int32_t copies = 1) {
    if (begin >= end) return;
    changes_.emplace_back(begin, copies);
    changes_.emplace_back(end, -copies);
  }
  std::vector<LiveRange> Ranges() {
    std::ranges::sort(changes_);
    std::vector<LiveRange> ranges;
    int32_t count = 0, since = 0;
    for (size_t i = 0; i < changes_.size();) {
      const int32_t at = changes_[i].first;
      int32_t change = 0;
      for (; i < changes_.size() && changes_[i].first == at; ++i) change += changes_[i].second;
      if (change == 0) continue;
      if (count > 0) ranges.push_back({since, at, count});
      count += change;
      since = at;
    }
    return ranges;
  }

 private:
  std::vector<std::pair<int32_t, int32_t>> changes_;  // where, and by how many
};

bool IsRecomputed(const Node& node) {
  const Recompute recompute = node.meta().recompute;
  return !node.meta().is_backward() &&
         (recompute == Recompute::kPreferRecompute || recompute == Recompute::kMustRecompute);
}

class MemoryUse {
 public:
  MemoryUse(const PlaceProblem& problem, const MemoryModel& memory, LabelProblem& labels)
      : problem_(problem), memory_(memory), labels_(labels) {
    for (const Node* node : problem.graph().nodes()) nodes_.push_back(node);
    last_use_.resize(nodes_.size());
    for (size_t i = nodes_.size(); i-- > 0;) FindLastUse(static_cast<int32_t>(i));
    FindGradients();
    for (size_t i = 0; i < problem.variables().size(); ++i) AddVariable(i);
    labels.usage_limit = memory.limit > 0 ? memory.limit : std::numeric_limits<int64_t>::max();
  }

 private:
  int32_t end() const { return static_cast<int32_t>(nodes_.size()); }

  // Of any result. A view keeps alive what it looks into.
  void FindLastUse(int32_t made) {
    const Node& node = *nodes_[static_cast<size_t>(made)];
    int32_t last = made;
    for (int32_t result = 0; result < node.result_count(); ++result) {
      for (const Use& use : node.result(result)->uses()) {
        last = std::max(
            last, use.node() == nullptr ? LastUseAs(use, made) : LastUseBy(node, *use.node()));
      }
    }
    last_use_[static_cast<size_t>(made)] = last;
  }
  // A gradient is sent where its parameter is as soon as it is made, and counted there.
  int32_t LastUseAs(const Use& output, int32_t made) const {
    const auto& outputs = problem_.graph().outputs();
    const bool leaves = outputs[static_cast<size_t>(output.index())]->role == OutputRole::kGradient;
    return leaves ? made : end() - 1;
  }
  int32_t LastUseBy(const Node& producer, const Node& user) const {
    if (IsRecomputed(producer) && user.meta().is_backward()) return -1;
    // A view that is kept for several uses counts for itself from there on, in the layout in which it is kept.
    const int32_t class_index =
        problem_.folding().class_of_node[static_cast<size_t>(user.number())];
    const bool ends_here =
        user.op().aliasing == Aliasing::kNone || problem_.keeps_value(class_index, user.number());
    return ends_here ? user.number() : last_use_[static_cast<size_t>(user.number())];
  }

  void FindGradients() {
    for (const auto& output : problem_.graph().outputs()) {
      if (output->role != OutputRole::kGradient) continue;
      const Node* made = output->value()->producer();
      if (made != nullptr) gradient_made_.emplace(output->name, made->number());
    }
  }

  // Local bytes of a result in a layout.
  double BytesOf(int32_t class_index, int32_t result, const Layout& layout) const {
    const TensorType& type =
        problem_.folding().classes[static_cast<size_t>(class_index)].result_type(result);
    if (!type.defined()) return 0;
    const Pieces& pieces =
        problem_.pieces()[static_cast<size_t>(class_index)].results[static_cast<size_t>(result)];
    const SymbolValues symbols = problem_.graph().shapes().Hints();
    return static_cast<double>(ElementsOf(type, symbols)) * ItemSize(type.dtype) *
           LocalFraction(layout, pieces, problem_.pricing().mesh());
  }

  void AddVariable(size_t i) {
    const PlacedVariable& of = problem_.variables()[i];
    const FoldedClass& folded = problem_.folding().classes[static_cast<size_t>(of.class_index)];
    Variable& variable = labels_.variables[i];
    if (of.result >= 0) {
      AddKept(of, folded, variable);
    } else if (folded.input != nullptr) {
      AddInput(of.class_index, folded, variable);
    } else {
      AddNode(of.class_index, folded, variable);
    }
  }

  void AddInput(int32_t class_index, const FoldedClass& folded, Variable& variable) {
    for (const Strategy& strategy : problem_.strategies()[static_cast<size_t>(class_index)]) {
      variable.usage.push_back(std::llround(BytesOf(class_index, 0, strategy.results[0])));
    }
    Profile profile;
    profile.Add(0, end(), folded.count());
    if (folded.input->role == InputRole::kParameter) {
      profile.Add(0, end(), folded.count() * memory_.optimizer_copies);
      if (memory_.accumulates_gradients) profile.Add(0, end(), folded.count());
      for (int32_t member : folded.members) {
        const std::string& name = problem_.graph().inputs()[static_cast<size_t>(member)]->name;
        const auto made = gradient_made_.find(name);
        if (made != gradient_made_.end()) profile.Add(made->second, end());
      }
    }
    variable.live = profile.Ranges();
  }

  // A value that is kept for several uses. What is made of parameters is there only while it is used.
  void AddKept(const PlacedVariable& of, const FoldedClass& folded, Variable& variable) {
    if (folded.input != nullptr && !problem_.made_of_parameters(of.class_index)) return;
    for (const Layout& layout : of.layouts) {
      variable.usage.push_back(std::llround(BytesOf(of.class_index, of.result, layout)));
    }
    Profile profile;
    for (int32_t member : of.members) AddLifetime(of.class_index, member, of.result, profile);
    variable.live = profile.Ranges();
  }

  void AddNode(int32_t class_index, const FoldedClass& folded, Variable& variable) {
    const bool of_parameters = problem_.made_of_parameters(class_index);
    if (!of_parameters && folded.node->op().aliasing != Aliasing::kNone) return;
    for (const Strategy& strategy : problem_.strategies()[static_cast<size_t>(class_index)]) {
      double bytes = 0;
      for (int32_t result = 0; result < folded.result_count(); ++result) {
        bytes += BytesOf(class_index, result, strategy.results[static_cast<size_t>(result)]);
      }
      variable.usage.push_back(std::llround(bytes));
    }
    Profile profile;
    for (int32_t member : folded.members) {
      // Where another variable keeps the value, this one only makes it.
      if (problem_.keeps_value(class_index, member)) {
        profile.Add(member, member + 1);
      } else {
        AddLifetime(class_index, member, 0, profile);
      }
    }
    variable.live = profile.Ranges();
  }

  void AddLifetime(int32_t class_index, int32_t member, int32_t result, Profile& profile) const {
    const FoldedClass& folded = problem_.folding().classes[static_cast<size_t>(class_index)];
    const Value& value = folded.input != nullptr
                             ? problem_.graph().inputs()[static_cast<size_t>(member)]->value
                             : *nodes_[static_cast<size_t>(member)]->result(result);
    if (problem_.made_of_parameters(class_index)) {
      for (const Use& use : value.uses()) {
        if (use.node() != nullptr) profile.Add(use.node()->number(), use.node()->number() + 1);
      }
      return;
    }
    profile.Add(member, last_use_[static_cast<size_t>(member)] + 1);
  }

  const PlaceProblem& problem_;
  const MemoryModel& memory_;
  LabelProblem& labels_;
  std::vector<const Node*> nodes_;
  std::vector<int32_t> last_use_;                 // by node
  std::map<std::string, int32_t> gradient_made_;  // by parameter: the node that makes it
};

}  // namespace

void AddMemory(const PlaceProblem& problem, const MemoryModel& memory, LabelProblem& labels) {
  MemoryUse(problem, memory, labels);
}

}  // namespace gt::placement
