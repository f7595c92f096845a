#include "gt/exec/binding.h"

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/torch_bridge/convert.h"

namespace gt {

InputBinder::InputBinder(const Graph& graph) : graph_(graph) {
  std::vector<bool> bound(graph.shapes().symbols().size(), false);
  for (const auto& input : graph.inputs()) {
    c10::DimVector plain;
    const Shape& sizes = input->value.type().sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      plain.push_back(sizes[d].as_const().value_or(-1));
      if (sizes[d].is_const()) continue;
      std::optional<Dim::Multiple> multiple = sizes[d].as_multiple();
      bool binds = multiple && !bound[multiple->symbol];
      if (binds) bound[multiple->symbol] = true;
      checks_.push_back({input->value.index(), static_cast<int32_t>(d), sizes[d], binds});
    }
    sizes_.push_back(std::move(plain));
  }
  // Symbols are bound before expressions over them are checked.
  std::stable_partition(checks_.begin(), checks_.end(),
                        [](const SizeCheck& check) { return check.binds; });
}

bool InputBinder::Bind(std::span<const at::Tensor> inputs, std::vector<int64_t>& values) const {
  if (inputs.size() != sizes_.size()) {
    Fail(ErrorCode::kInputMismatch, "the graph has {} inputs, but {} were given", sizes_.size(),
         inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = inputs[i];
    const Input& input = *graph_.inputs()[i];
    const TensorType& type = input.value.type();
    bool fits = tensor.defined() && tensor.dim() == type.rank() &&
                tensor.scalar_type() == ToTorch(type.dtype) &&
                tensor.device().type() == ToTorch(type.device).type();
    if (fits) {
      c10::IntArrayRef sizes = tensor.sizes();
      for (size_t d = 0; d < sizes.size(); ++d) {
        fits &= sizes_[i][d] < 0 || sizes_[i][d] == sizes[d];
      }
    }
    if (!fits) {
      std::string given = "nothing";
      if (tensor.defined()) given = Print(TypeOf(tensor), graph_.shapes());
      Fail(ErrorCode::kInputMismatch,
           "input '{}' must be {}, but {} was given; capture the step again for such inputs",
           input.name, Print(type, graph_.shapes()), given);
    }
  }
  bool changed = false;
  for (const SizeCheck& check : checks_) {
    int64_t size = inputs[static_cast<size_t>(check.input)].size(check.dim);
    if (check.binds) {
      auto [factor, id] = *check.expected.as_multiple();
      const Symbol& symbol = graph_.shapes().symbol(id);
      int64_t value = size / factor;
      if (value < symbol.low || value > symbol.high || size % factor != 0) {
        Fail(ErrorCode::kSizeOutOfRange,
             "dimension {} of input '{}' is {}, but must be {} with {} in [{}, {}], the range that "
             "the graph was captured for",
             check.dim, graph_.inputs()[static_cast<size_t>(check.input)]->name, size,
             graph_.shapes().Print(check.expected), symbol.name, symbol.low,
             symbol.high == kUnbounded ? "inf" : std::to_string(symbol.high));
      }
      changed |= values[id] != value;
      values[id] = value;
    } else if (int64_t expected = check.expected.Evaluate(values); expected != size) {
      Fail(ErrorCode::kInputMismatch, "dimension {} of input '{}' is {}, but must be {} = {}",
           check.dim, graph_.inputs()[static_cast<size_t>(check.input)]->name, size,
           graph_.shapes().Print(check.expected), expected);
    }
  }
  if (changed) CheckGuards(values);
  return changed;
}

void InputBinder::CheckGuards(const std::vector<int64_t>& values) const {
  const Guard* broken = graph_.shapes().FirstBroken(values);
  if (broken == nullptr) return;
  Fail(ErrorCode::kGuardBroken,
       "the inputs break the guard {}, which {} in module '{}' relied on when the step was "
       "captured; capture it again "
       "for such sizes",
       broken->predicate.ToString(graph_.shapes().Namer()),
       broken->op.empty() ? "the program" : broken->op.str(), broken->module.str());
}

}  // namespace gt
