#include "gt/report/placement_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gt/base/name.h"
#include "gt/base/text.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

using placement::FoldedClass;
using placement::Move;
using placement::PlacedEdge;
using placement::Placement;
using placement::PlaceProblem;
using placement::Strategy;

const Strategy& ChosenStrategy(const PlaceProblem& problem, const Placement& placement, size_t i) {
  return problem.strategies()[i][static_cast<size_t>(placement.labels[i])];
}

// Says what an axis cuts. The dimensions of the first input that has any are the batch and the sequence,
// wherever operators carry them.
class CutNames {
 public:
  explicit CutNames(const PlaceProblem& problem) : mesh_(problem.pricing().mesh()) {
    const std::vector<FoldedClass>& classes = problem.folding().classes;
    for (size_t i = 0; i < classes.size() && batch_ < 0; ++i) {
      const Input* input = classes[i].input;
      if (input == nullptr || input->role != InputRole::kInput) continue;
      for (const placement::Piece& piece : problem.pieces()[i].results[0]) {
        if (piece.dim == 0 && piece.first) batch_ = piece.id;
        if (piece.dim == 1 && piece.first) sequence_ = piece.id;
      }
    }
  }

  PlacedTensor Describe(const placement::Layout& layout, const placement::Pieces& pieces) const {
    PlacedTensor placed{ToString(layout, pieces, mesh_)};
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      const ShardState state = layout[axis];
      if (state < 0) {
        placed.axes.push_back({placement::IsRouted(state) ? AxisCut::Kind::kExperts
                               : state == kWhole          ? AxisCut::Kind::kWhole
                                                          : AxisCut::Kind::kPartial});
        continue;
      }
      const placement::Piece& piece = pieces[static_cast<size_t>(state)];
      const AxisCut::Kind kind = piece.id == batch_      ? AxisCut::Kind::kBatch
                                 : piece.id == sequence_ ? AxisCut::Kind::kSequence
                                                         : AxisCut::Kind::kOther;
      placed.axes.push_back({kind, piece.dim, piece.limit()});
    }
    return placed;
  }

 private:
  const placement::DeviceMesh& mesh_;
  int32_t batch_ = -1, sequence_ = -1;
};

// A row with the modules it is about, which have the same pattern.
struct ModuleRow {
  Name pattern = {};
  int32_t first = std::numeric_limits<int32_t>::max();  // number of the first node
  PlacedModule row = {};
  std::unordered_set<Name> modules = {};
  double largest = -1;  // elements of the result that is shown
};

// How many members of a class a row is about.
struct RowShare {
  size_t row;
  double share;
};

class ModuleRows {
 public:
  ModuleRows(const PlaceProblem& problem, const Placement& placement)
      : problem_(problem),
        placement_(placement),
        names_(problem),
        symbols_(problem.graph().shapes().Hints()),
        rows_of_class_(problem.folding().classes.size()) {
    for (const Node* node : problem.graph().nodes()) nodes_.push_back(node);
  }

  std::vector<PlacedModule> Make() {
    AddKernels();
    AddMoves();
    std::vector<PlacedModule> modules;
    for (ModuleRow& row : Merged()) {
      row.row.count = static_cast<int32_t>(row.modules.size());
      row.row.module = (row.modules.size() == 1 ? *row.modules.begin() : row.pattern).str();
      modules.push_back(std::move(row.row));
    }
    return modules;
  }

 private:
  const FoldedClass& ClassAt(size_t i) const { return problem_.folding().classes[i]; }

  const std::string& InputName(int32_t i) const {
    return problem_.graph().inputs()[static_cast<size_t>(i)]->name;
  }
  Name ModuleOf(const FoldedClass& of, int32_t member) const {
    Name module;
    if (of.node != nullptr) {
      module = nodes_[static_cast<size_t>(member)]->meta().module;
    } else if (const size_t point = InputName(member).rfind('.'); point != std::string::npos) {
      module = Name(std::string_view(InputName(member)).substr(0, point));
    }
    return module.empty() ? step_ : module;
  }
  Name PatternOf(Name module) {
    auto [found, is_new] = patterns_.try_emplace(module);
    if (is_new) found->second = Name(LayerPattern(module.str()));
    return found->second;
  }

