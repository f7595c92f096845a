#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "gt/ir/lexer.h"
#include "gt/ir/text.h"

namespace gt {
namespace {

constexpr size_t kLineWidth = 100;

// Equal as text: 0.0 and -0.0 print differently and are therefore different, and nan equals itself.
bool SameText(const Argument& a, const Argument& b) {
  const auto* x = std::get_if<double>(&a);
  const auto* y = std::get_if<double>(&b);
  if (x != nullptr && y != nullptr)
    return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y);
  const auto* xs = std::get_if<std::vector<double>>(&a);
  const auto* ys = std::get_if<std::vector<double>>(&b);
  if (xs != nullptr && ys != nullptr) {
    return std::equal(xs->begin(), xs->end(), ys->begin(), ys->end(), [](double p, double q) {
      return std::bit_cast<uint64_t>(p) == std::bit_cast<uint64_t>(q);
    });
  }
  return a == b;
}

// Everything is appended to one string. Printing never fails, however broken the graph is: it is
// also how broken graphs are reported.
class Printer {
 public:
  Printer(const ShapeEnv& shapes, const PrintOptions& options, std::string& out)
      : shapes_(shapes), options_(options), out_(out) {}

  void PrintGraph(const Graph& graph, int indent, bool nested);
  void PrintNode(const Node& node, int indent);
  void PrintType(const TensorType& type);

 private:
  void Write(std::string_view text) { out_ += text; }
  void Write(char c) { out_ += c; }
  void Write(int64_t value) {
    const fmt::format_int text(value);
    out_.append(text.data(), text.size());
  }
  void Write(double value);
  void Write(const Dim& dim);
  void WriteName(char sigil, std::string_view name);
  void Write(const Value* value);
  void Write(SymbolId) = delete;
  void NewLine(int indent) {
    out_ += '\n';
    out_.append(static_cast<size_t>(indent), ' ');
  }

  template <typename Range, typename Each>
  void WriteList(char open, const Range& range, char close, Each&& each) {
    Write(open);
    bool first = true;
    for (const auto& element : range) {
      if (!first) Write(", ");
      first = false;
      each(element);
    }
    Write(close);
  }
  void WriteDims(char open, std::span<const Dim> dims, char close) {
    WriteList(open, dims, close, [this](const Dim& dim) { Write(dim); });
  }

  // Entries on one line if they fit, else one on each; `separator` is after each entry but the
  // last, and may be left out between lines when `line_separates`.
  template <typename Range, typename Each>
  void WriteEntries(const Range& range, std::string_view separator, bool line_separates, int indent,
                    Each&& each);
  template <typename Range, typename Each>
  void WriteBlock(std::string_view keyword, const Range& range, int indent, Each&& each);

  void WriteSymbols(int indent);
  void WriteModules(const ModuleTable& modules, int indent);
  void WriteArguments(const Node& node, int indent);
  void WriteArgument(const Node& node, const Argument& argument, int indent);
  void WriteOperand(const Node& node, int32_t index);
  void WriteMeta(const Meta& meta);
  void WriteChunk(const ChunkMeta& chunk);

  std::string SymbolName(SymbolId id) const {
    return id < shapes_.symbols().size() ? shapes_.symbol(id).name
                                         : fmt::format("undeclared_{}", id);
  }
  bool IsDeclared(const Dim& dim) const {
    bool declared = true;
    dim.ForEachSymbol([&](SymbolId id) { declared &= id < shapes_.symbols().size(); });
    return declared;
  }
  bool IsContiguous(const TensorType& type) const;
  size_t Column() const { return out_.size() - (out_.rfind('\n') + 1); }

