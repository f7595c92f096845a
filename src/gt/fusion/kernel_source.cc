#include "gt/fusion/kernel_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "gt/base/text.h"
#include "gt/fusion/element_code.h"
#include "gt/fusion/kernel_memory.h"
#include "gt/fusion/kernel_text.h"
#include "gt/fusion/positions.h"

namespace gt::fusion {
namespace {

// Ways of rounding a complex product (element_code.cc).
constexpr int kComplexForms = 4;

// Of the operators.
std::string KernelName(const Graph& body) {
  constexpr size_t kMostNames = 4;
  std::vector<std::string> names;
  for (const Node* node : body.nodes()) {
    if (node->op().is_view()) continue;
    std::string name = node->op().name.str().substr(node->op().name.str().find("::") + 2);
    name = name.substr(0, name.find('.'));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (names.size() > kMostNames) {
    names[kMostNames - 1] = names.back();
    names.resize(kMostNames);
  }
  return "gt_" + Join(names, "_");
}

// Follows a graph from outputs to inputs.
class Writer {
 public:
  Writer(const Graph& body, int lanes, const KernelSourceOptions& options, const KernelPlan* plan)
      : body_(body),
        wide_(options.wide),
        form_(options.form),
        text_(body, lanes, plan),
        positions_(text_),
        memory_(text_, body) {}

  // Runs through the graph.
  void Write() {
    const TensorType& main = body_.outputs()[0]->value()->type();
    const Position position = text_.LoopOver(main);
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      const Value& value = *body_.outputs()[i]->value();
      const Position place = positions_.Regrouped(position, main.sizes, value.type().sizes);
      memory_.Store(static_cast<int>(i), value, place, Element(value, place));
    }
  }

  // After a run without a plan.
  KernelPlan MakePlan() const { return {text_.JoinedDims(), memory_.loaded()}; }

  KernelSource Finish() {
    KernelSource source;
    source.name = KernelName(body_);
    source.lanes = text_.lanes();
    source.wide = wide_;
    source.threads = text_.threads();
    const std::vector<std::string> head = text_.Head();  // adds arguments
    std::string text = fmt::format("#define COMPLEX_FORM {}\n", form_);
    text += KernelPrelude();
    text += fmt::format("typedef unsigned {}Size;\n\n", wide_ ? "long long " : "");
    text += fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}(\n",
                        kThreadsPerBlock, source.name);
    for (size_t i = 0; i < body_.inputs().size(); ++i) {
      text += fmt::format("    const {}* __restrict__ in{},\n",
                          StorageType(body_.inputs()[i]->value.type().dtype), i);
    }
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      text += fmt::format("    {}* __restrict__ out{},\n",
                          StorageType(body_.outputs()[i]->value()->type().dtype), i);
    }
    for (size_t i = 0; i < text_.sizes().size(); ++i)
      text += fmt::format("    const Size s{},\n", i);
    text += "    const Size threads) {\n";
    for (const std::string& line : head) text += "  " + line + "\n";
    for (const std::string& line : text_.lines()) text += "  " + line + "\n";
    text += "}\n";
    // Without complex products there is only one form.
    const bool complex = text.find("= ComplexMul(") != std::string::npos;
    source.forms = complex ? kComplexForms : 1;
    source.text = std::move(text);
    source.sizes = text_.sizes();
    for (const auto& [tensor, bytes] : memory_.aligned())
      source.pointers.push_back({tensor, bytes});
    return source;
  }

 private:
  // Values. Each returns an expression of the element in lane k.

  std::string Element(const Value& value, const Position& position) {
    std::string key = fmt::format("value {}", static_cast<const void*>(&value));
    for (const Index& index : position) key += " " + index.Key();
    if (const auto* known = text_.Find(key)) return *known;
    std::string text = value.is_input() ? memory_.LoadElement(value, position)
                                        : Computed(*value.producer(), value.index(), position);
    text_.Remember(key, text);
    return text;
  }

