#include "gt/trace/backward.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/input_buffer.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "gt/base/pointer_map.h"

namespace gt {
namespace {

using torch::autograd::Edge;
using torch::autograd::InputBuffer;
using torch::autograd::variable_list;
using Function = torch::autograd::Node;

// A function of the backward, and the gradients that have arrived for it.
struct Waiting {
  Function* function;
  int32_t missing = 0;  // edges that have yet to deliver
  std::optional<InputBuffer> gradients = {};
};

// The function that was made last runs first; those that gather a leaf's gradient before all others.
struct RunsLater {
  bool operator()(const Waiting* a, const Waiting* b) const {
    return a->function->sequence_nr() < b->function->sequence_nr();
  }
};

void Check(const std::vector<Edge>& edges, variable_list& gradients, const std::string& maker) {
  torch::autograd::validate_outputs(edges, gradients, [&](const std::string& message) {
    return maker + " returned an invalid gradient: " + message;
  });
}

class Backward {
 public:
  Backward(const Edge& loss, const std::vector<at::Tensor>& wanted, const EnterFunction& enter)
      : loss_(loss), enter_(enter), found_(wanted.size()) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      wanted_.emplace(torch::autograd::impl::grad_accumulator(wanted[i]).get(), i);
    }
    FindFunctions();
  }

  std::vector<at::Tensor> Run(const at::Tensor& seed) {
    variable_list seeds = {seed};
    Check({loss_}, seeds, "the loss");
    Deliver(loss_, std::move(seeds[0]), loss_.function->stream());
    while (!ready_.empty()) {
      Waiting* next = ready_.top();
      ready_.pop();
      RunFunction(*next);
    }
    return std::move(found_);
  }

 private:
  Waiting& At(const Function* function) { return functions_[*places_.Find(function)]; }

  void FindFunctions() {
    const auto note = [&](const Edge& edge) {
      Function* function = edge.function.get();
      if (places_.Insert(function, functions_.size()).second) functions_.push_back({function});
      ++At(function).missing;
    };
    note(loss_);
    for (size_t i = 0; i < functions_.size(); ++i) {
      for (const Edge& edge : functions_[i].function->next_edges()) {
        if (edge.is_valid()) note(edge);
      }
    }
  }

  void Deliver(const Edge& edge, at::Tensor gradient, const std::optional<c10::Stream>& from) {
    Waiting& to = At(edge.function.get());
    if (!to.gradients) to.gradients.emplace(to.function->num_inputs());
    to.gradients->add(edge.input_nr, std::move(gradient), from, to.function->stream(), to.function);
    if (--to.missing == 0) ready_.push(&to);
  }

  void RunFunction(Waiting& waiting) {
    Function& function = *waiting.function;
    enter_(function);
    const std::optional<c10::Stream> stream = function.stream();
    const c10::OptionalStreamGuard on_stream(stream);
    variable_list gradients = std::move(waiting.gradients->buffer);
    waiting.gradients.reset();
    for (const auto& hook : function.tensor_pre_hooks()) gradients = (*hook)(gradients);
    for (const auto& [result, hook] : function.retains_grad_hooks()) gradients = (*hook)(gradients);
    if (auto found = wanted_.find(&function); found != wanted_.end()) {
      found_[found->second] = gradients[0];
    }
    // Nothing is added to the leaves themselves.
    if (dynamic_cast<torch::autograd::AccumulateGrad*>(&function) != nullptr) return;
    variable_list made = Call(function, std::move(gradients));
    for (size_t i = 0; i < made.size(); ++i) {
      const Edge& edge = function.next_edge(i);
      if (edge.is_valid()) Deliver(edge, std::move(made[i]), stream);
    }
  }

  variable_list Call(Function& function, variable_list gradients) {
    for (const auto& hook : function.pre_hooks()) gradients = (*hook)(gradients);
    function.will_release_variables();
    const variable_list given = function.post_hooks().empty() ? variable_list() : gradients;
    variable_list made = function(std::move(gradients));
    Check(function.next_edges(), made, function.name());
    for (const auto& hook : function.post_hooks()) made = (*hook)(made, given);
    function.release_variables();
    return made;
  }

  const Edge loss_;
  const EnterFunction& enter_;
  std::unordered_map<const Function*, size_t> wanted_;
  std::vector<at::Tensor> found_;
  PointerMap<size_t> places_;  // in functions_
  std::vector<Waiting> functions_;
  std::priority_queue<Waiting*, std::vector<Waiting*>, RunsLater> ready_;
};

}  // namespace

std::vector<at::Tensor> RunBackward(const at::Tensor& loss, const at::Tensor& seed,
                                    const std::vector<at::Tensor>& wanted,
                                    const EnterFunction& enter) {
  const at::NoGradGuard no_gradients;
  return Backward(torch::autograd::impl::gradient_edge(loss), wanted, enter).Run(seed);
}

}  // namespace gt