  const ShapeEnv& shapes_;
  const PrintOptions& options_;
  std::string& out_;
};

void Printer::Write(double value) {
  if (std::isnan(value)) return Write("nan");
  const size_t begin = out_.size();
  fmt::format_to(std::back_inserter(out_), "{}", value);  // the shortest text that reads back equal
  // A float must not look like an integer.
  if (out_.find_first_of(".en", begin) == std::string::npos) Write(".0");
}

void Printer::Write(const Dim& dim) {
  if (const auto value = dim.as_const()) return Write(*value);
  if (const auto symbol = dim.as_symbol(); symbol && *symbol < shapes_.symbols().size()) {
    return Write(shapes_.symbol(*symbol).name);
  }
  Write(dim.ToString([this](SymbolId id) { return SymbolName(id); }));
}

void Printer::WriteName(char sigil, std::string_view name) {
  Write(sigil);
  if (IsPlainName(name)) return Write(name);
  AppendQuoted(out_, name);
}

void Printer::Write(const Value* value) {
  if (value == nullptr) return Write("%<null>");
  WriteName('%', value->name());
}

template <typename Range, typename Each>
void Printer::WriteEntries(const Range& range, std::string_view separator, bool line_separates,
                           int indent, Each&& each) {
  const size_t begin = out_.size();
  const size_t room = kLineWidth - std::min(kLineWidth, Column());
  bool first = true;
  bool fits = true;
  for (const auto& entry : range) {
    if (!first) Write(separator), Write(' ');
    first = false;
    each(entry);
    if (out_.size() - begin > room) {
      fits = false;
      break;
    }
  }
  if (fits) return;
  out_.resize(begin);
  first = true;
  for (const auto& entry : range) {
    if (!first && !line_separates) Write(separator);
    first = false;
    NewLine(indent);
    each(entry);
  }
}

template <typename Range, typename Each>
void Printer::WriteBlock(std::string_view keyword, const Range& range, int indent, Each&& each) {
  if (std::begin(range) == std::end(range)) return;
  NewLine(indent);
  Write(keyword);
  Write(" {");
  const size_t begin = out_.size();
  Write(' ');
  WriteEntries(range, ";", /*line_separates=*/true, indent + 2, each);
  if (out_[begin + 1] != '\n') return Write(" }");
  out_.erase(begin, 1);  // the space before the line break
  NewLine(indent);
  Write('}');
}

void Printer::WriteSymbols(int indent) {
  WriteBlock("symbols", shapes_.symbols(), indent, [this](const Symbol& symbol) {
    Write(symbol.name);
    Write(symbol.kind == Symbol::Kind::kInput ? ": input, hint " : ": data, hint ");
    Write(symbol.hint);
    Write(", range [");
    Write(symbol.low);
    Write(", ");
    if (symbol.high == kUnbounded) {
      Write("inf");
    } else {
      Write(symbol.high);
    }
    Write(']');
  });
  WriteBlock("facts", shapes_.facts(), indent, [this](const std::pair<Dim, Dim>& fact) {
    Write(fact.first);
    Write(" == ");
    Write(fact.second);
  });
  WriteBlock("guards", shapes_.guards(), indent, [this](const Guard& guard) {
    Write(guard.predicate.ToString([this](SymbolId id) { return SymbolName(id); }));
    if (!options_.metadata || (guard.module.empty() && guard.op.empty())) return;
    Write(" by ");
    AppendQuoted(out_, guard.module.str());
    Write(' ');
    AppendQuoted(out_, guard.op.str());
  });
}

void Printer::WriteModules(const ModuleTable& modules, int indent) {
  std::vector<ModuleRole> roles;
  for (size_t i = 0; i < kModuleRoles; ++i) {
    if (!modules.With(static_cast<ModuleRole>(i)).empty()) roles.push_back(ModuleRole(i));
  }
  WriteBlock("modules", roles, indent, [&](ModuleRole role) {
    Write(Spelling(role));
    std::string_view separator = ": ";
    for (Name module : modules.With(role)) {
      Write(std::exchange(separator, ", "));
      AppendQuoted(out_, module.str());
    }
  });
}

void Printer::PrintGraph(const Graph& graph, int indent, bool nested) {
  Write("graph ");
  WriteName('@', graph.name());
  Write('(');
  WriteEntries(graph.inputs(), ",", /*line_separates=*/false, indent + 4,
               [this](const std::unique_ptr<Input>& input) {
                 Write(&input->value);
                 Write(": ");
                 Write(Spelling(input->role));
                 Write(' ');
                 AppendQuoted(out_, input->name);
                 Write(' ');
                 PrintType(input->value.type());
                 if (!options_.metadata || input->placement.empty()) return;
                 Write(" placement ");
                 AppendQuoted(out_, input->placement.str());
               });
  Write(") {");
  if (!nested) WriteSymbols(indent + 2);
  if (!nested && options_.metadata) WriteModules(graph.modules(), indent + 2);
  for (const Node* node : graph.nodes()) {
    NewLine(indent + 2);
    PrintNode(*node, indent + 2);
  }
  NewLine(indent + 2);
  Write("return");
  if (!graph.outputs().empty()) {
    const size_t begin = out_.size();
    Write(' ');
    WriteEntries(graph.outputs(), ",", /*line_separates=*/false, indent + 6,
                 [this](const std::unique_ptr<Output>& output) {
                   Write(Spelling(output->role));
                   Write(' ');
                   AppendQuoted(out_, output->name);
                   Write(' ');
                   Write(output->value());
                 });
    if (out_[begin + 1] == '\n') out_.erase(begin, 1);
  }
  NewLine(indent);
  Write('}');
}

void Printer::PrintNode(const Node& node, int indent) {
  for (int32_t i = 0; i < node.result_count(); ++i) {
    if (i > 0) Write(", ");
    Write(node.result(i));
  }
  if (node.result_count() > 0) Write(" = ");
  Write(node.op().name.str());
  WriteArguments(node, indent);
  if (!node.bound_symbols().empty()) {
    Write(" binds ");
    WriteList('[', node.bound_symbols(), ']', [this](SymbolId id) { Write(SymbolName(id)); });
  }
  if (node.result_count() > 0) {
    Write(" : ");
    if (node.result_count() > 1) Write('(');
    for (int32_t i = 0; i < node.result_count(); ++i) {
      if (i > 0) Write(", ");
      PrintType(node.result(i)->type());
    }
    if (node.result_count() > 1) Write(')');
  }
  const auto& offsets = node.view_offsets();
  if (std::any_of(offsets.begin(), offsets.end(), [](const Dim& dim) { return !dim.Is(0); })) {
    Write(" offset ");
    WriteDims('[', offsets, ']');
  }
  if (options_.metadata) WriteMeta(node.meta());
}

bool Printer::IsContiguous(const TensorType& type) const {
  for (const Dim& size : type.sizes) {
    if (!size.is_const() && !IsDeclared(size)) return false;
  }
  try {
    return type.strides == ContiguousStrides(type.sizes, shapes_);
  } catch (const Error&) {  // they do not fit into 64 bits, so these are others
    return false;
  }
}

void Printer::PrintType(const TensorType& type) {
  Write(DTypeName(type.dtype));
  if (!type.defined()) return;
  WriteDims('[', type.sizes, ']');
  if (!IsContiguous(type)) WriteDims('{', type.strides, '}');
  if (type.device != Device()) {
    Write(" @");
    Write(DeviceName(type.device));
  }
}

void Printer::WriteArguments(const Node& node, int indent) {
  const std::vector<ArgSpec>& specs = node.op().schema.args;
  Write('(');
  bool positional = true;  // so far, every argument was written and could hold a tensor
  bool first = true;
  for (size_t i = 0; i < node.args().size() && i < specs.size(); ++i) {
    const ArgSpec& spec = specs[i];
    const Argument& argument = node.args()[i];
    if (spec.kind != ArgKind::kTensor && spec.kind != ArgKind::kTensorList) positional = false;
    if (spec.default_value && SameText(argument, *spec.default_value)) {
      positional = false;
      continue;
    }
    if (!first) Write(", ");
    first = false;
    if (!positional) {
      Write(spec.name);
      Write(" = ");
    }
    WriteArgument(node, argument, indent);
  }
  Write(')');
}

void Printer::WriteOperand(const Node& node, int32_t index) {
  if (index == -1) return Write("none");
  if (index < 0 || index >= node.operand_count()) {
    return Write("%<no such operand>");
  }
  Write(node.operand(index));
}

void Printer::WriteArgument(const Node& node, const Argument& argument, int indent) {
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          Write("none");
        } else if constexpr (std::is_same_v<T, OperandRef>) {
          WriteOperand(node, value.index);
        } else if constexpr (std::is_same_v<T, OperandList>) {
          WriteList('[', value.indices, ']', [&](int32_t index) { WriteOperand(node, index); });
        } else if constexpr (std::is_same_v<T, Dim> || std::is_same_v<T, double>) {
          Write(value);
        } else if constexpr (std::is_same_v<T, Shape>) {
          WriteDims('[', value, ']');
        } else if constexpr (std::is_same_v<T, bool>) {
          Write(value ? "true" : "false");
        } else if constexpr (std::is_same_v<T, std::string>) {
          AppendQuoted(out_, value);
        } else if constexpr (std::is_same_v<T, DType>) {
          Write(DTypeName(value));
        } else if constexpr (std::is_same_v<T, Device>) {
          AppendQuoted(out_, DeviceName(value));
        } else if constexpr (std::is_same_v<T, Layout>) {
          Write("strided");
        } else if constexpr (std::is_same_v<T, MemoryFormat>) {
          Write(value == MemoryFormat::kPreserve ? "preserve" : "contiguous");
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          WriteList('[', value, ']', [this](double element) { Write(element); });
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          WriteList('[', value, ']', [this](bool element) { Write(element ? "true" : "false"); });
        } else {
          static_assert(std::is_same_v<T, GraphRef>);
          if (value == nullptr) return Write("none");
          PrintGraph(*value, indent, /*nested=*/true);
        }
      },
      argument);
}