  // The members of a class that are in modules of one pattern.
  struct Kind {
    int32_t first = -1;  // member
    std::vector<Name> modules = {};
  };

  // One row for each kind of module in a class: the norm after the last layer may be computed like those
  // at the beginning of layers. A class is asked for by each move into it, so its rows are remembered.
  const std::vector<RowShare>& RowsOf(size_t class_index) {
    std::optional<std::vector<RowShare>>& rows = rows_of_class_[class_index];
    if (rows) return *rows;
    rows.emplace();
    const FoldedClass& of = ClassAt(class_index);
    std::map<std::string, Kind> kinds;
    for (int32_t member : of.members) {
      const Name module = ModuleOf(of, member);
      Kind& kind = kinds[PatternOf(module).str()];
      if (kind.modules.empty()) kind.first = member;
      kind.modules.push_back(module);
    }
    for (const auto& [pattern, kind] : kinds) {
      const std::vector<Name>& modules = kind.modules;
      const bool one = std::ranges::all_of(modules, [&](Name m) { return m == modules.front(); });
      auto [found, is_new] =
          places_.try_emplace(one ? modules.front() : Name(pattern), rows_.size());
      if (is_new) rows_.push_back({.pattern = Name(pattern)});
      ModuleRow& row = rows_[found->second];
      row.modules.insert(modules.begin(), modules.end());
      if (of.node != nullptr) row.first = std::min(row.first, kind.first);
      rows->push_back({found->second, static_cast<double>(modules.size()) / of.count()});
    }
    return *rows;
  }

  void AddKernels() {
    for (size_t i = 0; i < problem_.folding().classes.size(); ++i) {
      const FoldedClass& of = ClassAt(i);
      if (of.node == nullptr) continue;
      const Strategy& strategy = ChosenStrategy(problem_, placement_, i);
      const bool shown = of.result_count() > 0 && of.result_type(0).defined() &&
                         !of.node->meta().is_backward() &&
                         !problem_.made_of_parameters(static_cast<int32_t>(i));
      const double elements =
          shown ? static_cast<double>(ElementsOf(of.result_type(0), symbols_)) : 0;
      for (const auto& [at, share] : RowsOf(i)) {
        ModuleRow& row = rows_[at];
        row.row.kernel_us += share * of.count() * strategy.kernel_us;
        row.row.move_us += share * of.count() * strategy.collective_us;
        if (!shown || elements < row.largest) continue;
        row.largest = elements;
        row.row.placed = names_.Describe(strategy.results[0], problem_.pieces()[i].results[0]);
      }
    }
  }

  void AddMoves() {
    for (const PlacedEdge& edge : problem_.edges()) {
      const Move move = problem_.MoveOf(edge, placement_.labels[static_cast<size_t>(edge.from)],
                                        placement_.labels[static_cast<size_t>(edge.to)]);
      if (move.count == 0) continue;
      double bytes = 0;
      for (int i = 0; i < move.count; ++i) bytes += move.steps[static_cast<size_t>(i)].bytes;
      const auto& variable = problem_.variables()[static_cast<size_t>(edge.to)];
      const auto to = variable.result >= 0 ? edge.class_index : variable.class_index;
      for (const auto& [at, share] : RowsOf(static_cast<size_t>(to))) {
        PlacedModule& row = rows_[at].row;
        const double times = share * edge.count * (edge.visible + edge.forward + edge.backward);
        row.move_us += times * move.us;
        row.collectives += times * move.count;
        row.moved_bytes += times * bytes;
      }
    }
  }