  std::string Computed(const Node& node, int32_t result, const Position& position) {
    switch (CodeKindOf(node)) {
      case CodeKind::kView:
        return ViewElement(node, result, position);
      case CodeKind::kElement: {
        std::vector<std::string> operands;
        for (int32_t i = 0; i < node.operand_count(); ++i) {
          const Value& operand = *node.operand(i);
          operands.push_back(Element(
              operand,
              positions_.Broadcast(position, node.result()->type().sizes, operand.type().sizes)));
        }
        const auto code = ElementCode(node, operands);
        if (!code) throw NoCode();
        return Define(node, *code);
      }
      case CodeKind::kCat:
        return CatElement(node, position);
      case CodeKind::kIndexSelect:
        return SelectedElement(node, position);
      case CodeKind::kSum:
        return SumElement(node, position);
      case CodeKind::kOneHot:
        return Define(node, OneHotElement(node, position));
      case CodeKind::kOneHotSoftmax: {
        if (node.operand(0)->is_input()) throw NoCode();  // nothing is known about what it sums up
        const std::string gradient = Element(*node.operand(0), position);
        const std::string output = Element(*node.operand(1), position);
        const std::string sum = OneHotSum(*node.operand(0)->producer(), position[0]);
        return Define(node,
                      fmt::format("Keep(LogSoftmaxBackward({}, {}, {}))", gradient, output, sum));
      }
      case CodeKind::kNone:
        break;
    }
    throw NoCode();
  }

  std::string Define(const Node& node, const std::string& code) {
    std::string name = text_.NewName('v');
    const std::string_view type = CodeType(node.result()->type().dtype);
    const std::string_view op = ShortName(node);
    if (text_.lanes() == 1) {
      text_.Line("const {} {} = {};  // {}", type, name, code, op);
      return name;
    }
    text_.Line("{} {}[{}]; LANES({}) {}[k] = {};  // {}", type, name, text_.lanes(), text_.lanes(),
               name, code, op);
    return name + "[k]";
  }

  static std::string_view ShortName(const Node& node) { return node.op().name.str(); }

  std::string ViewElement(const Node& node, int32_t result, const Position& position) {
    const std::string& name = node.op().name.str();
    const Value& base = *node.operand(0);
    if (name == "aten::view_as_complex") {
      Position real = position, imaginary = position;
      real.push_back(text_.Number(0));
      imaginary.push_back(text_.Number(1));
      return fmt::format("Complex{{{}, {}}}", Element(base, real), Element(base, imaginary));
    }
    if (name == "aten::view_as_real") {
      Position pair(position.begin(), position.end() - 1);
      const std::string number = Element(base, pair);
      const Index& part = position.back();
      if (part.IsNumber() && part.SameInAllLanes()) {
        return fmt::format("{}.{}", number, part.lanes().front() == 0 ? 'x' : 'y');
      }
      return fmt::format("({} ? {}.y : {}.x)", text_.IndexText(part), number, number);
    }
    std::string element = Element(base, positions_.Viewed(node, result, position));
    if (name == "aten::_conj") return fmt::format("Complex{{{0}.x, -{0}.y}}", element);
    return element;
  }

  std::string CatElement(const Node& node, const Position& position) {
    const auto& list = std::get<OperandList>(node.arg(0)).indices;
    const size_t d = DimIndex(node.arg(1), node.result()->type().rank());
    const Index& along = position[d];
    Dim start(0);
    // All lanes of a thread must be in the same operand.
    if (!along.SameInAllLanes()) RequireEqualLanes(along, node, d);
    const std::string name = text_.NewName('v');
    const std::string_view type = CodeType(node.result()->type().dtype);
    const std::string at = text_.BaseText(along, along.lanes().front());
    text_.Line(text_.lanes() == 1 ? "{} {};  // {}" : "{} {}[{}];  // {}", type, name,
               text_.lanes() == 1 ? std::string(ShortName(node)) : std::to_string(text_.lanes()),
               ShortName(node));
    for (size_t i = 0; i < list.size(); ++i) {
      const Value& operand = *node.operand(list[i]);
      const Dim end = start + operand.type().sizes[d];
      const bool last = i + 1 == list.size();
      const std::string otherwise = i == 0 ? "" : "} else ";
      text_.Line("{}{}", otherwise,
                 last ? "{" : fmt::format("if ({} < {}) {{", at, text_.SizeText(end)));
      text_.OpenScope();
      Position inside = position;
      inside[d] = InsideOperand(along, start, operand.type().sizes[d]);
      const std::string element = Element(operand, inside);
      if (text_.lanes() == 1) {
        text_.Line("{} = {};", name, element);
      } else {
        text_.Line("LANES({}) {}[k] = {};", text_.lanes(), name, element);
      }
      text_.CloseScope();
      start = end;
    }
    text_.Line("}}");
    return text_.lanes() == 1 ? name : name + "[k]";
  }

