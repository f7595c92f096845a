// Sharding rules of operators that the harness does not run: attention and RMS norm kernels that
// libtorch has for CUDA alone are replaced by what they compute, and FlexAttention is our own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "gt/conformance/harness.h"
#include "gt/conformance/sharding_checks.h"
#include "gt/ir/graph.h"
#include "gt/ir/text.h"
#include "gt/torch_bridge/convert.h"

namespace gt::conformance::sharding_kernels_test {
namespace {

// The tensors of a call, by the names that the schema gives them.
class Arguments {
 public:
  Arguments(const Operator& op, const std::vector<Argument>& args, const Tensors& operands)
      : op_(op), args_(args), operands_(operands) {}
  at::Tensor operator()(std::string_view name) const {
    const int arg = op_.schema.Find(name);
    const auto* ref = arg < 0 ? nullptr : std::get_if<OperandRef>(&args_[static_cast<size_t>(arg)]);
    return ref == nullptr ? at::Tensor() : operands_[static_cast<size_t>(ref->index)];
  }

 private:
  const Operator& op_;
  const std::vector<Argument>& args_;
  const Tensors& operands_;
};

at::Tensor Randn(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

using Kernel = std::function<Tensors(const Arguments&)>;

std::vector<TensorType> TypesOf(const Tensors& tensors) {
  std::vector<TensorType> types;
  for (const at::Tensor& tensor : tensors) types.push_back(TypeOf(tensor));
  return types;
}

std::vector<TensorType> InferredTypes(const Operator& op, const std::vector<Argument>& args,
                                      const std::vector<TensorType>& operands) {
  ShapeEnv env;
  std::vector<const TensorType*> pointers;
  for (const TensorType& operand : operands) pointers.push_back(&operand);
  RuleContext ctx(op, args, pointers, env);
  op.rule(ctx);
  return ctx.results();
}

// The kernel itself, by way of libtorch's dispatcher.
Tensors CallKernel(const Operator& op, const std::vector<Argument>& args, const Tensors& operands) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < args.size(); ++i) {
    if (const auto* ref = std::get_if<OperandRef>(&args[i])) {
      stack.emplace_back(operands[static_cast<size_t>(ref->index)]);
    } else if (const auto* list = std::get_if<OperandList>(&args[i])) {
      Tensors tensors;
      for (int32_t index : list->indices) tensors.push_back(operands[static_cast<size_t>(index)]);
      stack.emplace_back(tensors);
    } else {
      stack.push_back(ToIValue(op.schema.args[i], args[i], {}));
    }
  }
  HandleOf(op).callBoxed(stack);
  Tensors results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

// Missing arguments are left at their defaults.
void ExpectShards(std::string_view name, std::vector<Argument> args, const Tensors& operands,
                  const Kernel& kernel) {
  const Operator& op = *FindOperator(name);
  for (size_t i = args.size(); i < op.schema.args.size(); ++i) {
    args.push_back(op.schema.args[i].default_value.value_or(std::monostate()));
  }
  const auto call = [&](const std::vector<Argument>& local, const Tensors& tensors) {
    return kernel(Arguments(op, local, tensors));
  };
  const Tensors results = call(args, operands);
  const std::vector<TensorType> types = TypesOf(operands);
  EXPECT_EQ(
      CheckSharding({op, args, types, InferredTypes(op, args, types), operands, results, call}), "")
      << name;
}

// Scores, weights and what follows from them, with keys repeated for the queries that share them.
struct Attention {
  Attention(const Arguments& in, std::string_view bias_name)
      : query(in("query")), bias(in(bias_name)) {
    group = query.size(1) / in("key").size(1);
    key = in("key").repeat_interleave(group, 1);
    value = in("value").repeat_interleave(group, 1);
    scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    scores = query.matmul(key.mT()) * scale;
    if (bias.defined()) scores = scores + bias;
    weights = scores.softmax(-1);
  }
  at::Tensor SharedSum(const at::Tensor& gradient) const {
    return gradient.unflatten(1, {-1, group}).sum(2);
  }

