// An operator: relu(x)^2 with a kernel and a gradient of its own. libtorch learns the operator, gt's
// table learns its shape rule, and a step that uses it is captured, run, and compared with eager.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "gt/exec/program.h"
#include "gt/ir/text.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/trace/capture.h"

namespace {

// What libtorch needs: schemas, kernels, and how to differentiate.
at::Tensor Forward(const at::Tensor& x) { return x.clamp_min(0).square(); }
at::Tensor Backward(const at::Tensor& gradient, const at::Tensor& x) {
  return gradient * x.clamp_min(0) * 2;
}

at::Tensor Call(const char* name, std::initializer_list<at::Tensor> tensors) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  torch::jit::Stack stack(tensors.begin(), tensors.end());
  op.callBoxed(&stack);
  return stack.front().toTensor();
}

struct SquaredRelu : torch::autograd::Function<SquaredRelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x});
    return Call("example::squared_relu", {x});
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    return {
        Call("example::squared_relu_backward", {gradients[0], context->get_saved_variables()[0]})};
  }
};

TORCH_LIBRARY(example, library) {
  library.def("squared_relu(Tensor self) -> Tensor");
  library.def("squared_relu_backward(Tensor grad, Tensor self) -> Tensor");
}
TORCH_LIBRARY_IMPL(example, CompositeExplicitAutograd, library) {
  library.impl("squared_relu", Forward);
  library.impl("squared_relu_backward", Backward);
}
TORCH_LIBRARY_IMPL(example, Autograd, library) {
  library.impl("squared_relu", [](const at::Tensor& x) { return SquaredRelu::apply(x); });
}

// What gt needs: the same schemas, and the type of the result.
void UnaryRule(gt::RuleContext& call) {
  call.Return(gt::rules::PointwiseResult(call, {0}, gt::rules::Compute::kSame));
}
void BinaryRule(gt::RuleContext& call) {
  call.Return(gt::rules::PointwiseResult(call, {0, 1}, gt::rules::Compute::kSame));
}

const gt::OperatorFamily kFamily([](gt::OperatorTable& table) {
  gt::OperatorGroup pointwise(table, {.work = gt::Work::kPointwise, .order = gt::DimOrder::kKept});
  pointwise.Add("example::squared_relu(Tensor self) -> Tensor", UnaryRule);
  pointwise.Add("example::squared_relu_backward(Tensor grad, Tensor self) -> Tensor", BinaryRule);
});

// A model as a user of libtorch writes it.
struct Mlp : torch::nn::Module {
  Mlp() {
    first = register_module("first", torch::nn::Linear(8, 32));
    second = register_module("second", torch::nn::Linear(32, 4));
  }
  at::Tensor Loss(const at::Tensor& x) {
    return second(Call("example::squared_relu", {first(x)})).square().mean();
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

}  // namespace

int main() {
  torch::manual_seed(1);
  Mlp model;
  gt::StepInput input{.name = "x", .sizes = {6, 8}, .dtype = at::kFloat};
  input.symbolic = {{0, {.identity = "rows"}}};  // the graph works for any number of rows
  gt::Captured captured = gt::CaptureTrainStep(
      model, [&](std::span<const at::Tensor> inputs) { return model.Loss(inputs[0]); }, {input});
  fmt::print("{}", gt::Print(*captured.graph, {.metadata = false}));

  gt::Program program(*captured.graph);
  for (const int64_t rows : {6, 3, 17}) {
    const at::Tensor x = torch::randn({rows, 8});
    const at::Tensor loss = model.Loss(x);
    std::vector<at::Tensor> expected = torch::autograd::grad({loss}, model.parameters());
    expected.insert(expected.begin(), loss.detach());
    std::vector<at::Tensor> inputs = captured.bound_inputs;
    for (const auto& graph_input : captured.graph->inputs()) {
      if (graph_input->role == gt::InputRole::kInput) inputs[graph_input->value.index()] = x;
    }
    const std::vector<at::Tensor> actual = program.Run(inputs);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (actual[i].equal(expected[i])) continue;
      fmt::print(stderr, "{} rows: output {} differs from eager\n", rows, i);
      return 1;
    }
  }
  fmt::print("loss and gradients equal eager's bit for bit at 6, 3 and 17 rows\n");
}