void Printer::WriteMeta(const Meta& meta) {
  const size_t begin = out_.size();
  auto key = [&](std::string_view name) {
    Write(out_.size() == begin ? " {" : ", ");
    Write(name);
    Write(" = ");
  };
  if (!meta.module.empty()) key("module"), AppendQuoted(out_, meta.module.str());
  if (meta.phase != Phase::kForward) key("phase"), Write(Spelling(meta.phase));
  if (meta.sequence != -1) key("seq"), Write(meta.sequence);
  if (!meta.source.empty()) key("source"), AppendQuoted(out_, meta.source.str());
  if (meta.ep_role != EpRole::kNone) key("ep"), Write(Spelling(meta.ep_role));
  if (meta.exchange != TokenExchange::kNone) key("exchange"), Write(Spelling(meta.exchange));
  if (meta.recompute != Recompute::kNone) key("recompute"), Write(Spelling(meta.recompute));
  if (!meta.fsdp_bucket.empty()) key("bucket"), AppendQuoted(out_, meta.fsdp_bucket.str());
  if (!meta.placement.empty()) key("placement"), AppendQuoted(out_, meta.placement.str());
  if (meta.chunk != nullptr) key("chunk"), WriteChunk(*meta.chunk);
  if (out_.size() != begin) Write('}');
}

