#include "gt/passes/cleanup/concretize.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/ir/builder.h"
#include "gt/ir/describe.h"
#include "gt/ir/text.h"

namespace gt {
namespace {

using SymbolSet = std::vector<bool>;  // by symbol

bool Mentions(const Dim& dim, const SymbolSet& symbols) {
  bool found = false;
  dim.ForEachSymbol([&](SymbolId id) { found = found || (id < symbols.size() && symbols[id]); });
  return found;
}

std::string PlaceOf(const Node& node) { return "node " + DescribeNode(node, "without results"); }

// Finds where a graph mentions symbols. The same few sizes are in thousands of types, so answers
// about sizes are cached.
class SymbolFinder {
 public:
  SymbolFinder(const ShapeEnv& shapes, const SymbolSet& symbols)
      : shapes_(shapes), symbols_(symbols) {}

  // The first place in the graph or in one nested in it, as a message would name it; empty: none.
  std::string FirstPlace(const Graph& graph) {
    if (clean_.contains(&graph)) return {};
    for (const auto& input : graph.inputs()) {
      if (!Mentions(input->value.type())) continue;
      return fmt::format("input '{}' of graph @{}: its type {}", input->name, graph.name(),
                         Print(input->value.type(), shapes_));
    }
    for (const Node* node : graph.nodes()) {
      if (std::string place = PlaceIn(*node); !place.empty()) return place;
    }
    clean_.insert(&graph);
    return {};
  }

  std::string FirstFactOrGuard() {
    for (const auto& [left, right] : shapes_.facts()) {
      if (!Mentions(left) && !Mentions(right)) continue;
      return fmt::format("the fact {} == {}", shapes_.Print(left), shapes_.Print(right));
    }
    for (const Guard& guard : shapes_.guards()) {
      if (!Mentions(guard.predicate.expression)) continue;
      return fmt::format("the guard {} of {} in module '{}'",
                         guard.predicate.ToString(shapes_.Namer()), guard.op.str(),
                         guard.module.str());
    }
    return {};
  }

 private:
  bool Mentions(const Dim& dim) {
    if (dim.is_const()) return false;
    auto [answer, fresh] = answers_.try_emplace(dim);
    if (fresh) answer->second = gt::Mentions(dim, symbols_);
    return answer->second;
  }
  bool Mentions(std::span<const Dim> dims) {
    return std::any_of(dims.begin(), dims.end(), [this](const Dim& dim) { return Mentions(dim); });
  }
  bool Mentions(const TensorType& type) { return Mentions(type.sizes) || Mentions(type.strides); }

  std::string PlaceIn(const Node& node) {
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const Value& result = *node.result(i);
      if (!Mentions(result.type())) continue;
      return fmt::format("{}: the type {} of %{}", PlaceOf(node), Print(result.type(), shapes_),
                         result.name());
    }
    if (Mentions(node.view_offsets())) return PlaceOf(node) + ": the offset of its view";
    for (size_t i = 0; i < node.args().size(); ++i) {
      const Argument& arg = node.args()[i];
      const auto* dim = std::get_if<Dim>(&arg);
      const auto* shape = std::get_if<Shape>(&arg);
      if ((dim != nullptr && Mentions(*dim)) || (shape != nullptr && Mentions(*shape))) {
        return fmt::format("{}: argument '{}'", PlaceOf(node), node.op().schema.args[i].name);
      }
    }
    std::string place;
    ForEachNestedGraph(node, [&](const Graph& nested) {
      if (place.empty()) place = FirstPlace(nested);
    });
    return place;
  }

  const ShapeEnv& shapes_;
  const SymbolSet& symbols_;
  std::unordered_map<Dim, bool> answers_;
  std::unordered_set<const Graph*> clean_;  // mention nothing
};

// What sizes become. Each is worked out once.
class Substitution {
 public:
  Substitution(const ShapeEnv& shapes, const SymbolSet& symbols)
      : shapes_(shapes), symbols_(symbols) {}

  // Null for a size that mentions none of the symbols.
  const Dim* ImageOf(const Dim& dim) {
    if (dim.is_const()) return nullptr;
    auto [image, fresh] = images_.try_emplace(dim);
    if (fresh && Mentions(dim, symbols_)) {
      image->second = dim.Substitute([this](SymbolId id) {
        const bool chosen = id < symbols_.size() && symbols_[id];
        return chosen ? Dim(shapes_.symbol(id).hint) : Dim::Symbol(id);
      });
    }
    return image->second ? &*image->second : nullptr;
  }

  std::optional<Shape> ImageOf(std::span<const Dim> shape) {
    std::optional<Shape> image;
    for (size_t i = 0; i < shape.size(); ++i) {
      const Dim* dim = ImageOf(shape[i]);
      if (dim == nullptr) continue;
      if (!image) image.emplace(shape.begin(), shape.end());
      (*image)[i] = *dim;
    }
    return image;
  }