  // The place along the dimension of a concatenation, counted from where the operand begins: a variable
  // of its own, since only there it is known to be within the operand.
  Index InsideOperand(const Index& along, const Dim& start, const Dim& size) {
    const bool counts = !along.SameInAllLanes();
    const Dim extent = counts ? Dim(*size.as_const() / text_.lanes()) : size;
    const int variable = text_.NewVariable(fmt::format("j{}", text_.variables().size()), extent);
    const std::string from = text_.BaseText(along, along.lanes().front());
    const std::string& name = text_.NameOf(variable);
    const std::string less =
        start.Is(0) ? from : fmt::format("{} - {}", from, text_.SizeText(start));
    if (counts) {
      text_.Line("const Size {} = ({}) / {};", name, less, text_.lanes());
      return Index::Of(variable, Dim(text_.lanes()), text_.lanes()).WithLanes();
    }
    text_.Line("const Size {} = {};", name, less);
    return Index::Of(variable, 1, text_.lanes());
  }

  void RequireEqualLanes(const Index& along, const Node& cat, size_t d) const {
    const bool counts = along.lanes().front() == 0 &&
                        along.lanes().back() == static_cast<int64_t>(along.lanes().size()) - 1;
    if (!counts) throw NeedsOneLane();
    for (const auto& [variable, coefficient] : along.terms()) {
      if (!coefficient.is_const() || *coefficient.as_const() % text_.lanes() != 0)
        throw NeedsOneLane();
    }
    for (int32_t i = 0; i < cat.operand_count(); ++i) {
      const std::optional<int64_t> size = cat.operand(i)->type().sizes[d].as_const();
      if (!size || *size % text_.lanes() != 0) throw NeedsOneLane();
    }
  }

  std::string SelectedElement(const Node& node, const Position& position) {
    const size_t d = DimIndex(node.arg(1), node.operand(0)->type().rank());
    if (!position[d].SameInAllLanes()) throw NeedsOneLane();
    const std::string key =
        fmt::format("row {} {}", static_cast<const void*>(node.operand(1)), position[d].Key());
    int row;
    if (const auto* known = text_.Find(key)) {
      row = std::stoi(*known);
    } else {
      const std::string index = Element(*node.operand(1), {position[d]});
      row = text_.NewVariable(fmt::format("row{}", text_.variables().size()),
                              node.operand(0)->type().sizes[d]);
      const std::string& name = text_.NameOf(row);
      if (text_.lanes() == 1) {
        text_.Line("const Size {} = (Size){};  // {}", name, index, ShortName(node));
      } else {
        text_.Line("Size {}; {{ const int k = 0; (void)k; {} = (Size){}; }}  // {}", name, name,
                   index, ShortName(node));
      }
      text_.Remember(key, std::to_string(row));
    }
    Position selected = position;
    selected[d] = Index::Of(row, 1, text_.lanes());
    return Element(*node.operand(0), selected);
  }

