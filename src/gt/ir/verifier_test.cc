#include "gt/ir/verifier.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/testing/random_graph.h"

namespace gt::verifier_test {
namespace {

using testing::RandomGraph;

// The graph does not verify, for this reason and with a message that has all these parts.
void ExpectInvalid(Graph& graph, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    Verify(graph);
    ADD_FAILURE() << "verified:\n" << Print(graph);
  } catch (const Error& error) {
    EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.message();
    for (const std::string& part : parts) {
      EXPECT_NE(error.message().find(part), std::string::npos)
          << "expected '" << part << "' in: " << error.message();
    }
  }
}

void ExpectInvalid(const std::string& text, ErrorCode code, const std::vector<std::string>& parts) {
  ExpectInvalid(*Parse(text), code, parts);
}

// A graph of one input and the given body.
std::string Body(const std::string& body) {
  return "graph @g(%w: param \"w\" f32[2, 8], %x: input \"x\" f32[s0, 8], %n: input \"n\" i64[2]) "
         "{\n"
         "  symbols {\n"
         "    s0: input, hint 4, range [2, 64]\n    s1: input, hint 4\n"
         "    u0: data, hint 2\n    u1: data, hint 2\n  }\n" +
         body + "\n}\n";
}

TEST(VerifierTest, AcceptsRandomGraphs) {
  for (uint64_t seed = 1000; seed < 1200; ++seed) {
    const auto graph = RandomGraph(seed);
    ASSERT_NO_THROW(Verify(*graph)) << "seed " << seed << "\n" << Print(*graph);
  }
}

// Verifying asks no question that is not answered already, so it leaves no guard and no other
// trace.
TEST(VerifierTest, ChangesNothing) {
  const auto graph = RandomGraph(5);
  const uint64_t hash = graph->Hash();
  Verify(*graph);
  EXPECT_EQ(graph->Hash(), hash);
  EXPECT_EQ(graph->shapes().mode(), ShapeEnv::Mode::kRecord);
}

TEST(VerifierTest, OperandsMustBeDefinedBefore) {
  const auto graph =
      Parse(Body("%a = aten::neg(%x) : f32[s0, 8]\n"
                 "%b = aten::exp(%a) : f32[s0, 8] {module = \"layers.0\"}\nreturn"));
  graph->MoveBefore(graph->first(), nullptr);
  ExpectInvalid(*graph, ErrorCode::kOperandOrder,
                {"node %b (aten::exp, module 'layers.0')", "operand 0 (%a)", "graph @g"});
}

TEST(VerifierTest, OperandsAndOutputsMustBelongToTheGraph) {
  const auto other = Parse(Body("return"));
  const auto graph = Parse(Body("%a = aten::neg(%x) : f32[s0, 8]\nreturn result \"a\" %a"));
  graph->first()->SetOperand(0, &other->inputs()[1]->value);
  ExpectInvalid(*graph, ErrorCode::kOperandOrder, {"operand 0 (%x)"});
  graph->first()->SetOperand(0, nullptr);
  ExpectInvalid(*graph, ErrorCode::kOperandOrder, {"operand 0 (null)"});
  graph->first()->SetOperand(0, &graph->inputs()[1]->value);
  Verify(*graph);
  graph->outputs()[0]->use.Set(&other->inputs()[1]->value);
  ExpectInvalid(*graph, ErrorCode::kOperandOrder, {"output 'a'"});
  graph->outputs()[0]->use.Set(nullptr);
  ExpectInvalid(*graph, ErrorCode::kOperandOrder, {"output 'a'"});
}

TEST(VerifierTest, UsesMustBeReal) {
  const auto graph = Parse(Body("%a = aten::neg(%x) : f32[s0, 8]\nreturn"));
  Use stray;
  stray.Set(graph->first()->result());
  ExpectInvalid(*graph, ErrorCode::kBrokenUses, {"%a", "an output"});
}

TEST(VerifierTest, TypesMustFollowFromTheRule) {
  ExpectInvalid(
      Body("%a = aten::neg(%x) : f32[s0, 9] {module = \"m\", source = \"f.cc:3\"}\nreturn"),
      ErrorCode::kTypeMismatch,
      {"node %a (aten::neg, module 'm', f.cc:3)", "has type f32[s0, 9]", "give f32[s0, 8]"});
  ExpectInvalid(Body("%a = aten::neg(%x) : bf16[s0, 8]\nreturn"), ErrorCode::kTypeMismatch,
                {"bf16"});
  ExpectInvalid(Body("%a = aten::neg(%x) : f32[s0, 8]{1, s0}\nreturn"), ErrorCode::kTypeMismatch,
                {"f32[s0, 8]{1, s0}"});
  ExpectInvalid(Body("%a = aten::neg(%x) : f32[s0, 8] @cuda\nreturn"), ErrorCode::kTypeMismatch,
                {"@cuda"});
  ExpectInvalid(
      Body("%a = aten::split.Tensor(%x, split_size = 4, dim = 1) : f32[s0, 4]{8, 1}\nreturn"),
      ErrorCode::kTypeMismatch, {"it has 1 results", "says 2"});
  ExpectInvalid("graph @g(%x: input \"x\" f32[-2]) { return }", ErrorCode::kTypeMismatch,
                {"input 'x' of graph @g", "negative size"});
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ", 1";
  ExpectInvalid("graph @g(%x: input \"x\" f32[" + ones + "]) { return }", ErrorCode::kTypeMismatch,
                {"65 dimensions"});
}

// A size that a fact makes equal is as good as the one the rule arrives at.
TEST(VerifierTest, FactsMakeTypesEqual) {
  const auto text = [](const std::string& fact) {
    return Body("facts { " + fact +
                " }\n"
                "gt::read_ints(%n) binds [u0, u1]\n"
                "%a = aten::zeros(size = [u0 + u1, 8]) : f32[s0, 8]\nreturn");
  };
  Verify(*Parse(text("u0 + u1 == s0")));
  ExpectInvalid(text("u0 + u1 == s0 + 1"), ErrorCode::kTypeMismatch, {"f32[u0 + u1, 8]"});
}

TEST(VerifierTest, RefusalsOfTheRuleNameTheNode) {
  ExpectInvalid(Body("%a = aten::mm(%x, %w) : f32[s0, 8] {module = \"layers.3.wq\"}\nreturn"),
                ErrorCode::kBadOperands, {"node %a (aten::mm, module 'layers.3.wq')"});
}

TEST(VerifierTest, GuardsMustBeThere) {
  const std::string node = "%a = aten::view(%x, size = [32]) : f32[32]\nreturn";
  ExpectInvalid(Body(node), ErrorCode::kMissingGuard, {"node %a", "s0 == 4"});
  Verify(*Parse(Body("guards { s0 == 4 }\n" + node)));
}

TEST(VerifierTest, GuardsMustHoldForTheHints) {
  ExpectInvalid(Body("guards { s0 == 5 by \"m\" \"aten::mm\" }\nreturn"),
                ErrorCode::kHintBreaksGuard, {"s0 == 5", "aten::mm", "'m'"});
  ExpectInvalid(Body("guards { s1 == 4 }\nreturn"), ErrorCode::kUnboundSymbol, {"s1", "guard"});
  ExpectInvalid(Body("guards { u0 == 4 }\nreturn"), ErrorCode::kUnboundSymbol, {"u0", "guard"});
}

TEST(VerifierTest, ViewOffsetsMustFollowFromTheRule) {
  ExpectInvalid(
      Body("%a = aten::slice.Tensor(%x, dim = 1, start = 3) : f32[s0, 5]{8, 1} offset [2]\nreturn"),
      ErrorCode::kViewOffsetMismatch, {"node %a", "at element 2", "at 3"});
}

TEST(VerifierTest, SymbolsMustBeBoundBeforeUse) {
  ExpectInvalid(Body("%a = aten::zeros(size = [u0]) : f32[u0]\nreturn"), ErrorCode::kUnboundSymbol,
                {"node %a", "argument 'size'", "u0", "no earlier node"});
  ExpectInvalid(Body("%a = aten::zeros(size = [u0]) : f32[u0]\n"
                     "gt::read_ints(%n) binds [u0, u1]\nreturn"),
                ErrorCode::kUnboundSymbol, {"u0"});
  ExpectInvalid(Body("%a = aten::zeros(size = [s1]) : f32[s1]\nreturn"), ErrorCode::kUnboundSymbol,
                {"s1", "not the size of any input dimension"});
  // A multiple of a symbol tells what the symbol is; a sum does not say how much of it is which.
  ExpectInvalid("graph @g(%x: input \"x\" f32[s0 + 2]) { symbols { s0: input, hint 4 } return }",
                ErrorCode::kUnboundSymbol, {"f32[s0 + 2]", "s0"});
  Verify(
      *Parse("graph @g(%x: input \"x\" f32[s0 + 2], %y: input \"y\" f32[s0 * 2]) {\n"
             "symbols { s0: input, hint 4 } return }"));
}

TEST(VerifierTest, DataSymbolsAreBoundOnce) {
  ExpectInvalid(Body("gt::read_ints(%n) binds [u0, u0]\nreturn"), ErrorCode::kBadSymbol, {"u0"});
  ExpectInvalid(Body("gt::read_ints(%n) binds [u0, u1]\ngt::read_ints(%n) binds [u0, u1]\nreturn"),
                ErrorCode::kBadSymbol, {"u0", "earlier node"});
  ExpectInvalid(Body("gt::read_ints(%n) binds [u0]\nreturn"), ErrorCode::kBadArguments,
                {"binds 1 symbols", "says 2"});
}

TEST(VerifierTest, SymbolsMustBePossible) {
  const auto with = [](Symbol symbol) {
    auto graph = std::make_unique<Graph>("g");
    graph->shapes().AddSymbol(std::move(symbol));
    return graph;
  };
  ExpectInvalid(*with({"s 0"}), ErrorCode::kBadSymbol, {"'s 0'"});
  ExpectInvalid(*with({"s0", Symbol::Kind::kInput, 4, 5, 3}), ErrorCode::kBadSymbol, {"[5, 3]"});
  ExpectInvalid(*with({"s0", Symbol::Kind::kInput, 4, 5, 9}), ErrorCode::kBadSymbol, {"hint 4"});
}

TEST(VerifierTest, ArgumentsMustFollowTheSchema) {
  const auto graph = Parse(Body("%a = aten::sum.dim_IntList(%x, dim = [0]) : f32[8]\nreturn"));
  Node* node = graph->first();
  Verify(*graph);
  const auto with = [&](int position, Argument value, const std::string& part) {
    const Argument before = node->arg(position);
    node->SetArg(position, std::move(value));
    ExpectInvalid(*graph, ErrorCode::kBadArguments,
                  {"node %a", part, "aten::sum.dim_IntList(Tensor self"});
    node->SetArg(position, before);
  };
  with(0, std::monostate(), "'self'");
  with(0, OperandRef{1}, "operand 1 of 1");
  with(0, 2.0, "1 operands, but its arguments refer to 0");
  with(1, Dim(3), "'dim'");
  with(2, std::string("x"), "'keepdim'");
  with(3, MemoryFormat::kPreserve, "'dtype'");
  Verify(*graph);
}

TEST(VerifierTest, LossIsOneNumber) {
  const std::string sum = "%l = aten::sum(%x) : f32[]\n";
  Verify(*Parse(Body(sum + "return loss \"loss\" %l")));
  ExpectInvalid(Body(sum + "return loss \"loss\" %x"), ErrorCode::kBadOutput, {"%x", "f32[s0, 8]"});
  ExpectInvalid(Body(sum + "return loss \"loss\" %l, loss \"again\" %l"), ErrorCode::kBadOutput,
                {"two losses"});
  ExpectInvalid(Body("%l = aten::sum(%n) : i64[]\nreturn loss \"loss\" %l"), ErrorCode::kBadOutput,
                {"i64[]"});
}

TEST(VerifierTest, GradientsLookLikeTheirParameter) {
  const std::string text = "%g = aten::neg(%w) : f32[2, 8]\n%t = aten::t(%w) : f32[8, 2]{1, 8}\n";
  Verify(*Parse(Body(text + "return gradient \"w\" %g")));
  ExpectInvalid(Body(text + "return gradient \"w\" %t"), ErrorCode::kBadOutput,
                {"%t", "gradient of 'w'", "f32[8, 2]{1, 8}", "not f32[2, 8]"});
  ExpectInvalid(Body(text + "return gradient \"x\" %g"), ErrorCode::kBadOutput,
                {"no such parameter"});
  ExpectInvalid(Body(text + "return update \"w\" %g"), ErrorCode::kBadOutput, {"no such buffer"});
  ExpectInvalid(Body(text + "return gradient \"w\" %g, gradient \"w\" %g"), ErrorCode::kBadOutput,
                {"two outputs"});
}

TEST(VerifierTest, ParametersAndBuffersHaveNamesOfTheirOwn) {
  ExpectInvalid("graph @g(%a: param \"w\" f32[], %b: buffer \"w\" f32[]) { return }",
                ErrorCode::kBadName, {"'w'"});
}

TEST(VerifierTest, MetadataMustNotContradictItself) {
  const auto node = [](const std::string& meta) {
    return Body("%a = aten::neg(%x) : f32[s0, 8] {" + meta + "}\nreturn");
  };
  Verify(*Parse(node("phase = backward, chunk = {id = 0, region = \"r\", role = body, backward}")));
  ExpectInvalid(node("seq = -2"), ErrorCode::kBadMetadata, {"node %a", "-2"});
  ExpectInvalid(node("chunk = {id = 0, role = body}"), ErrorCode::kBadMetadata, {"no region"});
  ExpectInvalid(node("chunk = {region = \"r\", role = body}"), ErrorCode::kBadMetadata,
                {"no chunk id"});
  ExpectInvalid(node("chunk = {region = \"r\", role = split_boundary, backward}"),
                ErrorCode::kBadMetadata, {"phase is forward", "backward"});
  ExpectInvalid(node("chunk = {id = -7}"), ErrorCode::kBadMetadata, {"-7"});
}

TEST(VerifierTest, UndefinedResultsHaveNoUses) {
  const std::string node =
      "%m = aten::mean.dim(%w, dim = [1], keepdim = true) : f32[2, 1]\n"
      "%a, %b, %c = aten::native_layer_norm_backward(%w, %w, normalized_shape = [8], mean = %m, "
      "rstd = %m, "
      "weight = none, bias = none, output_mask = [true, false, false]) : (f32[2, 8], none, none)\n";
  Verify(*Parse(Body(node + "return saved \"a\" %a")));
  ExpectInvalid(Body(node + "return saved \"b\" %b"), ErrorCode::kTypeMismatch,
                {"%b", "undefined"});
}

// Nested graphs are held to the same rules, and share the symbols of the graph around them.
TEST(VerifierTest, NestedGraphs) {
  const auto text = [](const std::string& type, const std::string& number) {
    return "graph @g(%q: input \"q\" f32[2, 2, 16, 8]) {\n"
           "  symbols { u0: data, hint 2 }\n"
           "  %out, %lse = gt::flex_attention(%q, %q, %q, [], score_mod = graph @score(%s: input "
           "\"s\" f32[], "
           "%b: input \"b\" i32[], %h: input \"h\" i32[], %i: input \"i\" i32[], %j: input \"j\" "
           "i32[]) {\n"
           "    %mul = aten::mul.Tensor(%s, " +
           number + ") : " + type +
           " {module = \"mod\"}\n"
           "    return result \"score\" %mul\n"
           "  }, mask_mod = none, scale = 0.125) : (f32[2, 2, 16, 8]{256, 8, 16, 1}, f32[2, 2, "
           "16])\n"
           "  return result \"out\" %out\n}\n";
  };
  Verify(*Parse(text("f32[]", "2.0")));
  ExpectInvalid(text("f64[]", "2.0"), ErrorCode::kTypeMismatch,
                {"node %mul (aten::mul.Tensor, module 'mod')"});
  ExpectInvalid(text("f32[]", "u0"), ErrorCode::kUnboundSymbol, {"%mul", "u0"});

  const auto graph = Parse(text("f32[]", "2.0"));
  std::shared_ptr<Graph> stranger = std::get<GraphRef>(graph->first()->arg(4))->Clone();
  graph->first()->SetArg(4, GraphRef(stranger));
  ExpectInvalid(*graph, ErrorCode::kBadArguments, {"@score", "symbols of its own"});
}

// Nodes as a damaged or hostile file could hold them: any operator, any arguments of the right
// kinds, any types.
class HostileNodeMaker {
 public:
  explicit HostileNodeMaker(uint64_t seed) : random_(seed), graph_(std::make_unique<Graph>("g")) {
    ShapeEnv& shapes = graph_->shapes();
    shapes.AddInputSymbol(8, 2, 64);
    shapes.AddInputSymbol(3, 0, 100);
    graph_->AddInput(InputRole::kInput, "bound",
                     TensorType{DType::kFloat32, {}, {Symbol(0), Symbol(1)}, {1, 1}});
    const TensorType common = AnyType();
    for (int i = 0; i < 4; ++i) {
      values_.push_back(graph_->AddInput(InputRole::kInput, "", OneIn(2) ? common : AnyType()));
    }
  }