void Printer::WriteChunk(const ChunkMeta& chunk) {
  Write('{');
  const size_t begin = out_.size();
  auto key = [&](std::string_view name) {
    if (out_.size() != begin) Write(", ");
    Write(name);
  };
  if (chunk.id != -1) key("id = "), Write(static_cast<int64_t>(chunk.id));
  if (!chunk.region.empty()) key("region = "), AppendQuoted(out_, chunk.region.str());
  if (chunk.role != ChunkRole::kNone) key("role = "), Write(Spelling(chunk.role));
  if (chunk.producer != ChunkProducer::kGraph) key("producer = "), Write(Spelling(chunk.producer));
  if (chunk.backward) key("backward");
  if (!chunk.original.empty()) key("original = "), AppendQuoted(out_, chunk.original.str());
  if (chunk.proof != ChunkProof::kNone) key("proof = "), Write(Spelling(chunk.proof));
  Write('}');
}

}  // namespace

std::string Print(const Graph& graph, const PrintOptions& options) {
  std::string out;
  out.reserve(static_cast<size_t>(graph.node_count()) * 256 + 1024);
  Printer(graph.shapes(), options, out).PrintGraph(graph, 0, /*nested=*/false);
  out += '\n';
  return out;
}

std::string Print(const Node& node, const PrintOptions& options) {
  std::string out;
  Printer(node.graph().shapes(), options, out).PrintNode(node, 0);
  return out;
}

std::string Print(const TensorType& type, const ShapeEnv& shapes) {
  std::string out;
  Printer(shapes, {}, out).PrintType(type);
  return out;
}

}  // namespace gt
