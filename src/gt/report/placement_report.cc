#include "gt/report/placement_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

using placement::FoldedClass;
using placement::LabelProblem;
using placement::Layout;
using placement::Move;
using placement::PlacedEdge;
using placement::Placement;
using placement::PlaceProblem;
using placement::Strategy;

constexpr double kGibi = 1024.0 * 1024 * 1024;

// layers.*.attention of layers.0.attention, for a class of many.
std::string PatternFor(const std::string& name, int32_t count) {
  if (count == 1) return name;
  std::vector<std::string> parts = Split(name, '.');
  for (std::string& part : parts) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    if (number) part = "*";
  }
  return Join(parts, ".");
}

const Strategy& Chosen(const PlaceProblem& problem, const Placement& placement, size_t i) {
  return problem.strategies()[i][static_cast<size_t>(placement.labels[i])];
}

Move MoveAlong(const PlaceProblem& problem, const Placement& placement, const PlacedEdge& edge) {
  return problem.MoveOf(edge, placement.labels[static_cast<size_t>(edge.from)],
                        placement.labels[static_cast<size_t>(edge.to)]);
}

std::string ModuleOf(const FoldedClass& of) {
  const std::string module = of.node != nullptr
                                 ? of.node->meta().module.str()
                                 : of.input->name.substr(0, of.input->name.rfind('.'));
  return PatternFor(module.empty() ? "(step)" : module, of.count());
}

std::string Totals(const Placement& placement, bool overlap) {
  const placement::PlanCost& cost = placement.cost;
  std::string text = fmt::format(
      "step {:.2f} ms predicted; no placement takes less than {:.2f} ms (gap {:.2f} %); peak "
      "{:.2f} "
      "GiB on a rank\n",
      placement.step_us / 1e3, placement.bound_us / 1e3, 100 * placement.gap(),
      static_cast<double>(placement.peak_bytes) / kGibi);
  text += fmt::format(
      "kernels {:.2f} ms forward, {:.2f} ms backward; communication {:.2f} ms that is waited for",
      cost.forward_kernels / 1e3, cost.backward_kernels / 1e3, cost.visible / 1e3);
  return text + fmt::format(", {:.2f} ms of parameters and gradients{}\n",
                            (cost.forward_moves + cost.backward_moves) / 1e3,
                            overlap ? " beside kernels" : "");
}

std::string ParameterTable(const PlaceProblem& problem, const Placement& placement) {
  std::string text = fmt::format("{:<48} {:>5} {:<22} {:<16} {:>9}\n", "parameter or input",
                                 "count", "sizes", "placement", "MiB/rank");
  const placement::DeviceMesh& mesh = problem.pricing().mesh();
  const SymbolValues symbols = problem.graph().shapes().Hints();
  for (size_t i = 0; i < problem.folding().classes.size(); ++i) {
    const FoldedClass& of = problem.folding().classes[i];
    if (of.input == nullptr) continue;
    const TensorType& type = of.input->value.type();
    std::vector<std::string> sizes;
    for (const Dim& size : type.sizes) sizes.push_back(std::to_string(SizeAt(size, symbols)));
    const Layout& layout = Chosen(problem, placement, i).results[0];
    const placement::Pieces& pieces = problem.pieces()[i].results[0];
    const double bytes = static_cast<double>(ElementsOf(type, symbols)) * ItemSize(type.dtype) *
                         LocalFraction(layout, pieces, mesh) * of.count();
    text += fmt::format("{:<48} {:>5} {:<22} {:<16} {:>9.2f}\n", PatternFor(of.name(), of.count()),
                        of.count(), fmt::format("{}[{}]", DTypeName(type.dtype), Join(sizes, ", ")),
                        ToString(layout, pieces, mesh), bytes / 1024 / 1024);
  }
  return text;
}

}  // namespace

std::vector<PlacedModule> PlacedModules(const PlaceProblem& problem, const Placement& placement) {
  std::map<std::string, size_t> places;
  std::vector<PlacedModule> modules;
  std::vector<double> largest;
  auto row = [&](const FoldedClass& of) -> size_t {
    const std::string name = ModuleOf(of);
    auto [found, is_new] = places.try_emplace(name, modules.size());
    if (is_new) {
      modules.push_back({.module = name, .layout = ""});
      largest.push_back(-1);
    }
    return found->second;
  };
  const std::vector<FoldedClass>& classes = problem.folding().classes;
  const SymbolValues symbols = problem.graph().shapes().Hints();
  for (size_t i = 0; i < classes.size(); ++i) {
    const FoldedClass& of = classes[i];
    if (of.node == nullptr) continue;
    const Strategy& strategy = Chosen(problem, placement, i);
    const size_t at = row(of);
    modules[at].kernel_us += of.count() * strategy.kernel_us;
    modules[at].move_us += of.count() * strategy.collective_us;
    const TensorType& type = of.result_type(0);
    if (of.node->meta().is_backward() || !type.defined() ||
        problem.made_of_parameters(static_cast<int32_t>(i))) {
      continue;
    }
    const auto elements = static_cast<double>(ElementsOf(type, symbols));
    if (elements < largest[at]) continue;
    largest[at] = elements;
    modules[at].layout =
        ToString(strategy.results[0], problem.pieces()[i].results[0], problem.pricing().mesh());
  }
  for (const PlacedEdge& edge : problem.edges()) {
    const Move move = MoveAlong(problem, placement, edge);
    if (move.count == 0) continue;
    const auto& variable = problem.variables()[static_cast<size_t>(edge.to)];
    const size_t at = row(classes[static_cast<size_t>(
        variable.result >= 0 ? edge.class_index : variable.class_index)]);
    const int32_t times = edge.count * (edge.visible + edge.forward + edge.backward);
    modules[at].move_us += times * move.us;
    modules[at].collectives += int64_t{times} * move.count;
    for (int i = 0; i < move.count; ++i) {
      modules[at].moved_bytes += times * move.steps[static_cast<size_t>(i)].bytes;
    }
  }
  return modules;
}