 private:
  const ShapeEnv& shapes_;
  const SymbolSet& symbols_;
  std::unordered_map<Dim, std::optional<Dim>> images_;
};

// A view's offsets are fixed when it is made, so it is recreated under the same names.
void RecreateView(Graph& graph, Node* node, Shape offsets) {
  Graph::NodeSpec spec = SpecOf(*node);
  Graph::Typed typed = TypedOf(*node);
  typed.view_offsets = std::move(offsets);
  std::vector<std::pair<Use*, int32_t>> uses;  // and the result that each is of
  for (int32_t i = 0; i < node->result_count(); ++i) {
    Value& result = *node->result(i);
    typed.result_names.push_back(result.name());
    while (result.has_uses()) {
      Use& use = *result.uses().begin();
      uses.emplace_back(&use, i);
      use.Set(nullptr);
    }
  }
  Node* next = node->next();
  graph.Erase(node);
  Node* image = graph.InsertTyped(std::move(spec), std::move(typed), next);
  for (auto [use, result] : uses) use->Set(image->result(result));
}

// Applies a substitution to a graph and the graphs nested in it.
class SymbolRewriter {
 public:
  SymbolRewriter(const Graph& outer, const SymbolSet& symbols)
      : outer_(outer), finder_(outer.shapes(), symbols), substitution_(outer.shapes(), symbols) {}

  // True if anything changed.
  bool Rewrite(Graph& graph) {
    bool changed = false;
    for (const auto& input : graph.inputs()) changed |= RewriteType(input->value);
    for (Node* node : graph.nodes()) {
      try {
        changed |= RewriteNode(graph, node);
      } catch (const Error& error) {  // a division by what is zero now
        throw Error(error.code(), fmt::format("{}: {}", PlaceOf(*node), error.message()));
      }
    }
    return changed;
  }

  int64_t types_changed() const { return types_changed_; }

 private:
  bool RewriteNode(Graph& graph, Node* node) {
    bool changed = false;
    for (int32_t i = 0; i < node->result_count(); ++i) changed |= RewriteType(*node->result(i));
    for (int32_t i = 0; i < static_cast<int32_t>(node->args().size()); ++i) {
      changed |= RewriteArgument(*node, i);
    }
    std::optional<Shape> offsets = substitution_.ImageOf(node->view_offsets());
    if (!offsets) return changed;
    RecreateView(graph, node, *std::move(offsets));
    return true;
  }

  bool RewriteType(Value& value) {
    const TensorType& type = value.type();
    std::optional<Shape> sizes = substitution_.ImageOf(type.sizes);
    std::optional<Shape> strides = substitution_.ImageOf(type.strides);
    if (!sizes && !strides) return false;
    value.set_type({type.dtype, type.device, sizes ? *std::move(sizes) : type.sizes,
                    strides ? *std::move(strides) : type.strides});
    ++types_changed_;
    return true;
  }

  bool RewriteArgument(Node& node, int32_t i) {
    const Argument& arg = node.arg(i);
    if (const auto* dim = std::get_if<Dim>(&arg)) {
      const Dim* image = substitution_.ImageOf(*dim);
      if (image == nullptr) return false;
      node.SetArg(i, *image);
      return true;
    }
    if (const auto* shape = std::get_if<Shape>(&arg)) {
      std::optional<Shape> image = substitution_.ImageOf(*shape);
      if (!image) return false;
      node.SetArg(i, *std::move(image));
      return true;
    }
    if (const auto* nested = std::get_if<GraphRef>(&arg); nested != nullptr && *nested) {
      GraphRef image = ImageOf(*nested);
      if (image == *nested) return false;
      node.SetArg(i, std::move(image));
      return true;
    }
    return false;
  }

  // Nodes hold nested graphs as constant, and may share them: a graph that changes becomes one new
  // graph for all of them.
  GraphRef ImageOf(const GraphRef& nested) {
    if (auto known = nested_images_.find(nested); known != nested_images_.end()) {
      return known->second;
    }
    GraphRef image = nested;
    if (!finder_.FirstPlace(*nested).empty()) {
      std::unique_ptr<Graph> copy = nested->CloneInto(outer_, {});
      ShareInnerGraphs(*nested, *copy);
      Rewrite(*copy);
      image = std::move(copy);
    }
    nested_images_.emplace(nested, image);
    return image;
  }

  // Copying a graph copies those nested in it as well, one for each node that holds one.
  static void ShareInnerGraphs(const Graph& original, Graph& copy) {
    const Node* from = original.first();
    for (Node* node : copy.nodes()) {
      for (int32_t i = 0; i < static_cast<int32_t>(node->args().size()); ++i) {
        if (std::holds_alternative<GraphRef>(from->arg(i))) node->SetArg(i, from->arg(i));
      }
      from = from->next();
    }
  }

