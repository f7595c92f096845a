#include "gt/report/placement_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

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
        placed.axes.push_back({state == kWhole ? AxisCut::Kind::kWhole : AxisCut::Kind::kPartial});
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

// A row with the modules it is about.
struct ModuleRow {
  size_t place = 0;  // among the rows
  PlacedModule row = {};
  std::set<std::string> modules = {};
  double largest = -1;  // elements of the result that is shown
};

class ModuleRows {
 public:
  ModuleRows(const PlaceProblem& problem, const Placement& placement)
      : problem_(problem),
        placement_(placement),
        names_(problem),
        symbols_(problem.graph().shapes().Hints()) {
    for (const Node* node : problem.graph().nodes()) nodes_.push_back(node);
  }

  std::vector<PlacedModule> Make() {
    AddKernels();
    AddMoves();
    std::vector<PlacedModule> modules;
    for (ModuleRow& row : Merged()) {
      row.row.count = static_cast<int32_t>(row.modules.size());
      row.row.module =
          row.modules.size() == 1 ? *row.modules.begin() : LayerPattern(*row.modules.begin());
      modules.push_back(std::move(row.row));
    }
    return modules;
  }

 private:
  const FoldedClass& ClassAt(size_t i) const { return problem_.folding().classes[i]; }

  std::set<std::string> ModulesOf(const FoldedClass& of) const {
    std::set<std::string> modules;
    for (int32_t member : of.members) {
      std::string module;
      if (of.node != nullptr) {
        module = nodes_[static_cast<size_t>(member)]->meta().module.str();
      } else {
        const std::string& name = problem_.graph().inputs()[static_cast<size_t>(member)]->name;
        const size_t point = name.rfind('.');
        if (point != std::string::npos) module = name.substr(0, point);
      }
      modules.insert(module.empty() ? "(step)" : module);
    }
    return modules;
  }

  // Classes of one module, and those of many that differ in the layer alone.
  ModuleRow& RowFor(const FoldedClass& of) {
    std::set<std::string> modules = ModulesOf(of);
    const std::string name =
        modules.size() == 1 ? *modules.begin() : LayerPattern(*modules.begin());
    auto [found, is_new] = places_.try_emplace(name, rows_.size());
    if (is_new) rows_.push_back({.place = rows_.size()});
    ModuleRow& row = rows_[found->second];
    row.modules.merge(modules);
    return row;
  }

  void AddKernels() {
    for (size_t i = 0; i < problem_.folding().classes.size(); ++i) {
      const FoldedClass& of = ClassAt(i);
      if (of.node == nullptr) continue;
      const Strategy& strategy = ChosenStrategy(problem_, placement_, i);
      ModuleRow& row = RowFor(of);
      row.row.kernel_us += of.count() * strategy.kernel_us;
      row.row.move_us += of.count() * strategy.collective_us;
      const TensorType& type = of.result_type(0);
      if (of.node->meta().is_backward() || !type.defined() ||
          problem_.made_of_parameters(static_cast<int32_t>(i))) {
        continue;
      }
      const auto elements = static_cast<double>(ElementsOf(type, symbols_));
      if (elements < row.largest) continue;
      row.largest = elements;
      row.row.placed = names_.Describe(strategy.results[0], problem_.pieces()[i].results[0]);
    }
  }

  void AddMoves() {
    for (const PlacedEdge& edge : problem_.edges()) {
      const Move move = problem_.MoveOf(edge, placement_.labels[static_cast<size_t>(edge.from)],
                                        placement_.labels[static_cast<size_t>(edge.to)]);
      if (move.count == 0) continue;
      const auto& variable = problem_.variables()[static_cast<size_t>(edge.to)];
      ModuleRow& row = RowFor(ClassAt(
          static_cast<size_t>(variable.result >= 0 ? edge.class_index : variable.class_index)));
      const int32_t times = edge.count * (edge.visible + edge.forward + edge.backward);
      row.row.move_us += times * move.us;
      row.row.collectives += int64_t{times} * move.count;
      for (int i = 0; i < move.count; ++i) {
        row.row.moved_bytes += times * move.steps[static_cast<size_t>(i)].bytes;
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
        const std::string pattern = LayerPattern(*row.modules.begin());
        auto like = std::find_if(merged.begin(), merged.end(), [&](const ModuleRow& other) {
          return LayerPattern(*other.modules.begin()) == pattern &&
                 (!with_layout || other.row.placed.layout == row.row.placed.layout);
        });
        if (like == merged.end()) {
          merged.push_back(std::move(row));
          continue;
        }
        like->place = std::min(like->place, row.place);
        like->modules.merge(std::exchange(row.modules, {}));
        like->row.kernel_us += row.row.kernel_us;
        like->row.move_us += row.row.move_us;
        like->row.collectives += row.row.collectives;
        like->row.moved_bytes += row.row.moved_bytes;
      }
    }
    std::sort(merged.begin(), merged.end(),
              [](const ModuleRow& a, const ModuleRow& b) { return a.place < b.place; });
    return merged;
  }

  const PlaceProblem& problem_;
  const Placement& placement_;
  const CutNames names_;
  const SymbolValues symbols_;
  std::vector<const Node*> nodes_;
  std::map<std::string, size_t> places_;  // of rows, by name
  std::vector<ModuleRow> rows_;
};

}  // namespace

std::string LayerPattern(const std::string& name) {
  std::vector<std::string> parts = Split(name, '.');
  for (std::string& part : parts) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    if (number) part = "*";
  }
  return Join(parts, ".");
}

std::vector<PlacedInput> PlacedInputs(const PlaceProblem& problem, const Placement& placement) {
  const CutNames names(problem);
  const SymbolValues symbols = problem.graph().shapes().Hints();
  std::vector<PlacedInput> inputs;
  for (size_t i = 0; i < problem.folding().classes.size(); ++i) {
    const FoldedClass& of = problem.folding().classes[i];
    if (of.input == nullptr) continue;
    const TensorType& type = of.input->value.type();
    std::vector<std::string> sizes;
    for (const Dim& size : type.sizes) sizes.push_back(std::to_string(SizeAt(size, symbols)));
    const placement::Layout& layout = ChosenStrategy(problem, placement, i).results[0];
    const placement::Pieces& pieces = problem.pieces()[i].results[0];
    PlacedInput input{.name = of.input->name,
                      .parameter = of.input->role == InputRole::kParameter,
                      .type = fmt::format("{}[{}]", DTypeName(type.dtype), Join(sizes, ", ")),
                      .placed = names.Describe(layout, pieces),
                      .count = of.count(),
                      .bytes = static_cast<double>(ElementsOf(type, symbols)) *
                               ItemSize(type.dtype) * of.count() *
                               LocalFraction(layout, pieces, problem.pricing().mesh())};
    auto like = std::find_if(inputs.begin(), inputs.end(), [&](const PlacedInput& other) {
      return LayerPattern(other.name) == LayerPattern(input.name) && other.type == input.type &&
             other.placed.layout == input.placed.layout && other.parameter == input.parameter;
    });
    if (like == inputs.end()) {
      inputs.push_back(std::move(input));
    } else {
      like->count += input.count;
      like->bytes += input.bytes;
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
