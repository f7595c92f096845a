#include "gt/fusion/kernel_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include "gt/base/text.h"
#include "gt/fusion/element_code.h"
#include "gt/fusion/index.h"

namespace gt::fusion {
namespace {

// Some part of the graph has no code.
struct NoCode {};

using Position = std::vector<Index>;  // of an element, by dimension

int64_t NormalizedDim(const Argument& argument, int64_t rank) {
  const int64_t dim = std::get<Dim>(argument).as_const().value_or(0);
  return dim < 0 ? dim + rank : dim;
}

// What the first run through the graph finds out for the second, which writes the text.
// Ways of rounding a complex product (element_code.cc).
constexpr int kComplexForms = 4;

struct Plan {
  // By dimension of the loop, outermost first: it is counted together with the next one.
  std::vector<bool> joins_next;
  // By input and place without lanes: the numbers of elements from there on that lanes need.
  std::map<std::string, std::set<int64_t>> loaded;
};

class Writer {
 public:
  Writer(const Graph& body, int lanes, const KernelSourceOptions& options, const Plan* plan)
      : body_(body), lanes_(lanes), wide_(options.wide), form_(options.form), plan_(plan) {
    hints_ = body.shapes().Hints();
    scopes_.emplace_back();
  }

  // Runs through the graph.
  void Write() {
    const TensorType& main = body_.outputs()[0]->value()->type();
    const Position position = LoopOver(main);
    for (size_t i = 0; i < body_.outputs().size(); ++i) {
      const Value& value = *body_.outputs()[i]->value();
      Store(static_cast<int>(i), value, Regrouped(position, main.sizes, value.type().sizes));
    }
  }

  // After a run without a plan.
  Plan MakePlan() {
    Plan plan;
    plan.loaded = std::move(loaded_);
    for (size_t i = 0; i + 1 < loop_.size(); ++i) {
      plan.joins_next.push_back(std::all_of(uses_.begin(), uses_.end(), [&](const Index& use) {
        return CoefficientOf(use, loop_[i]) ==
               CoefficientOf(use, loop_[i + 1]) * *variables_[At(loop_[i + 1])].extent;
      }));
    }
    plan.joins_next.push_back(false);
    return plan;
  }

  KernelSource Finish() {
    KernelSource source;
    source.name = NameOf(body_);
    source.lanes = lanes_;
    source.wide = wide_;
    source.threads = threads_;
    const std::vector<std::string> head = Head();  // adds arguments
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
    for (size_t i = 0; i < sizes_.size(); ++i) text += fmt::format("    const Size s{},\n", i);
    text += "    const Size threads) {\n";
    for (const std::string& line : head) text += "  " + line + "\n";
    for (const std::string& line : lines_) text += "  " + line + "\n";
    text += "}\n";
    // Without complex products there is only one form.
    const bool complex = text.find("= ComplexMul(") != std::string::npos;
    source.forms = complex ? kComplexForms : 1;
    source.text = std::move(text);
    source.sizes = sizes_;
    for (const auto& [tensor, bytes] : aligned_) source.pointers.push_back({tensor, bytes});
    return source;
  }

 private:
  static size_t At(int number) { return static_cast<size_t>(number); }
  int64_t Hint(const Dim& dim) const { return dim.Evaluate(hints_); }
  Index Number(const Dim& dim) const { return {dim, lanes_}; }

  static Dim CoefficientOf(const Index& index, int variable) {
    const auto found = index.terms().find(variable);
    return found == index.terms().end() ? Dim(0) : found->second;
  }

  // The loop: a variable for each dimension of the output, in the order of memory.