  const Graph& outer_;
  SymbolFinder finder_;
  Substitution substitution_;
  std::unordered_map<GraphRef, GraphRef> nested_images_;
  int64_t types_changed_ = 0;
};

std::string ListOf(const std::vector<std::string>& names) {
  return names.empty() ? "it has none" : "those that it has are " + Join(names, ", ");
}

SymbolSet InputSymbols(const ShapeEnv& shapes) {
  SymbolSet symbols;
  for (const Symbol& symbol : shapes.symbols()) {
    symbols.push_back(symbol.kind == Symbol::Kind::kInput);
  }
  return symbols;
}

SymbolSet SymbolsNamed(const StringList& names, const Graph& graph) {
  const ShapeEnv& shapes = graph.shapes();
  std::vector<std::string> known;
  for (const Symbol& symbol : shapes.symbols()) {
    if (symbol.kind == Symbol::Kind::kInput) known.push_back(symbol.name);
  }
  SymbolSet symbols(shapes.symbols().size());
  for (const std::string& name : names) {
    std::optional<SymbolId> id = shapes.Find(name);
    if (!id) {
      Fail(ErrorCode::kBadOptionValue,
           "option symbols of pass concretize names {}, which is no input symbol of graph @{}; "
           "{}{}",
           Quoted(name), graph.name(), ListOf(known), DidYouMean(name, known));
    }
    if (shapes.symbol(*id).kind == Symbol::Kind::kData) {
      Fail(ErrorCode::kBadOptionValue,
           "option symbols of pass concretize names {}, which graph @{} reads from data, so that "
           "it is another number in every step; of the graph's input symbols, {}",
           Quoted(name), graph.name(), ListOf(known));
    }
    symbols[*id] = true;
  }
  return symbols;
}

int64_t CountGuards(const ShapeEnv& shapes, const SymbolSet& symbols) {
  return std::ranges::count_if(shapes.guards(), [&](const Guard& guard) {
    return Mentions(guard.predicate.expression, symbols);
  });
}

int64_t CountRanges(const ShapeEnv& shapes, const SymbolSet& symbols) {
  int64_t count = 0;
  for (SymbolId id = 0; id < symbols.size(); ++id) {
    count += symbols[id] && shapes.symbol(id).low != shapes.symbol(id).high;
  }
  return count;
}

}  // namespace

void CheckNoSymbolLeft(const Graph& graph, const std::vector<bool>& gone) {
  SymbolFinder finder(graph.shapes(), gone);
  std::string place = finder.FirstFactOrGuard();
  if (place.empty()) place = finder.FirstPlace(graph);
  if (place.empty()) return;
  std::vector<std::string> names;
  for (SymbolId id = 0; id < gone.size(); ++id) {
    if (gone[id]) names.push_back(graph.shapes().NameOf(id));
  }
  Fail(ErrorCode::kSymbolLeft, "{} still mentions one of {}, which were replaced by numbers", place,
       Join(names, ", "));
}

Concretize::Concretize(ConcretizeOptions options) {
  Declare(&options_);
  options_ = std::move(options);
}

const PassInfo& Concretize::info() const {
  static constexpr PassInfo kInfo = {
      .name = "concretize",
      .summary = "Replaces the symbols of input sizes by the numbers they were captured with.",
      .description =
          "Symbols let chunking see what depends on a dimension; what compiles, plans memory or "
          "runs the graph afterwards has less to do with plain numbers. Each symbol becomes its "
          "hint in the types of inputs and results, arguments, view offsets, facts, guards and "
          "nested graphs, and expressions that become numbers are worked out. Expressions that "
          "also depend on data read during the step keep just that part. Guards are checked "
          "against the hints; those with nothing left to check are gone. At the end, one walk "
          "proves that no replaced symbol is left. The graph then runs for these sizes only.",
      .reads = "symbols, their hints, facts, guards, types, arguments, view offsets.",
      .writes =
          "the same; the range of a replaced symbol becomes its one number. Nested graphs that "
          "change are copied once and stay shared; the others stay the same objects.",
      .never =
          "adds, removes or moves computations, changes metadata or names, touches symbols that "
          "are read from data, accepts a guard that does not hold.",
  };
  return kInfo;
}

bool Concretize::RunImpl(Graph& graph, PassContext& /*context*/) {
  ShapeEnv& shapes = graph.shapes();
  const SymbolSet chosen =
      options_.symbols.empty() ? InputSymbols(shapes) : SymbolsNamed(options_.symbols, graph);
  const int64_t ranges = CountRanges(shapes, chosen);
  bool changed = ranges > 0 || !SymbolFinder(shapes, chosen).FirstFactOrGuard().empty();
  symbols_ += ranges;
  guards_ += CountGuards(shapes, chosen);

  shapes.Concretize([&](SymbolId id) { return chosen[id]; });
  SymbolRewriter rewriter(graph, chosen);
  changed |= rewriter.Rewrite(graph);
  types_ += rewriter.types_changed();
  CheckNoSymbolLeft(graph, chosen);
  if (changed) {
    log::Debug("concretize: {} symbols became numbers in {} types of graph @{}; {} guards are left",
               ranges, rewriter.types_changed(), graph.name(), shapes.guards().size());
  }
  return changed;
}

}  // namespace gt
