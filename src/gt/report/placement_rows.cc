#include "gt/report/placement_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
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

// A row with the modules it is about.
struct ModuleRow {
  int32_t first = std::numeric_limits<int32_t>::max();  // number of the first node
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

  const std::string& InputName(int32_t i) const {
    return problem_.graph().inputs()[static_cast<size_t>(i)]->name;
  }
  std::string ModuleOf(const FoldedClass& of, int32_t member) const {
    std::string module;
    if (of.node != nullptr) {
      module = nodes_[static_cast<size_t>(member)]->meta().module.str();
    } else if (const size_t point = InputName(member).rfind('.'); point != std::string::npos) {
      module = InputName(member).substr(0, point);
    }
    return module.empty() ? "(step)" : module;
  }

  // Calls visit(row, share of the class's members) for each kind of module in a class: the norm after the
  // last layer may be computed like those at the beginning of layers.
  template <typename Visit>
  void ForEachRow(const FoldedClass& of, Visit&& visit) {
    std::map<std::string, std::vector<std::string>> kinds;
    std::map<std::string, int32_t> first;
    for (int32_t member : of.members) {
      const std::string module = ModuleOf(of, member);
      kinds[LayerPattern(module)].push_back(module);
      if (of.node != nullptr) first.try_emplace(LayerPattern(module), member);
    }
    for (const auto& kind : kinds) {
      const std::string& pattern = kind.first;
      const std::vector<std::string>& modules = kind.second;
      const bool one = std::all_of(modules.begin(), modules.end(),
                                   [&](const std::string& m) { return m == modules.front(); });
      auto [found, is_new] = places_.try_emplace(one ? modules.front() : pattern, rows_.size());
      if (is_new) rows_.push_back({});
      ModuleRow& row = rows_[found->second];
      row.modules.insert(modules.begin(), modules.end());
      if (first.contains(pattern)) row.first = std::min(row.first, first.at(pattern));
      visit(row, static_cast<double>(modules.size()) / of.count());
    }
  }

  void AddKernels() {
    for (size_t i = 0; i < problem_.folding().classes.size(); ++i) {
      const FoldedClass& of = ClassAt(i);
      if (of.node == nullptr) continue;
      const Strategy& strategy = ChosenStrategy(problem_, placement_, i);
      const TensorType& type = of.result_type(0);
      const bool shown = !of.node->meta().is_backward() && type.defined() &&
                         !problem_.made_of_parameters(static_cast<int32_t>(i));
      const double elements = shown ? static_cast<double>(ElementsOf(type, symbols_)) : 0;
      ForEachRow(of, [&](ModuleRow& row, double share) {
        row.row.kernel_us += share * of.count() * strategy.kernel_us;
        row.row.move_us += share * of.count() * strategy.collective_us;
        if (!shown || elements < row.largest) return;
        row.largest = elements;
        row.row.placed = names_.Describe(strategy.results[0], problem_.pieces()[i].results[0]);
      });
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
      ForEachRow(ClassAt(static_cast<size_t>(to)), [&](ModuleRow& row, double share) {
        const double times = share * edge.count * (edge.visible + edge.forward + edge.backward);
        row.row.move_us += times * move.us;
        row.row.collectives += times * move.count;
        row.row.moved_bytes += times * bytes;
      });
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
    for (int32_t member : of.members) {
      const Input& one = *problem.graph().inputs()[static_cast<size_t>(member)];
      PlacedInput input{.name = one.name,
                        .parameter = one.role == InputRole::kParameter,
                        .type = fmt::format("{}[{}]", DTypeName(type.dtype), Join(sizes, ", ")),
                        .placed = names.Describe(layout, pieces),
                        .count = 1,
                        .bytes = static_cast<double>(ElementsOf(type, symbols)) *
                                 ItemSize(type.dtype) *
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