  at::Tensor query, key, value, bias, scores, weights;
  int64_t group = 1;
  double scale = 1;
};

// (output, logsumexp), and nothing or numbers where kernels return the state of a generator.
Tensors Forward(const Arguments& in, std::string_view bias, size_t results) {
  const Attention attention(in, bias);
  Tensors all = {attention.weights.matmul(attention.value), attention.scores.logsumexp(-1)};
  all.resize(results);
  return all;
}

Tensors Backward(const Arguments& in, std::string_view grad_name, std::string_view bias,
                 size_t results) {
  const Attention attention(in, bias);
  const at::Tensor grad = in(grad_name);
  const at::Tensor inner = (grad * in("out")).sum(-1, true);
  const at::Tensor by_score = attention.weights * (grad.matmul(attention.value.mT()) - inner);
  Tensors all = {by_score.matmul(attention.key) * attention.scale,
                 attention.SharedSum(by_score.mT().matmul(attention.query) * attention.scale),
                 attention.SharedSum(attention.weights.mT().matmul(grad))};
  if (results > 3 && attention.bias.defined()) {
    all.push_back(at::sum_to(by_score, attention.bias.sizes()));
  }
  all.resize(results);
  return all;
}

struct HeadCounts {
  int64_t heads, kv_heads;
};
constexpr HeadCounts kCases[] = {{5, 5}, {12, 6}};

Tensors Qkv(const HeadCounts& c) {
  return {Randn({5, c.heads, 4, 8}), Randn({5, c.kv_heads, 6, 8}), Randn({5, c.kv_heads, 6, 8})};
}

// grad_out, query, key, value, output, logsumexp
Tensors ForBackward(const HeadCounts& c, const Operator& forward) {
  const Tensors qkv = Qkv(c);
  const std::vector<Argument> args = {OperandRef{0}, OperandRef{1}, OperandRef{2}};
  std::vector<Argument> all = args;
  all.resize(forward.schema.args.size());
  const Tensors out = Forward(Arguments(forward, all, qkv), "", 2);
  return {Randn({5, c.heads, 4, 8}), qkv[0], qkv[1], qkv[2], out[0], out[1]};
}

// A check that finds nothing proves nothing.
TEST(ShardedKernels, WrongRowsAreFound) {
  const auto check = [](std::string_view name, std::vector<Argument> args, const Tensors& operands,
                        ShardingRule wrong) {
    Operator op = *FindOperator(name);
    op.sharding = wrong;
    const auto call = [&](const std::vector<Argument>& local, const Tensors& tensors) {
      return CallKernel(op, local, tensors);
    };
    const std::vector<TensorType> types = TypesOf(operands);
    return CheckSharding({op, args, types, InferredTypes(op, args, types), operands,
                          CallKernel(op, args, operands), call});
  };
  const std::vector<Argument> two = {OperandRef{0}, OperandRef{1}};
  // A contracted dimension whose results are not summed.
  EXPECT_NE(check("aten::mm", two, {Randn({4, 6}), Randn({6, 4})},
                  [](ShardingContext& ctx) {
                    ctx.Add({.operands = {1, 0}, .results = {-1}});
                  }),
            "");
  // A product of two partial sums.
  EXPECT_NE(check("aten::mul.Tensor", two, {Randn({4}), Randn({4})},
                  [](ShardingContext& ctx) {
                    ctx.Add({.operands = {-2, -2}, .results = {-2}});
                  }),
            "");
  // Shards that the ranks do not divide.
  EXPECT_NE(check("aten::view", {OperandRef{0}, Shape{Dim(15)}}, {Randn({5, 3})},
                  [](ShardingContext& ctx) { ctx.Add({.operands = {0}, .results = {0}}); }),
            "");
  // Means that are added up as they are.
  EXPECT_NE(check("aten::mean", {OperandRef{0}, std::monostate()}, {Randn({6})},
                  [](ShardingContext& ctx) { ctx.Add({.operands = {0}, .results = {-2}}); }),
            "");
  // Indices that are not masked, and statistics that are not counted.
  EXPECT_NE(check("aten::embedding", {OperandRef{0}, OperandRef{1}, Dim(-1), false, false},
                  {Randn({4, 3}), at::arange(4)},
                  [](ShardingContext& ctx) {
                    ctx.Add({.operands = {0, -1}, .results = {-2}});
                  }),
            "");
  EXPECT_NE(check("aten::_softmax", {OperandRef{0}, Dim(1), false}, {Randn({4, 6})},
                  [](ShardingContext& ctx) {
                    ctx.Add({.operands = {1},
                             .results = {1},
                             .method = ShardMethod::kStatistics,
                             .statistics = 1});
                  }),
            "");
}

TEST(ShardedKernels, FlashAttention) {
  constexpr std::string_view kForward = "aten::_scaled_dot_product_flash_attention";
  for (const HeadCounts& c : kCases) {
    ExpectShards(kForward, {OperandRef{0}, OperandRef{1}, OperandRef{2}}, Qkv(c),
                 [](const Arguments& in) { return Forward(in, "", 7); });
    ExpectShards("aten::_scaled_dot_product_flash_attention_backward",
                 {OperandRef{0}, OperandRef{1}, OperandRef{2}, OperandRef{3}, OperandRef{4},
                  OperandRef{5}, std::monostate(), std::monostate(), Dim(4), Dim(6), 0.0, false},
                 ForBackward(c, *FindOperator(kForward)),
                 [](const Arguments& in) { return Backward(in, "grad_out", "", 3); });
  }
}

TEST(ShardedKernels, CudnnAttention) {
  constexpr std::string_view kForward = "aten::_scaled_dot_product_cudnn_attention";
  for (const HeadCounts& c : kCases) {
    Tensors operands = Qkv(c);
    operands.push_back(Randn({1, c.heads, 4, 6}));
    ExpectShards(kForward, {OperandRef{0}, OperandRef{1}, OperandRef{2}, OperandRef{3}, true},
                 operands, [](const Arguments& in) {
                   Tensors all = Forward(in, "attn_bias", 7);
                   all[1] = all[1].unsqueeze(-1);
                   return all;
                 });
    operands = ForBackward(c, *FindOperator(kForward));
    operands.push_back(Randn({5, 1, 4, 6}));
    ExpectShards("aten::_scaled_dot_product_cudnn_attention_backward",
                 {OperandRef{0}, OperandRef{1}, OperandRef{2}, OperandRef{3}, OperandRef{4},
                  OperandRef{5}, std::monostate(), std::monostate(), OperandRef{6},
                  std::monostate(), std::monostate(), Dim(4), Dim(6), 0.0, false},
                 operands,
                 [](const Arguments& in) { return Backward(in, "grad_out", "attn_bias", 3); });
  }
}

// The gradient of a bias that all rows or heads share is a partial sum.
TEST(ShardedKernels, EfficientAttention) {
  constexpr std::string_view kForward = "aten::_scaled_dot_product_efficient_attention";
  const HeadCounts c{5, 5};
  for (const std::vector<int64_t>& bias :
       {std::vector<int64_t>{5, 5, 4, 6}, {1, 5, 4, 6}, {4, 6}}) {
    Tensors operands = Qkv(c);
    operands.push_back(Randn(bias));
    ExpectShards(kForward, {OperandRef{0}, OperandRef{1}, OperandRef{2}, OperandRef{3}, true},
                 operands, [](const Arguments& in) { return Forward(in, "attn_bias", 4); });
    operands = ForBackward(c, *FindOperator(kForward));
    operands.push_back(Randn(bias));
    ExpectShards("aten::_scaled_dot_product_efficient_attention_backward",
                 {OperandRef{0}, OperandRef{1}, OperandRef{2}, OperandRef{3}, OperandRef{6},
                  OperandRef{4}, OperandRef{5}, std::monostate(), std::monostate(), 0.0,
                  std::vector<bool>{true, true, true, true}},
                 operands,
                 [](const Arguments& in) { return Backward(in, "grad_out_", "attn_bias", 4); });
  }
}

TEST(ShardedKernels, RmsNormBackward) {
  const at::Tensor x = Randn({5, 4, 8});
  const at::Tensor rstd = x.square().mean(-1, true).rsqrt();
  ExpectShards("aten::_fused_rms_norm_backward",
               {OperandRef{0}, OperandRef{1}, Shape{Dim(8)}, OperandRef{2}, OperandRef{3},
                std::vector<bool>{true, true}},
               {Randn({5, 4, 8}), x, rstd, Randn({8})}, [](const Arguments& in) {
                 const at::Tensor scaled = in("input") * in("rstd");
                 const at::Tensor grad = in("grad_out") * in("weight");
                 const at::Tensor inner = (grad * scaled).mean(-1, true);
                 return Tensors{in("rstd") * (grad - scaled * inner),
                                (in("grad_out") * scaled).sum(at::IntArrayRef({0, 1}))};
               });
}

// Documents are looked up by the row of the batch, slopes by the head.
constexpr const char* kFlex =
    R"(graph @g(%q: input "q" f32[5, 4, 6, 8], %k: input "k" f32[5, 2, 6, 8], %g: input "g" f32[5, 4, 6, 8], %lse: input "lse" f32[5, 4, 6], %doc: input "doc" i32[5, 6], %slope: input "slope" f32[4]) {
  %out, %sum = gt::flex_attention(%q, %k, %k, [%doc, %slope], score_mod = SCORE, mask_mod = MASK, scale = 0.5, enable_gqa = true) : (f32[5, 4, 6, 8]{192, 8, 32, 1}, f32[5, 4, 6])
  %dq, %dk, %dv = gt::flex_attention_backward(%g, %q, %k, %k, %g, %lse, [%doc, %slope], score_mod = SCORE, score_mod_backward = BACK, mask_mod = MASK, scale = 0.5, enable_gqa = true) : (f32[5, 4, 6, 8]{192, 8, 32, 1}, f32[5, 2, 6, 8]{96, 8, 16, 1}, f32[5, 2, 6, 8]{96, 8, 16, 1})
  return
})";
constexpr const char* kScore =
    R"(graph @score(%s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[5, 6], %slope: input "slope" f32[4]) {
    %by = aten::index.Tensor(%slope, [%h]) : f32[]
    %scaled = aten::mul.Tensor(%s, %by) : f32[]
    return result "score" %scaled
  })";
