#include "gt/nn/flex_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include "gt/base/error.h"
#include "gt/torch_bridge/graph_object.h"
#include "gt/trace/capture.h"

namespace gt::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// The inputs of a nested graph: `numbers` scores, then the four positions, then the captures.
std::vector<StepInput> PointInputs(std::initializer_list<const char*> numbers,
                                   const std::vector<CaptureType>& captures) {
  std::vector<StepInput> inputs;
  for (const char* name : numbers)
    inputs.push_back({.name = name, .sizes = {}, .dtype = at::kFloat});
  for (const char* name : {"batch", "head", "query", "key"}) {
    inputs.push_back({.name = name, .sizes = {}, .dtype = at::kInt});
  }
  for (size_t i = 0; i < captures.size(); ++i) {
    // Extents are open: the function serves every batch and length.
    StepInput input{
        .name = "capture_" + std::to_string(i), .sizes = {}, .dtype = captures[i].dtype};
    for (int64_t d = 0; d < captures[i].rank; ++d) {
      input.sizes.push_back(8);
      input.symbolic.push_back({d, {.identity = input.name + "." + std::to_string(d)}});
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

void FillPair(PairPoint& point, std::span<const at::Tensor> inputs) {
  point.batch = inputs[0];
  point.head = inputs[1];
  point.query = inputs[2];
  point.key = inputs[3];
  point.captures = inputs.subspan(4);
}

GraphRef Capture(const char* name, std::vector<StepInput> inputs, const StepFunction& function) {
  torch::nn::Module nothing;
  CaptureOptions options;
  options.name = name;
  return GraphRef(CaptureForward(nothing, function, std::move(inputs), options).graph.release());
}

at::Tensor ScoreOf(const FlexFunctions& functions, std::span<const at::Tensor> inputs) {
  if (!functions.score) return inputs[0];
  ScorePoint point;
  point.score = inputs[0];
  FillPair(point, inputs.subspan(1));
  return functions.score(point);
}

std::tuple<at::Tensor, at::Tensor> CallForward(const at::Tensor& query, const at::Tensor& key,
                                               const at::Tensor& value, tensor_list captures,
                                               const c10::IValue& score, const c10::IValue& mask,
                                               double scale, bool grouped) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("gt::flex_attention", "");
  torch::jit::Stack stack = {query, key, value, std::move(captures), score, mask, scale, grouped};
  op.callBoxed(&stack);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

class FlexFunction : public torch::autograd::Function<FlexFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const tensor_list& captures,
                            const c10::IValue& score, const c10::IValue& score_backward,
                            const c10::IValue& mask, double scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    bool grouped = query.sym_size(1) != key.sym_size(1);
    auto [out, logsumexp] = CallForward(query, key, value, captures, score, mask, scale, grouped);
    tensor_list saved = {query, key, value, out, logsumexp};
    saved.insert(saved.end(), captures.begin(), captures.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["score"] = score;
    ctx->saved_data["score_backward"] = score_backward;
    ctx->saved_data["mask"] = mask;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["grouped"] = grouped;
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("gt::flex_attention_backward", "");
    tensor_list saved = ctx->get_saved_variables();
    tensor_list captures(saved.begin() + 5, saved.end());
    torch::jit::Stack stack = {gradients[0],
                               saved[0],
                               saved[1],
                               saved[2],
                               saved[3],
                               saved[4],
                               std::move(captures),
                               ctx->saved_data["score"],
                               ctx->saved_data["score_backward"],
                               ctx->saved_data["mask"],
                               ctx->saved_data["scale"],
                               ctx->saved_data["grouped"]};
    op.callBoxed(&stack);
    return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor(), {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor PairPoint::Lookup(size_t capture, std::initializer_list<at::Tensor> index) const {
  c10::List<std::optional<at::Tensor>> indices;
  for (const at::Tensor& position : index) indices.push_back(position);
  return at::index(captures[capture], indices);
}

FlexAttention::FlexAttention(const FlexFunctions& functions)
    : capture_count_(functions.captures.size()) {
  score_ = Capture("score", PointInputs({"score"}, functions.captures),
                   [&](std::span<const at::Tensor> in) { return ScoreOf(functions, in); });
  score_backward_ =
      Capture("score_backward", PointInputs({"gradient", "score"}, functions.captures),
              [&](std::span<const at::Tensor> in) {
                if (!functions.score) return in[0];
                at::AutoGradMode gradients(true);
                std::vector<at::Tensor> inputs(in.begin() + 1, in.end());
                inputs[0] = inputs[0].detach().requires_grad_();
                at::Tensor result = ScoreOf(functions, inputs);
                if (!result.requires_grad()) return at::zeros_like(in[0]);
                return torch::autograd::grad({result}, {inputs[0]}, {in[0]})[0];
              });
  if (!functions.mask) return;
  mask_ = Capture("mask", PointInputs({}, functions.captures), [&](std::span<const at::Tensor> in) {
    PairPoint point;
    FillPair(point, in);
    return functions.mask(point);
  });
}

at::Tensor FlexAttention::operator()(const at::Tensor& query, const at::Tensor& key,
                                     const at::Tensor& value, double scale,
                                     const std::vector<at::Tensor>& captures) const {
  GT_CHECK(captures.size() == capture_count_, "attention functions were made for {} captures",
           capture_count_);
  return FlexFunction::apply(query, key, value, captures, ToIValue(score_),
                             ToIValue(score_backward_), ToIValue(mask_), scale);
}

FlexFunctions CausalFunctions() {
  return {.mask = [](const PairPoint& pair) { return at::ge(pair.query, pair.key); }};
}

FlexFunctions DocumentFunctions() {
  return {.mask =
              [](const PairPoint& pair) {
                at::Tensor mine = pair.Lookup(0, {pair.batch, pair.query});
                at::Tensor other = pair.Lookup(0, {pair.batch, pair.key});
                return at::logical_and(at::ge(pair.query, pair.key), at::eq(mine, other));
              },
          .captures = {{at::kInt, 2}}};
}

}  // namespace gt::nn
