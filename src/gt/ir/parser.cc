#include <string>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/ir/argument_parser.h"
#include "gt/ir/lexer.h"
#include "gt/ir/node_parser.h"
#include "gt/ir/size_parser.h"
#include "gt/ir/symbol_parser.h"
#include "gt/ir/text.h"
#include "gt/ir/token_reader.h"
#include "gt/ir/type_parser.h"

namespace gt {
namespace {

// Deeper than any program nests (FlexAttention nests once), shallow enough for the stack.
constexpr int kMaxGraphDepth = 16;

// Recursive descent, one function per phrase of the grammar (see ir/text.h). Everything that the
// text could get wrong is checked while reading, before the graph's own functions see it, so that
// the message can point at the place.
class GraphParser {
 public:
  explicit GraphParser(const SourceText& source) : in_(source), sizes_(in_) {}

  std::unique_ptr<Graph> ParseWhole() {
    try {
      std::unique_ptr<Graph> graph = ParseGraph(nullptr);
      if (in_.token().kind != Token::Kind::kEnd) in_.FailExpected("the end of the text");
      return graph;
    } catch (const TextError&) {
      throw;
    } catch (const Error& error) {
      in_.FailAt(error.code(), in_.anchor(), error.message());
    }
  }

 private:
  std::unique_ptr<Graph> ParseGraph(const Graph* outer);
  void ParseHead(Graph& graph);
  void SkipInputs();
  void ParseInputs(Graph& graph);
  void ParseOutputs(Graph& graph);

  TokenReader in_;
  SizeParser sizes_;
  int depth_ = 0;
};

std::unique_ptr<Graph> GraphParser::ParseGraph(const Graph* outer) {
  if (++depth_ > kMaxGraphDepth) {
    in_.FailHere(ErrorCode::kGtirTooDeep,
                 fmt::format("graphs are nested more than {} deep here", kMaxGraphDepth));
  }
  in_.ExpectWord("graph");
  auto graph = std::make_unique<Graph>(
      in_.ExpectName(Token::Kind::kGlobal, "the graph's name, such as @step"));
  if (outer != nullptr) {
    graph->ShareShapes(*outer);
    ParseInputs(*graph);
    if (in_.token().IsWord("symbols") || in_.token().IsWord("facts") ||
        in_.token().IsWord("guards")) {
      in_.FailHere(ErrorCode::kGtirSyntax,
                   "a nested graph shares the symbols of the graph around it; declare them there");
    }
    if (in_.token().IsWord("modules")) {
      in_.FailHere(ErrorCode::kGtirSyntax,
                   "modules have their roles in the outermost graph; declare them there");
    }
  } else {
    ParseHead(*graph);
  }
  NodeParser nodes(in_, sizes_, *graph,
                   [this](const Graph& around) -> GraphRef { return ParseGraph(&around); });
  while (!in_.AcceptWord("return")) nodes.Parse();
  ParseOutputs(*graph);
  in_.Expect('}');
  --depth_;
  return graph;
}

// Inputs and blocks of an outermost graph.
void GraphParser::ParseHead(Graph& graph) {
  constexpr size_t kCharactersPerValue = 160;
  graph.ReserveNames(in_.source().text().size() / kCharactersPerValue);
  // Inputs are before the block that declares their symbols, so that block is read first.
  const Lexer inputs = in_.place();
  SkipInputs();
  if (in_.AcceptWord("symbols")) ParseSymbols(in_, sizes_, graph.shapes());
  const Lexer body = in_.place();
  in_.GoTo(inputs);
  ParseInputs(graph);
  in_.GoTo(body);
  if (in_.AcceptWord("facts")) ParseFacts(in_, sizes_, graph.shapes());
  if (in_.AcceptWord("guards")) ParseGuards(in_, sizes_, graph.shapes());
  if (in_.AcceptWord("modules")) ParseModules(in_, graph.modules());
}

// Up to the first token of the body.
void GraphParser::SkipInputs() {
  if (!in_.token().Is('(')) in_.FailExpected("'(' and the inputs");
  int depth = 0;
  do {
    if (in_.token().Is('(')) ++depth;
    if (in_.token().Is(')')) --depth;
    if (in_.token().kind == Token::Kind::kEnd) return;  // ParseInputs will say what is wrong
    in_.Advance();
  } while (depth > 0);
  in_.Accept('{');
}

void GraphParser::ParseInputs(Graph& graph) {
  in_.Expect('(');
  if (!in_.Accept(')')) {
    do {
      const size_t offset = in_.token().offset;
      std::string value_name =
          in_.ExpectName(Token::Kind::kValue, "an input, such as %x: input \"x\" f32[2]");
      if (graph.FindValue(value_name) != nullptr) {
        in_.FailAt(ErrorCode::kDuplicateValue, offset,
                   fmt::format("a second input is called %{}", value_name));
      }
      in_.Expect(':');
      const auto role = in_.ExpectEnum("the role of the input", InputRole::kConstant);
      std::string name = in_.ExpectString("the name of the input, in quotes");
      const Value* value = graph.AddInput(
          role, std::move(name), ParseType(in_, sizes_, graph.shapes()), std::move(value_name));
      if (in_.AcceptWord("placement")) {
        graph.inputs()[static_cast<size_t>(value->index())]->placement =
            in_.ExpectInterned("a placement in quotes");
      }
    } while (in_.Accept(','));
    if (!in_.Accept(')')) in_.FailExpected("',' or ')' behind an input");
  }
  in_.Expect('{');
}

void GraphParser::ParseOutputs(Graph& graph) {
  if (in_.token().Is('}')) return;
  do {
    const auto role = in_.ExpectEnum("the role of the output", OutputRole::kResult);
    std::string name = in_.ExpectString("the name of the output, in quotes");
    graph.AddOutput(role, std::move(name), ExpectValue(in_, graph));
  } while (in_.Accept(','));
}

}  // namespace

std::unique_ptr<Graph> Parse(std::string_view text, std::string_view file_name) {
  const SourceText source(text, file_name);
  return GraphParser(source).ParseWhole();
}

std::unique_ptr<Graph> ParseFile(const std::string& path) {
  // The step of a model with hundreds of layers has some hundred megabytes.
  constexpr size_t kLargest = size_t{512} << 20;
  std::string text;
  try {
    text = ReadWholeFile(path, kLargest);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kGtirUnreadable, "cannot read '{}': {}", path, problem.what());
  }
  return Parse(text, path);
}

}  // namespace gt