  Position LoopOver(const TensorType& type) {
    Position position(type.sizes.size(), Number(0));
    std::vector<size_t> dims;
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      if (!type.sizes[d].Is(1)) dims.push_back(d);
    }
    std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
      return Hint(type.strides[a]) > Hint(type.strides[b]);
    });
    threads_ = Dim(1);
    for (size_t d : dims) {
      Dim extent = type.sizes[d];
      const bool innermost = d == dims.back();
      if (innermost && lanes_ > 1) extent = Dim(*extent.as_const() / lanes_);
      const int variable = NewVariable("", extent);
      loop_.push_back(variable);
      threads_ *= extent;
      position[d] = Index::Of(variable, Dim(innermost ? lanes_ : 1), lanes_);
      if (innermost && lanes_ > 1) position[d] = position[d].WithLanes();
    }
    for (size_t i = 0; i < loop_.size(); ++i) {
      variables_[At(loop_[i])].name = fmt::format("i{}", i);
    }
    return position;
  }

  int NewVariable(std::string name, std::optional<Dim> extent) {
    variables_.push_back({std::move(name), std::move(extent)});
    return static_cast<int>(variables_.size()) - 1;
  }

  bool JoinsNext(int variable) const {
    for (size_t i = 0; i < loop_.size(); ++i) {
      if (loop_[i] == variable) return plan_ != nullptr && plan_->joins_next[i];
    }
    return false;
  }

  // From the number of the thread to the loop's variables.
  std::vector<std::string> Head() {
    std::vector<std::string> head = {
        fmt::format("const Size thread = (Size)blockIdx.x * {} + threadIdx.x;", kThreadsPerBlock),
        "if (thread >= threads) return;"};
    std::string rest = "thread";
    for (size_t i = loop_.size(); i-- > 0;) {
      if (JoinsNext(loop_[i])) continue;
      Dim extent = *variables_[At(loop_[i])].extent;
      size_t first = i;
      while (first > 0 && JoinsNext(loop_[first - 1])) {
        extent *= *variables_[At(loop_[--first])].extent;
      }
      const std::string& name = variables_[At(loop_[i])].name;
      if (first == 0) {
        head.push_back(fmt::format("const Size {} = {};", name, rest));
        break;
      }
      const std::string by = SizeText(extent);
      const std::string next = fmt::format("rest{}", i);
      head.push_back(
          fmt::format("const Size {} = {} % {}, {} = {} / {};", name, rest, by, next, rest, by));
      rest = next;
    }
    return head;
  }

  // Text of sizes and indices.

  std::string SizeText(const Dim& dim) {
    constexpr int64_t kLargestNumber = 16;
    if (const auto number = dim.as_const(); number && *number <= kLargestNumber) {
      return fmt::format("{}", *number);
    }
    const auto found = std::find(sizes_.begin(), sizes_.end(), dim);
    const auto at = found - sizes_.begin();
    if (found == sizes_.end()) sizes_.push_back(dim);
    return fmt::format("s{}", at);
  }

  // Without what differs between lanes.
  std::string BaseText(const Index& index, int64_t number) {
    uses_.push_back(index);
    std::vector<std::string> parts;
    for (const auto& [variable, coefficient] : index.terms()) {
      if (JoinsNext(variable)) continue;  // part of the next one
      const std::string& name = variables_[At(variable)].name;
      parts.push_back(coefficient.Is(1) ? name
                                        : fmt::format("{} * {}", name, SizeText(coefficient)));
    }
    if (!index.constant().Is(0)) parts.push_back(SizeText(index.constant()));
    if (number != 0 || parts.empty()) {
      parts.push_back(number < 0 ? fmt::format("({})", number) : SizeText(Dim(number)));
    }
    return Join(parts, " + ");
  }

  std::string IndexText(const Index& index) {
    if (index.SameInAllLanes()) return BaseText(index, index.lanes().front());
    const std::optional<std::string> lanes = LaneText(index.lanes());
    if (!lanes) throw NeedsOneLane();
    if (index.IsNumber()) return *lanes;
    return fmt::format("{} + {}", BaseText(index, 0), *lanes);
  }

  // Indices of one shape from those of another.

  Index::Divided Divide(const Index& index, const Dim& size) {
    if (auto divided = index.DividedBy(size, variables_)) return *divided;
    if (!index.SameInAllLanes()) throw NeedsOneLane();
    const std::string key = fmt::format("divide {} {}", index.Key(), DimKey(size));
    if (const auto* known = Find(key)) {
      const int first = std::stoi(*known);
      return {Index::Of(first, 1, lanes_), Index::Of(first + 1, 1, lanes_)};
    }
    const int quotient = NewVariable(fmt::format("q{}", variables_.size()), std::nullopt);
    const int remainder = NewVariable(fmt::format("r{}", variables_.size()), size);
    const std::string text = IndexText(index);
    const std::string by = SizeText(size);
    Line("const Size {} = ({}) / {}, {} = ({}) % {};", variables_[At(quotient)].name, text, by,
         variables_[At(remainder)].name, text, by);
    Remember(key, std::to_string(quotient));
    return {Index::Of(quotient, 1, lanes_), Index::Of(remainder, 1, lanes_)};
  }

  // The same element of a row-major order under other sizes. Dimensions are compared from the front:
  // those that are the same in both shapes stay as they are.
  Position Regrouped(const Position& from, const Shape& sizes, const Shape& to) {
    if (sizes == to) return from;
    Position position(to.size(), Number(0));
    size_t a = 0, b = 0;
    while (a < sizes.size() || b < to.size()) {
      if (a < sizes.size() && sizes[a].Is(1)) {
        ++a;
        continue;
      }
      if (b < to.size() && to[b].Is(1)) {
        ++b;
        continue;
      }
      if (a == sizes.size() || b == to.size()) throw NoCode();
      size_t a_end = a + 1, b_end = b + 1;
      Dim left = sizes[a], right = to[b];
      while (left != right) {
        const bool grow_left = Hint(left) < Hint(right);
        if (grow_left ? a_end == sizes.size() : b_end == to.size()) throw NoCode();
        (grow_left ? left : right) *= grow_left ? sizes[a_end++] : to[b_end++];
      }
      Index number = Number(0);
      for (; a < a_end; ++a) number = number * sizes[a] + from[a];
      for (size_t last = b_end - 1; last > b; --last) {
        Index::Divided divided = Divide(number, to[last]);
        position[last] = divided.remainder;
        number = divided.quotient;
      }
      position[b] = number;
      b = b_end;
    }
    return position;
  }

  // Where an operand that is broadcast has the element.
  Position Broadcast(const Position& position, const Shape& from, const Shape& to) {
    Position result(to.size(), Number(0));
    const size_t added = from.size() - to.size();
    for (size_t d = 0; d < to.size(); ++d) {
      const bool repeated = to[d].Is(1) && !from[d + added].Is(1);
      if (!repeated) result[d] = position[d + added];
    }
    return result;
  }

  Position Viewed(const Node& view, int32_t result, const Position& position) {
    const std::string& name = view.op().name.str();
    const TensorType& from = view.result(result)->type();
    const TensorType& to = view.operand(0)->type();
    const int64_t rank = to.rank();
    if (name == "aten::alias" || name == "aten::detach" || name == "aten::_conj") return position;
    if (view.op().view == ViewKind::kReshape || view.op().view == ViewKind::kSameOrder) {
      return Regrouped(position, from.sizes, to.sizes);
    }
    if (name == "aten::expand") return Broadcast(position, from.sizes, to.sizes);
    Position moved = position;
    if (name == "aten::t") {
      if (rank == 2) std::swap(moved[0], moved[1]);
      return moved;
    }
    if (name == "aten::transpose.int") {
      if (rank > 0) {
        std::swap(moved[Size(NormalizedDim(view.arg(1), rank))],
                  moved[Size(NormalizedDim(view.arg(2), rank))]);
      }
      return moved;
    }
    if (name == "aten::permute") {
      const Shape& dims = std::get<Shape>(view.arg(1));
      for (size_t d = 0; d < dims.size(); ++d) {
        moved[Size(NormalizedDim(Argument(dims[d]), rank))] = position[d];
      }
      return moved;
    }
    if (name == "aten::slice.Tensor") {
      const size_t d = Size(NormalizedDim(view.arg(1), rank));
      const Dim step = std::get<Dim>(view.arg(4));
      moved[d] = moved[d] * step + Number(StartOf(view, to.sizes[d]));
      return moved;
    }
    if (name == "aten::select.int" || name == "aten::unbind.int") {
      const bool selects = name == "aten::select.int";
      const size_t d = Size(NormalizedDim(view.arg(1), rank));
      Dim at = selects ? std::get<Dim>(view.arg(2)) : Dim(result);
      if (at.is_const() && *at.as_const() < 0) at += to.sizes[d];
      moved.insert(moved.begin() + static_cast<ptrdiff_t>(d), Number(at));
      return moved;
    }
    if (name == "aten::split.Tensor" || name == "aten::split_with_sizes") {
      const size_t d = Size(NormalizedDim(view.arg(2), rank));
      Dim start(0);
      for (int32_t i = 0; i < result; ++i) start += view.result(i)->type().sizes[d];
      moved[d] = moved[d] + Number(start);
      return moved;
    }
    throw NoCode();
  }

  static size_t Size(int64_t number) { return static_cast<size_t>(number); }

  static Dim StartOf(const Node& slice, const Dim& size) {
    const auto* start = std::get_if<Dim>(&slice.arg(2));
    if (start == nullptr) return Dim(0);
    if (!start->is_const() || *start->as_const() >= 0) return *start;
    if (!size.is_const()) throw NoCode();
    return Dim(std::max<int64_t>(0, *size.as_const() + *start->as_const()));
  }

  // Values. Each returns an expression of the element in lane k.

  std::string Element(const Value& value, const Position& position) {
    std::string key = fmt::format("value {}", static_cast<const void*>(&value));
    for (const Index& index : position) key += " " + index.Key();
    if (const auto* known = Find(key)) return *known;
    std::string text = value.is_input() ? LoadElement(value, position)
                                        : Computed(*value.producer(), value.index(), position);
    Remember(key, text);
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
              operand, Broadcast(position, node.result()->type().sizes, operand.type().sizes)));
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

  std::string NewName(char letter) { return fmt::format("{}{}", letter, names_++); }

  std::string Define(const Node& node, const std::string& code) {
    std::string name = NewName('v');
    const std::string_view type = CodeType(node.result()->type().dtype);
    const std::string_view op = ShortName(node);
    if (lanes_ == 1) {
      Line("const {} {} = {};  // {}", type, name, code, op);
      return name;
    }
    Line("{} {}[{}]; LANES({}) {}[k] = {};  // {}", type, name, lanes_, lanes_, name, code, op);
    return name + "[k]";
  }

  static std::string_view ShortName(const Node& node) { return node.op().name.str(); }

  std::string ViewElement(const Node& node, int32_t result, const Position& position) {
    const std::string& name = node.op().name.str();
    const Value& base = *node.operand(0);
    if (name == "aten::view_as_complex") {
      Position real = position, imaginary = position;
      real.push_back(Number(0));
      imaginary.push_back(Number(1));
      return fmt::format("Complex{{{}, {}}}", Element(base, real), Element(base, imaginary));
    }
    if (name == "aten::view_as_real") {
      Position pair(position.begin(), position.end() - 1);
      const std::string number = Element(base, pair);
      const Index& part = position.back();
      if (part.IsNumber() && part.SameInAllLanes()) {
        return fmt::format("{}.{}", number, part.lanes().front() == 0 ? 'x' : 'y');
      }
      return fmt::format("({} ? {}.y : {}.x)", IndexText(part), number, number);
    }
    std::string element = Element(base, Viewed(node, result, position));
    if (name == "aten::_conj") return fmt::format("Complex{{{0}.x, -{0}.y}}", element);
    return element;
  }

  std::string CatElement(const Node& node, const Position& position) {
    const auto& list = std::get<OperandList>(node.arg(0)).indices;
    const size_t d = Size(NormalizedDim(node.arg(1), node.result()->type().rank()));
    const Index& along = position[d];
    Dim start(0);
    // All lanes of a thread must be in the same operand.
    if (!along.SameInAllLanes()) RequireEqualLanes(along, node, d);
    const std::string name = NewName('v');
    const std::string_view type = CodeType(node.result()->type().dtype);
    const std::string at = BaseText(along, along.lanes().front());
    Line(lanes_ == 1 ? "{} {};  // {}" : "{} {}[{}];  // {}", type, name,
         lanes_ == 1 ? std::string(ShortName(node)) : std::to_string(lanes_), ShortName(node));
    for (size_t i = 0; i < list.size(); ++i) {
      const Value& operand = *node.operand(list[i]);
      const Dim end = start + operand.type().sizes[d];
      const bool last = i + 1 == list.size();
      const std::string otherwise = i == 0 ? "" : "} else ";
      Line("{}{}", otherwise, last ? "{" : fmt::format("if ({} < {}) {{", at, SizeText(end)));
      scopes_.emplace_back();
      ++indent_;
      Position inside = position;
      inside[d] = InsideOperand(along, start, operand.type().sizes[d]);
      const std::string element = Element(operand, inside);
      if (lanes_ == 1) {
        Line("{} = {};", name, element);
      } else {
        Line("LANES({}) {}[k] = {};", lanes_, name, element);
      }
      --indent_;
      scopes_.pop_back();
      start = end;
    }
    Line("}}");
    return lanes_ == 1 ? name : name + "[k]";
  }

  // The place along the dimension of a concatenation, counted from where the operand begins: a variable
  // of its own, since only there it is known to be within the operand.
  Index InsideOperand(const Index& along, const Dim& start, const Dim& size) {
    const bool counts = !along.SameInAllLanes();
    const Dim extent = counts ? Dim(*size.as_const() / lanes_) : size;
    const int variable = NewVariable(fmt::format("j{}", variables_.size()), extent);
    const std::string from = BaseText(along, along.lanes().front());
    const std::string& name = variables_[At(variable)].name;
    const std::string less = start.Is(0) ? from : fmt::format("{} - {}", from, SizeText(start));
    if (counts) {
      Line("const Size {} = ({}) / {};", name, less, lanes_);
      return Index::Of(variable, Dim(lanes_), lanes_).WithLanes();
    }
    Line("const Size {} = {};", name, less);
    return Index::Of(variable, 1, lanes_);
  }

  void RequireEqualLanes(const Index& along, const Node& cat, size_t d) const {
    const bool counts = along.lanes().front() == 0 &&
                        along.lanes().back() == static_cast<int64_t>(along.lanes().size()) - 1;
    if (!counts) throw NeedsOneLane();
    for (const auto& [variable, coefficient] : along.terms()) {
      if (!coefficient.is_const() || *coefficient.as_const() % lanes_ != 0) throw NeedsOneLane();
    }
    for (int32_t i = 0; i < cat.operand_count(); ++i) {
      const std::optional<int64_t> size = cat.operand(i)->type().sizes[d].as_const();
      if (!size || *size % lanes_ != 0) throw NeedsOneLane();
    }
  }

  std::string SelectedElement(const Node& node, const Position& position) {
    const size_t d = Size(NormalizedDim(node.arg(1), node.operand(0)->type().rank()));
    if (!position[d].SameInAllLanes()) throw NeedsOneLane();
    const std::string key =
        fmt::format("row {} {}", static_cast<const void*>(node.operand(1)), position[d].Key());
    int row;
    if (const auto* known = Find(key)) {
      row = std::stoi(*known);
    } else {
      const std::string index = Element(*node.operand(1), {position[d]});
      row = NewVariable(fmt::format("row{}", variables_.size()), node.operand(0)->type().sizes[d]);
      const std::string& name = variables_[At(row)].name;
      if (lanes_ == 1) {
        Line("const Size {} = (Size){};  // {}", name, index, ShortName(node));
      } else {
        Line("Size {}; {{ const int k = 0; (void)k; {} = (Size){}; }}  // {}", name, name, index,
             ShortName(node));
      }
      Remember(key, std::to_string(row));
    }
    Position selected = position;
    selected[d] = Index::Of(row, 1, lanes_);
    return Element(*node.operand(0), selected);
  }

  // As a thread of ATen's reduction does: four sums, each of every fourth element and beginning with 0,
  // which are then added up.
  std::string SumElement(const Node& node, const Position& position) {
    constexpr size_t kSums = 4;
    const TensorType& from = node.operand(0)->type();
    const bool keeps = std::get<bool>(node.arg(2));
    const size_t d = Size(NormalizedDim(Argument(std::get<Shape>(node.arg(1))[0]), from.rank()));
    const auto terms = static_cast<size_t>(*from.sizes[d].as_const());
    std::vector<std::string> sums(kSums, "0.0f");
    for (size_t i = 0; i < terms; ++i) {
      Position inside = position;
      if (keeps) {
        inside[d] = Number(Dim(static_cast<int64_t>(i)));
      } else {
        inside.insert(inside.begin() + static_cast<ptrdiff_t>(d),
                      Number(Dim(static_cast<int64_t>(i))));
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
    return fmt::format("((long long)({}) == {} ? {} : 0.0f)", IndexText(position[1]), right,
                       OneHotSum(node, position[0]));
  }

  // Of one row: adding zeros in any order changes nothing.
  std::string OneHotSum(const Node& node, const Index& row) {
    const std::string right = Element(*node.operand(2), {row});
    const std::string gradient = Element(*node.operand(0), {});
    return fmt::format("({} != {}LL ? -{} : 0.0f)", right, *std::get<Dim>(node.arg(5)).as_const(),
                       gradient);
  }

  // Memory.

  Index Address(const TensorType& type, const Position& position) const {
    Index address = Number(0);
    for (size_t d = 0; d < position.size(); ++d) {
      if (type.sizes[d].Is(1)) continue;
      address = address + position[d] * type.strides[d];
    }
    return address;
  }

  // Whether vectors of this many elements from there on can be moved as one.
  bool CanBeVector(const Index& address, int64_t first, int64_t count, DType dtype,
                   int32_t tensor) {
    const bool power = (count & (count - 1)) == 0;
    if (!power || count < 2 || first % count != 0) return false;
    const auto is_multiple = [count](const Dim& dim) {
      if (dim.is_const()) return *dim.as_const() % count == 0;
      return dim.CoefficientGcd() % count == 0 && dim.ConstantTerm() % count == 0;
    };
    for (const auto& [variable, coefficient] : address.terms()) {
      if (!is_multiple(coefficient)) return false;
    }
    if (!is_multiple(address.constant())) return false;
    int64_t& aligned = aligned_[tensor];
    aligned = std::max<int64_t>(aligned, std::min<int64_t>(16, count * ItemSize(dtype)));
    return true;
  }

  std::string LoadElement(const Value& value, const Position& position) {
    const Index address = Address(value.type(), position);
    const DType dtype = value.type().dtype;
    const std::string_view type = StorageType(dtype);
    const int32_t tensor = value.index();
    if (address.SameInAllLanes()) {
      std::string name = NewName('x');
      Line("const {} {} = {};", CodeType(dtype), name,
           Loaded(dtype,
                  fmt::format("in{}[{}]", tensor, BaseText(address, address.lanes().front()))));
      return name;
    }
    const Index base = address + address.NegatedLanes();
    // What is near each other is loaded together.
    const int64_t lowest = *std::min_element(address.lanes().begin(), address.lanes().end());
    const std::string key = fmt::format("load {} {} {}", tensor, base.Key(),
                                        lowest >= 0 ? lowest / lanes_ : lowest - lanes_);
    std::set<int64_t>& needed = loaded_[key];
    needed.insert(address.lanes().begin(), address.lanes().end());
    // The first run knows only what it has seen so far; its text is not used.
    const std::set<int64_t>& all = plan_ == nullptr ? needed : plan_->loaded.at(key);
    const int64_t first = *all.begin(), count = *all.rbegin() - first + 1;
    if (count > 2 * static_cast<int64_t>(lanes_)) {
      const std::string name = NewName('x');
      Line("{} {}[{}]; LANES({}) {}[k] = in{}[{}];", type, name, lanes_, lanes_, name, tensor,
           IndexText(address));
      return Loaded(dtype, name + "[k]");
    }
    std::string name;
    if (const auto* known = Find(key)) {
      name = *known;
    } else {
      name = NewName('x');
      const std::string from = BaseText(base, first);
      if (CanBeVector(base, first, count, dtype, tensor)) {
        Line("const Vec<{}, {}> {} = Load<{}>(in{} + {});", type, count, name, count, tensor, from);
      } else {
        Line("{} {}[{}]; LANES({}) {}[k] = in{}[{} + k];", type, name, count, count, name, tensor,
             from);
      }
      Remember(key, name);
    }
    std::vector<int64_t> lanes(address.lanes().begin(), address.lanes().end());
    for (int64_t& lane : lanes) lane -= first;
    const std::optional<std::string> lane = LaneText(lanes);
    if (!lane) throw NeedsOneLane();
    return Loaded(dtype, fmt::format("{}[{}]", name, *lane));
  }

  void Store(int output, const Value& value, const Position& position) {
    const DType dtype = value.type().dtype;
    const std::string element = Stored(dtype, Element(value, position));
    const Index address = Address(value.type(), position);
    if (lanes_ == 1) {
      Line("out{}[{}] = {};", output, BaseText(address, address.lanes().front()), element);
      return;
    }
    const auto tensor = static_cast<int32_t>(body_.inputs().size()) + output;
    bool counts = true;
    for (size_t k = 0; k < address.lanes().size(); ++k) {
      counts &= address.lanes()[k] == static_cast<int64_t>(k);
    }
    const Index base = address + address.NegatedLanes();
    if (!counts || !CanBeVector(base, 0, lanes_, dtype, tensor)) {
      Line("LANES({}) out{}[{}] = {};", lanes_, output, IndexText(address), element);
      return;
    }
    const std::string name = NewName('y');
    Line("Vec<{}, {}> {}; LANES({}) {}[k] = {};", StorageType(dtype), lanes_, name, lanes_, name,
         element);
    Line("Store(out{} + {}, {});", output, BaseText(base, 0), name);
  }

  // Lines, and what is known where they are.

  template <typename... Args>
  void Line(const char* format, Args&&... args) {
    lines_.push_back(std::string(2 * static_cast<size_t>(indent_), ' ') +
                     fmt::format(fmt::runtime(format), std::forward<Args>(args)...));
  }

  const std::string* Find(const std::string& key) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(key);
      if (found != scope->end()) return &found->second;
    }
    return nullptr;
  }
  void Remember(const std::string& key, const std::string& text) { scopes_.back()[key] = text; }

  static std::string DimKey(const Dim& dim) {
    return dim.ToString([](SymbolId id) { return fmt::format("s{}", id); });
  }

  static std::string NameOf(const Graph& body) {
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

  const Graph& body_;
  const int lanes_;
  const bool wide_;
  const int form_;
  const Plan* plan_;
  SymbolValues hints_;
  std::vector<Variable> variables_;
  std::vector<int> loop_;  // variables of the loop, outermost first
  Dim threads_;
  std::vector<Index> uses_;  // whatever is written as text
  std::map<std::string, std::set<int64_t>> loaded_;
  std::vector<Dim> sizes_;
  std::map<int32_t, int64_t> aligned_;
  std::vector<std::unordered_map<std::string, std::string>> scopes_;
  std::vector<std::string> lines_;
  int indent_ = 0;
  int names_ = 0;
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
  const Plan plan = first.MakePlan();
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