std::string PlacementTable(const PlaceProblem& problem, const Placement& placement, bool overlap) {
  std::string text = Totals(placement, overlap);
  if (!problem.without_rule().empty()) {
    text +=
        fmt::format("computed by every rank in full, as there is no rule for sharding them: {}\n",
                    Join(problem.without_rule(), ", "));
  }
  text += "\n" + ParameterTable(problem, placement);
  text += fmt::format("\n{:<48} {:<16} {:>11} {:>11} {:>7} {:>9}\n", "module", "placement",
                      "kernels ms", "moves ms", "moves", "GiB moved");
  for (const PlacedModule& module : PlacedModules(problem, placement)) {
    if (module.kernel_us == 0 && module.collectives == 0) continue;
    text += fmt::format("{:<48} {:<16} {:>11.3f} {:>11.3f} {:>7} {:>9.3f}\n", module.module,
                        module.layout, module.kernel_us / 1e3, module.move_us / 1e3,
                        module.collectives, module.moved_bytes / kGibi);
  }
  return text;
}

std::string ExplainPlacement(const PlaceProblem& problem, const Placement& placement,
                             const std::string& name, bool overlap) {
  const Graph& graph = problem.graph();
  const Value* value = graph.FindValue(name);
  for (const auto& input : graph.inputs()) {
    if (input->name == name) value = &input->value;
  }
  if (value == nullptr) {
    Fail(ErrorCode::kBadPin, "--explain {}: the step has no value, parameter or input of that name",
         name);
  }
  const placement::Folding& folding = problem.folding();
  const auto i = static_cast<size_t>(
      value->is_input() ? folding.class_of_input[static_cast<size_t>(value->index())]
                        : folding.class_of_node[static_cast<size_t>(value->producer()->number())]);
  const placement::ClassPieces& pieces = problem.pieces()[i];
  const placement::DeviceMesh& mesh = problem.pricing().mesh();
  struct Rival {
    std::string way;
    double step_us;
    placement::PlanCost cost;
    bool chosen;
  };
  std::vector<Rival> rivals;
  const LabelProblem all = problem.Labels({});
  for (size_t label = 0; label < problem.strategies()[i].size(); ++label) {
    const Strategy& strategy = problem.strategies()[i][label];
    std::string way;
    for (size_t k = 0; k < strategy.operands.size(); ++k) {
      way += ToString(strategy.operands[k], pieces.operands[k], mesh) + " ";
    }
    if (!way.empty()) way += "-> ";
    for (size_t k = 0; k < strategy.results.size(); ++k) {
      way += ToString(strategy.results[k], pieces.results[k], mesh) + " ";
    }
    const bool chosen = static_cast<int32_t>(label) == placement.labels[i];
    if (chosen) {
      rivals.push_back({way, placement.step_us, placement.cost, true});
      continue;
    }
    LabelProblem forced = all;
    for (size_t other = 0; other < forced.variables[i].costs.size(); ++other) {
      if (other != label) forced.variables[i].costs[other] = placement::kForbidden;
    }
    const placement::LabelSolution solution = Solve(forced);
    if (!solution.feasible) continue;
    const placement::PlanCost cost = CostOf(problem, solution.labels);
    rivals.push_back({way, cost.step_us(overlap), cost, false});
  }
  std::stable_sort(rivals.begin(), rivals.end(), [](const Rival& a, const Rival& b) {
    return std::pair(!a.chosen, a.step_us) < std::pair(!b.chosen, b.step_us);
  });
  std::string text = fmt::format("{} ({} in the step, {} ways)\n{:>10} {:>10} {:>10} {:>10}  way\n",
                                 name, folding.classes[i].count(), problem.strategies()[i].size(),
                                 "step ms", "kernels", "waited", "params");
  for (const Rival& rival : rivals) {
    text += fmt::format("{:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f}  {}{}\n", rival.step_us / 1e3,
                        (rival.cost.forward_kernels + rival.cost.backward_kernels) / 1e3,
                        rival.cost.visible / 1e3,
                        (rival.cost.forward_moves + rival.cost.backward_moves) / 1e3, rival.way,
                        rival.chosen ? "(chosen)" : "");
  }
  return text;
}

}  // namespace gt