  // As a thread of ATen's reduction does: four sums, each of every fourth element and beginning with 0,
  // which are then added up.
  std::string SumElement(const Node& node, const Position& position) {
    constexpr size_t kSums = 4;
    const TensorType& from = node.operand(0)->type();
    const bool keeps = std::get<bool>(node.arg(2));
    const size_t d = (DimIndex(Argument(std::get<Shape>(node.arg(1))[0]), from.rank()));
    const auto terms = static_cast<size_t>(*from.sizes[d].as_const());
    std::vector<std::string> sums(kSums, "0.0f");
    for (size_t i = 0; i < terms; ++i) {
      Position inside = position;
      if (keeps) {
        inside[d] = text_.Number(Dim(static_cast<int64_t>(i)));
      } else {
        inside.insert(inside.begin() + static_cast<ptrdiff_t>(d),
                      text_.Number(Dim(static_cast<int64_t>(i))));
      }
      std::string& sum = sums[i % kSums];
      sum = fmt::format("__fadd_rn({}, {})", sum, Element(*node.operand(0), inside));
    }
    std::string total = sums[0];
    for (size_t i = 1; i < kSums; ++i) total = fmt::format("__fadd_rn({}, {})", total, sums[i]);
    const DType dtype = node.result()->type().dtype;
    if (dtype == DType::kBFloat16) total = fmt::format("RoundBf16({})", total);
    if (dtype == DType::kFloat16) total = fmt::format("RoundHalf({})", total);
    return Define(node, total);
  }

  // (grad_output, self, target, weight, reduction, ignore_index, total_weight)
  std::string OneHotElement(const Node& node, const Position& position) {
    const std::string right = Element(*node.operand(2), {position[0]});
    return fmt::format("((long long)({}) == {} ? {} : 0.0f)", text_.IndexText(position[1]), right,
                       OneHotSum(node, position[0]));
  }

  // Of one row: adding zeros in any order changes nothing.
  std::string OneHotSum(const Node& node, const Index& row) {
    const std::string right = Element(*node.operand(2), {row});
    const std::string gradient = Element(*node.operand(0), {});
    return fmt::format("({} != {}LL ? -{} : 0.0f)", right, *std::get<Dim>(node.arg(5)).as_const(),
                       gradient);
  }

  const Graph& body_;
  const bool wide_;
  const int form_;
  KernelText text_;
  Positions positions_;
  KernelMemory memory_;
};

// As many elements as fill 16 bytes of the narrowest output, if rows have a multiple of that many.
int MostLanes(const Graph& body) {
  int lanes = 1;
  for (const auto& output : body.outputs()) {
    lanes = std::max(lanes, 16 / ItemSize(output->value()->type().dtype));
  }
  lanes = std::min(lanes, 8);
  const TensorType& main = body.outputs()[0]->value()->type();
  for (size_t d = 0; d < main.sizes.size(); ++d) {
    if (main.sizes[d].Is(1) || !main.strides[d].Is(1)) continue;
    if (!main.sizes[d].is_const()) return 1;
    while (*main.sizes[d].as_const() % lanes != 0) lanes /= 2;
    return lanes;
  }
  return 1;
}

KernelSource Written(const Graph& body, int lanes, const KernelSourceOptions& options) {
  Writer first(body, lanes, options, nullptr);
  first.Write();
  const KernelPlan plan = first.MakePlan();
  Writer second(body, lanes, options, &plan);
  second.Write();
  return second.Finish();
}

}  // namespace

std::optional<KernelSource> MakeKernelSource(const Graph& body,
                                             const KernelSourceOptions& options) {
  if (body.outputs().empty()) return std::nullopt;
  try {
    const int lanes = options.one_lane ? 1 : MostLanes(body);
    try {
      return Written(body, lanes, options);
    } catch (const NeedsOneLane&) {
      return Written(body, 1, options);
    }
  } catch (const NoCode&) {
    return std::nullopt;
  }
}

bool SameLoop(const TensorType& a, const TensorType& b) {
  if (a.sizes == b.sizes) return true;
  // Under other sizes both must be row-major to be in the same order.
  const auto is_row_major = [](const TensorType& type) {
    Dim stride(1);
    for (size_t d = type.sizes.size(); d-- > 0;) {
      if (!type.sizes[d].Is(1) && type.strides[d] != stride) return false;
      stride *= type.sizes[d];
    }
    return true;
  };
  return a.numel() == b.numel() && is_row_major(a) && is_row_major(b);
}

}  // namespace gt::fusion