  std::unique_ptr<Graph> Make() {
    const auto operators = AllOperators();
    Graph::NodeSpec spec;
    spec.op = operators[static_cast<size_t>(Below(static_cast<int64_t>(operators.size())))];
    for (const ArgSpec& arg : spec.op->schema.args)
      spec.args.push_back(AnyArgument(arg, spec.operands));
    Graph::Typed typed;
    for (const ResultSpec& result : spec.op->schema.results) {
      if (!result.integer) typed.results.push_back(AnyType());
    }
    if (spec.op->is_view()) typed.view_offsets.resize(typed.results.size());
    graph_->InsertTyped(std::move(spec), std::move(typed));
    return std::move(graph_);
  }

 private:
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  static Dim Symbol(SymbolId id) { return Dim::Symbol(id); }

  Dim AnyDim() {
    constexpr int64_t kExtreme[] = {-1,
                                    -2,
                                    1000000,
                                    int64_t{1} << 40,
                                    std::numeric_limits<int64_t>::max(),
                                    std::numeric_limits<int64_t>::min()};
    if (OneIn(20)) return kExtreme[Below(std::ssize(kExtreme))];
    if (OneIn(3))
      return Symbol(static_cast<SymbolId>(Below(2))) * Dim(1 + Below(2)) - Dim(Below(2));
    return Below(6);
  }
  Shape AnyShape(int64_t max_rank) {
    Shape shape(static_cast<size_t>(Below(max_rank + 1)));
    for (Dim& dim : shape) dim = AnyDim();
    return shape;
  }
  TensorType AnyType() {
    TensorType type;
    if (OneIn(3)) type.dtype = static_cast<DType>(Below(kDTypeCount));
    if (OneIn(8)) type.device.kind = DeviceKind::kCuda;
    type.sizes = AnyShape(OneIn(20) ? 70 : 4);
    type.strides = Shape(type.sizes.size(), Dim(1));
    try {
      if (!OneIn(4)) type.strides = ContiguousStrides(type.sizes, graph_->shapes());
    } catch (const Error&) {
    }
    return type;
  }
  Argument AnyNumber() {
    if (OneIn(3)) return OneIn(2);
    if (OneIn(2)) return AnyDim();
    constexpr double kNumbers[] = {0.0, -1.5, 1e300, std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};
    return kNumbers[Below(std::ssize(kNumbers))];
  }
  int32_t AnyOperand(std::vector<Value*>& operands) {
    operands.push_back(values_[static_cast<size_t>(Below(std::ssize(values_)))]);
    return static_cast<int32_t>(operands.size() - 1);
  }

