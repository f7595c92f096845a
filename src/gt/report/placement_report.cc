#include "gt/report/placement_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/fold_names.h"
#include "gt/base/text.h"
#include "gt/report/placement_rows.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

using placement::Placement;
using placement::PlaceProblem;
using placement::Strategy;

constexpr double kGibi = 1024.0 * 1024 * 1024;

std::string Totals(const Placement& placement, bool overlap, bool limited) {
  const placement::PlanCost& cost = placement.cost;
  std::string bound = "without a bound, since not all meshes were searched";
  if (placement.bound_us > 0) {
    bound = fmt::format("no placement{} takes less than {:.2f} ms (gap {:.2f} %)",
                        limited ? " that was looked at" : "", placement.bound_us / 1e3,
                        100 * placement.gap());
  }
  std::string text = fmt::format("step {:.2f} ms predicted; {}; peak {} on a rank\n",
                                 placement.step_us / 1e3, bound, ByteText(placement.peak_bytes));
  if (placement.charged_us > 0) {
    text +=
        fmt::format("{:.2f} ms are charged for memory above the budget, which the bound includes\n",
                    placement.charged_us / 1e3);
  }
  text += fmt::format(
      "kernels {:.2f} ms forward, {:.2f} ms backward; communication {:.2f} ms that is waited for",
      cost.forward_kernels / 1e3, cost.backward_kernels / 1e3, cost.visible / 1e3);
  return text + fmt::format(", {:.2f} ms of parameters and gradients{}\n",
                            (cost.forward_moves + cost.backward_moves) / 1e3,
                            overlap ? " beside kernels" : "");
}

std::string InputTable(const PlaceProblem& problem, const Placement& placement) {
  std::string text = fmt::format("{:<48} {:>5} {:<22} {:<16} {:>9}\n", "parameter or input",
                                 "count", "sizes", "placement", "MiB/rank");
  for (const PlacedInput& input : PlacedInputs(problem, placement)) {
    text += fmt::format("{:<48} {:>5} {:<22} {:<16} {:>9.2f}\n", input.name, input.count,
                        input.type, input.placed.layout, input.bytes / 1024 / 1024);
  }
  return text;
}

}  // namespace

std::string PlacementTable(const PlaceProblem& problem, const Placement& placement, bool overlap) {
  std::string text = Totals(placement, overlap, problem.limited_classes() > 0);
  if (!problem.without_rule().empty()) {
    text +=
        fmt::format("computed by every rank in full, as there is no rule for sharding them: {}\n",
                    Join(problem.without_rule(), ", "));
  }
  if (problem.limited_classes() > 0) {
    text += fmt::format(
        "not all ways of {} kinds of nodes were looked at, since this mesh has too many; the bound "
        "is "
        "over the others\n",
        problem.limited_classes());
  }
  text += "\n" + InputTable(problem, placement);
  text += fmt::format("\n{:<48} {:>5} {:<16} {:>11} {:>11} {:>7} {:>9}\n", "module", "count",
                      "placement", "kernels ms", "moves ms", "moves", "GiB moved");
  for (const PlacedModule& module : PlacedModules(problem, placement)) {
    if (module.kernel_us == 0 && module.collectives == 0) continue;
    text += fmt::format("{:<48} {:>5} {:<16} {:>11.3f} {:>11.3f} {:>7.0f} {:>9.3f}\n",
                        module.module, module.count, module.placed.layout, module.kernel_us / 1e3,
                        module.move_us / 1e3, module.collectives, module.moved_bytes / kGibi);
  }
  return text;
}

std::string ExplainPlacement(const PlaceProblem& problem, const Placement& placement,
                             const std::string& name, placement::SearchOptions search) {
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
  int32_t hopeless = 0;
  constexpr int kQuestions = 8;
  constexpr double kMuchWorse = 4;
  search.question_limit = kQuestions;
  search.give_up_at = kMuchWorse * placement.total_us();
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
    search.forced = {static_cast<int32_t>(i), static_cast<int32_t>(label)};
    const Placement rival = Search(problem, search);
    if (rival.feasible) {
      rivals.push_back({way, rival.step_us, rival.cost, false});
    } else {
      ++hopeless;
    }
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
  if (hopeless > 0) {
    text += fmt::format(
        "{} other ways do not fit the memory or its neighbours, or take {:.0f} times as long\n",
        hopeless, kMuchWorse);
  }
  return text;
}

std::vector<std::string> PlacementLines(const Graph& placed) {
  struct Row {
    InputRole role;
    std::string layout;
    std::vector<std::string> names;
    int64_t bytes = 0;
  };
  std::vector<Row> rows;
  for (const auto& input : placed.inputs()) {
    const bool shown = input->role == InputRole::kParameter || input->role == InputRole::kInput;
    if (!shown || input->placement.empty() || input->value.type().rank() == 0) continue;
    const std::string& layout = input->placement.str();
    auto row = std::ranges::find_if(
        rows, [&](const Row& one) { return one.role == input->role && one.layout == layout; });
    if (row == rows.end()) row = rows.insert(row, {input->role, layout, {}});
    row->names.push_back(input->name);
    row->bytes += StorageBytes(input->value.type(), placed.shapes().Hints());
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    constexpr size_t kNames = 4;
    const std::vector<FoldedName> folded =
        FoldNames(row.names, std::vector<std::string>(row.names.size()));
    std::string names;
    for (size_t i = 0; i < std::min(folded.size(), kNames); ++i) {
      names += (i == 0 ? "" : ", ") + folded[i].name;
    }
    if (folded.size() > kNames) names += fmt::format(" and {} more", folded.size() - kNames);
    lines.push_back(fmt::format("  {:<10} {:<12} {:>10}  {}",
                                row.role == InputRole::kParameter ? "parameters" : "batch",
                                row.layout, ByteText(row.bytes), names));
  }
  return lines;
}

}  // namespace gt
