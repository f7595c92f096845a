#include "gt/placement/plan_times.h"

#include <fmt/format.h>

#include <numeric>
#include <tuple>
#include <utility>

namespace gt::placement {
namespace {

class Walk {
 public:
  Walk(const PlaceProblem& problem, const std::vector<int32_t>& labels)
      : problem_(problem), folding_(problem.folding()), labels_(labels) {
    const std::vector<PlacedVariable>& variables = problem.variables();
    for (size_t i = 0; i < variables.size(); ++i) {
      for (int32_t member : variables[i].members) {
        kept_[{variables[i].class_index, member, variables[i].result}] = static_cast<int32_t>(i);
      }
    }
    for (const PlacedEdge& edge : problem.edges()) {
      edges_.emplace(std::tuple(edge.from, edge.result, edge.to, edge.operand), &edge);
    }
  }

  PlanTimes Take() {
    for (const Node* node : problem_.graph().nodes()) AddNode(*node);
    for (const auto& [value, variable] : kept_) AddKept(value, variable);
    for (const auto& output : problem_.graph().outputs()) {
      AddUpdate(*output);
    }
    for (const auto& [name, us] : problem_.OutputCosts(labels_)) times_.results[name] += us;
    return std::move(times_);
  }

 private:
  struct Source {
    int32_t class_index, member, result;
    bool operator<(const Source& other) const {
      return std::tie(class_index, member, result) <
             std::tie(other.class_index, other.member, other.result);
    }
  };

  Source SourceOf(const Value& value) const {
    if (value.is_input()) {
      return {folding_.class_of_input[static_cast<size_t>(value.index())], value.index(), 0};
    }
    const int32_t number = value.producer()->number();
    return {folding_.class_of_node[static_cast<size_t>(number)], number, value.index()};
  }

  double MoveUs(int32_t from, int32_t result, int32_t to, int32_t operand) const {
    const auto found = edges_.find({from, result, to, operand});
    if (found == edges_.end()) return 0;
    const PlacedEdge& edge = *found->second;
    return (edge.visible + edge.forward + edge.backward) *
           problem_.MoveOf(edge, LabelOf(from), LabelOf(to)).us;
  }
  // To a user of the value: from where it is kept, if it is.
  double UseUs(const Value& value, int32_t to, int32_t operand) const {
    const Source source = SourceOf(value);
    const auto kept = kept_.find(source);
    return MoveUs(kept != kept_.end() ? kept->second : source.class_index, source.result, to,
                  operand);
  }

  void AddNode(const Node& node) {
    const int32_t index = folding_.class_of_node[static_cast<size_t>(node.number())];
    const Strategy& strategy =
        problem_.strategies()[static_cast<size_t>(index)][static_cast<size_t>(LabelOf(index))];
    NodeTime time{.kernel_us = strategy.kernel_us, .collective_us = strategy.collective_us};
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      time.moves_us.push_back(UseUs(*node.operand(i), index, i));
    }
    names_.push_back(node.result_count() > 0
                         ? node.result()->name()
                         : fmt::format("{} #{}", node.op().name.str(), node.number()));
    times_.nodes[names_.back()] = std::move(time);
  }

  void AddKept(const Source& value, int32_t variable) {
    const FoldedClass& of = folding_.classes[static_cast<size_t>(value.class_index)];
    const auto member = static_cast<size_t>(value.member);
    const std::string& first =
        of.input != nullptr ? problem_.graph().inputs()[member]->name : names_[member];
    times_.kept[ValueName(first, value.result)] =
        MoveUs(value.class_index, value.result, variable, -1);
  }

  void AddUpdate(const Output& output) {
    if (output.role != OutputRole::kGradient && output.role != OutputRole::kBufferUpdate) return;
    for (const auto& input : problem_.graph().inputs()) {
      if (input->name != output.name) continue;
      times_.updates[output.name] =
          UseUs(*output.value(), SourceOf(input->value).class_index, /*operand=*/-1);
    }
  }

  int32_t LabelOf(int32_t variable) const { return labels_[static_cast<size_t>(variable)]; }

  const PlaceProblem& problem_;
  const Folding& folding_;
  const std::vector<int32_t>& labels_;
  std::map<Source, int32_t> kept_;  // variables
  // By variable, result, variable, operand.
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, const PlacedEdge*> edges_;
  std::vector<std::string> names_;  // of nodes, by number
  PlanTimes times_;
};

}  // namespace

double PlanTimes::TotalUs() const {
  double us = 0;
  for (const auto& [name, time] : nodes) {
    us += std::accumulate(time.moves_us.begin(), time.moves_us.end(),
                          time.kernel_us + time.collective_us);
  }
  for (const auto* moves : {&kept, &updates, &results}) {
    for (const auto& [name, move_us] : *moves) us += move_us;
  }
  return us;
}

std::string ValueName(const std::string& first, int32_t result) {
  return result == 0 ? first : fmt::format("{}#{}", first, result);
}

PlanTimes TimesOf(const PlaceProblem& problem, const std::vector<int32_t>& labels) {
  return Walk(problem, labels).Take();
}

}  // namespace gt::placement