constexpr const char* kBack =
    R"(graph @back(%g: input "g" f32[], %s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[5, 6], %slope: input "slope" f32[4]) {
    %by = aten::index.Tensor(%slope, [%h]) : f32[]
    %scaled = aten::mul.Tensor(%g, %by) : f32[]
    return result "grad" %scaled
  })";
constexpr const char* kMask =
    R"(graph @mask(%b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[5, 6], %slope: input "slope" f32[4]) {
    %mine = aten::index.Tensor(%doc, [%b, %i]) : i32[]
    %other = aten::index.Tensor(%doc, [%b, %j]) : i32[]
    %same = aten::eq.Tensor(%mine, %other) : bool[]
    return result "keep" %same
  })";

std::string FlexText() {
  std::string text = kFlex;
  for (const auto& [name, graph] : {std::pair{"SCORE", kScore}, {"BACK", kBack}, {"MASK", kMask}}) {
    for (size_t at; (at = text.find(name)) != std::string::npos;) {
      text.replace(at, std::string_view(name).size(), graph);
    }
  }
  return text;
}

TEST(ShardedKernels, FlexAttention) {
  const auto graph = Parse(FlexText());
  std::map<std::string, at::Tensor> values;
  for (const auto& input : graph->inputs()) {
    std::vector<int64_t> sizes;
    for (const Dim& size : input->value.type().sizes) sizes.push_back(*size.as_const());
    values[input->name] =
        input->name == "doc" ? at::randint(0, 2, sizes, at::kInt) : at::randn(sizes);
  }
  for (const Node* node = graph->first(); node != nullptr; node = node->next()) {
    const Operator& op = node->op();
    Tensors operands;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      operands.push_back(values.at(node->operand(i)->name()));
    }
    std::vector<TensorType> results;
    for (int32_t i = 0; i < node->result_count(); ++i) results.push_back(node->result(i)->type());
    const std::vector<Argument> args(node->args().begin(), node->args().end());
    const auto call = [&](const std::vector<Argument>& local, const Tensors& tensors) {
      return CallKernel(op, local, tensors);
    };
    EXPECT_EQ(CheckSharding({op, args, TypesOf(operands), results, operands,
                             CallKernel(op, args, operands), call}),
              "");
    EXPECT_EQ(ProvedRows(op), 2) << op.name.str();
  }
}

// What the harness has no cases for is proved in this file.
TEST(ShardedKernels, EveryRuleIsProved) {
  const std::set<std::string> here = {"aten::_scaled_dot_product_flash_attention",
                                      "aten::_scaled_dot_product_flash_attention_backward",
                                      "aten::_scaled_dot_product_efficient_attention",
                                      "aten::_scaled_dot_product_efficient_attention_backward",
                                      "aten::_scaled_dot_product_cudnn_attention",
                                      "aten::_scaled_dot_product_cudnn_attention_backward",
                                      "aten::_fused_rms_norm_backward",
                                      "gt::flex_attention",
                                      "gt::flex_attention_backward"};
  for (const Operator* op : AllOperators()) {
    if (op->sharding == nullptr) continue;
    EXPECT_TRUE(HasCases(op->name.str()) || here.contains(op->name.str())) << op->name.str();
  }
}

}  // namespace
}  // namespace gt::conformance::sharding_kernels_test