  // The first and last layers are often classes of their own, as their neighbours are others.
  std::vector<ModuleRow> Merged() {
    std::vector<ModuleRow> merged;
    for (bool with_layout : {true, false}) {
      for (ModuleRow& row : rows_) {
        const bool taken = row.modules.empty();
        if (taken || row.row.placed.layout.empty() == with_layout) continue;
        auto like = std::find_if(merged.begin(), merged.end(), [&](const ModuleRow& other) {
          return other.pattern == row.pattern &&
                 (!with_layout || other.row.placed.layout == row.row.placed.layout);
        });
        if (like == merged.end()) {
          merged.push_back(std::move(row));
          continue;
        }
        like->first = std::min(like->first, row.first);
        like->modules.merge(std::exchange(row.modules, {}));
        like->row.kernel_us += row.row.kernel_us;
        like->row.move_us += row.row.move_us;
        like->row.collectives += row.row.collectives;
        like->row.moved_bytes += row.row.moved_bytes;
      }
    }
    std::stable_sort(merged.begin(), merged.end(),
                     [](const ModuleRow& a, const ModuleRow& b) { return a.first < b.first; });
    return merged;
  }

  const PlaceProblem& problem_;
  const Placement& placement_;
  const CutNames names_;
  const SymbolValues symbols_;
  std::vector<const Node*> nodes_;
  const Name step_{"(step)"};  // what belongs to no module
  std::unordered_map<Name, Name> patterns_;
  std::unordered_map<Name, size_t> places_;  // of rows, by name
  std::vector<std::optional<std::vector<RowShare>>> rows_of_class_;
  std::vector<ModuleRow> rows_;
};

}  // namespace

std::string LayerPattern(const std::string& name) {
  std::string pattern;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    const bool number = !part.empty() && std::ranges::all_of(part, [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    if (begin > 0) pattern += '.';
    pattern += number ? "*" : part;
    begin = end + 1;
  }
  return pattern;
}

std::vector<PlacedInput> PlacedInputs(const PlaceProblem& problem, const Placement& placement) {
  const CutNames names(problem);
  const SymbolValues symbols = problem.graph().shapes().Hints();
  std::vector<PlacedInput> inputs;
  // What inputs of one row have in common: pattern, type, layout, and whether they are parameters.
  std::map<std::tuple<std::string, std::string, std::string, bool>, size_t> rows;
  for (size_t i = 0; i < problem.folding().classes.size(); ++i) {
    const FoldedClass& of = problem.folding().classes[i];
    if (of.input == nullptr) continue;
    const TensorType& type = of.input->value.type();
    std::vector<std::string> sizes;
    for (const Dim& size : type.sizes) sizes.push_back(std::to_string(SizeAt(size, symbols)));
    const placement::Layout& layout = ChosenStrategy(problem, placement, i).results[0];
    const placement::Pieces& pieces = problem.pieces()[i].results[0];
    PlacedInput input{.name = {},
                      .parameter = false,
                      .type = fmt::format("{}[{}]", DTypeName(type.dtype), Join(sizes, ", ")),
                      .placed = names.Describe(layout, pieces),
                      .count = 1,
                      .bytes = static_cast<double>(ElementsOf(type, symbols)) *
                               ItemSize(type.dtype) *
                               LocalFraction(layout, pieces, problem.pricing().mesh())};
    for (int32_t member : of.members) {
      const Input& one = *problem.graph().inputs()[static_cast<size_t>(member)];
      input.name = one.name;
      input.parameter = one.role == InputRole::kParameter;
      const auto [row, is_new] = rows.try_emplace(
          {LayerPattern(one.name), input.type, input.placed.layout, input.parameter},
          inputs.size());
      if (is_new) {
        inputs.push_back(input);
      } else {
        inputs[row->second].count += input.count;
        inputs[row->second].bytes += input.bytes;
      }
    }
  }
  for (PlacedInput& input : inputs) {
    if (input.count > 1) input.name = LayerPattern(input.name);
  }
  return inputs;
}

std::vector<PlacedModule> PlacedModules(const PlaceProblem& problem, const Placement& placement) {
  return ModuleRows(problem, placement).Make();
}

}  // namespace gt