  Argument AnyArgument(const ArgSpec& spec, std::vector<Value*>& operands) {
    if (spec.AllowsNone() && OneIn(2)) return std::monostate();
    if (spec.default_value && OneIn(2)) return *spec.default_value;
    switch (spec.kind) {
      case ArgKind::kTensor:
        if (OneIn(12)) return AnyNumber();
        return OperandRef{AnyOperand(operands)};
      case ArgKind::kTensorList: {
        OperandList list;
        for (int64_t i = Below(4); i > 0; --i) {
          list.indices.push_back(spec.optional_elements && OneIn(3) ? -1 : AnyOperand(operands));
        }
        return list;
      }
      case ArgKind::kInt:
        return AnyDim();
      case ArgKind::kIntList:
        return AnyShape(4);
      case ArgKind::kFloat:
        return OneIn(2) ? Argument(AnyDim()) : Argument(0.5);
      case ArgKind::kFloatList:
        return std::vector<double>{1.0, 2.0};
      case ArgKind::kBool:
        return OneIn(2);
      case ArgKind::kBoolList:
        return std::vector<bool>(static_cast<size_t>(Below(5)), true);
      case ArgKind::kString:
        return std::string(OneIn(2) ? "sum" : "");
      case ArgKind::kScalar:
        return AnyNumber();
      case ArgKind::kDType:
        return static_cast<DType>(Below(kDTypeCount));
      case ArgKind::kDevice:
        return Device{DeviceKind::kCuda, 1};
      case ArgKind::kLayout:
        return Layout::kStrided;
      case ArgKind::kMemoryFormat:
        return OneIn(2) ? MemoryFormat::kPreserve : MemoryFormat::kContiguous;
      case ArgKind::kGenerator:
        return std::monostate();
      case ArgKind::kGraph: {
        auto nested = std::make_shared<Graph>("nested");
        nested->ShareShapes(*graph_);
        Value* input = nested->AddInput(InputRole::kInput, "score", AnyType());
        if (!OneIn(4)) nested->AddOutput(OutputRole::kResult, "score", input);
        return GraphRef(nested);
      }
    }
    return std::monostate();
  }

  std::mt19937_64 random_;
  std::unique_ptr<Graph> graph_;
  std::vector<Value*> values_;
};

// Whatever is in a graph, verifying it ends, and with nothing but an Error; shape rules see
// only arguments that they can read.
TEST(VerifierTest, HostileNodesEndInErrors) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const auto graph = HostileNodeMaker(seed).Make();
    try {
      Verify(*graph);
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << "seed " << seed << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace gt::verifier_test
