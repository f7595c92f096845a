#include "gt/nn/moe.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "gt/kernels/router.h"
#include "gt/kernels/row_operators.h"
#include "gt/sim/routing_loads.h"

namespace gt::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Where each token's rows are when rows are in the order of their experts: slot t * k + j of the
// tokens' order is row `to_rows[t * k + j]`, and row r is slot `to_slots[r]`.
struct Order {
  at::Tensor to_slots;  // [tokens * k]
  at::Tensor to_rows;   // [tokens * k]
};

Order ByExpert(const at::Tensor& experts) {
  at::Tensor flat = experts.reshape({-1});
  auto [sorted, to_slots] = at::sort(flat, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  // The inverse of a permutation: position r written to place to_slots[r].
  at::Tensor positions = at::arange(flat.sym_size(0), to_slots.options());
  at::Tensor to_rows = at::scatter(at::zeros_like(to_slots), 0, to_slots, positions);
  return {to_slots, to_rows};
}

// The k rows of every token, added up in the order of the choice.
at::Tensor AddUpRows(const at::Tensor& rows, const at::Tensor& to_rows, int64_t k) {
  c10::SymInt tokens = to_rows.sym_size(0) / k;
  return rows.index_select(0, to_rows).view_symint({tokens, k, rows.sym_size(1)}).sum(1);
}

// Copies each token to the rows of its experts. Backward sums these rows.
class RepeatTokens : public torch::autograd::Function<RepeatTokens> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& to_slots,
                            const at::Tensor& to_rows, int64_t k) {
    ctx->save_for_backward({to_rows});
    ctx->saved_data["k"] = k;
    return x.index_select(0, at::floor_divide(to_slots, k));
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    at::Tensor to_rows = ctx->get_saved_variables()[0];
    return {AddUpRows(gradients[0], to_rows, ctx->saved_data["k"].toInt()), {}, {}, {}};
  }
};

// The reverse: a token's result is the sum of its rows, each times its weight, in float32.
// weights: [tokens, k].
class CollectTokens : public torch::autograd::Function<CollectTokens> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& weights,
                            const at::Tensor& to_slots, const at::Tensor& to_rows) {
    at::Tensor slots =
        rows.index_select(0, to_rows)
            .view_symint({weights.sym_size(0), weights.sym_size(1), rows.sym_size(1)});
    ctx->save_for_backward({slots, weights, to_slots});
    return (slots * weights.unsqueeze(2)).sum(1).to(rows.scalar_type());
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    tensor_list saved = ctx->get_saved_variables();
    const at::Tensor &slots = saved[0], &weights = saved[1], &to_slots = saved[2];
    at::Tensor gradient = gradients[0].unsqueeze(1);  // [tokens, 1, width]
    at::Tensor slot_gradients = (gradient * weights.unsqueeze(2)).to(slots.scalar_type());
    at::Tensor row_gradients = slot_gradients.view_symint({to_slots.sym_size(0), slots.sym_size(2)})
                                   .index_select(0, to_slots);
    at::Tensor weight_gradients = RowDots(slots, gradient);
    return {row_gradients, weight_gradients, {}, {}};
  }
};

// How many tokens each expert has; `like` is [tokens, experts].
at::Tensor TokensOf(const at::Tensor& experts, const at::Tensor& like) {
  at::NoGradGuard no_gradients;
  return at::scatter(at::zeros_like(like, at::kBool), 1, experts, true).sum(0);
}

// Of logits, on every device that has a kernel for it: the experts of each token and their weights.
class RouteTokens : public torch::autograd::Function<RouteTokens> {
 public:
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& logits,
                             const std::optional<at::Tensor>& bias, const RouterOptions& options) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [weights, experts] = Route(logits, bias, options);
    ctx->mark_non_differentiable({experts});
    ctx->save_for_backward({logits, experts});
    ctx->saved_data["sigmoid"] = options.sigmoid;
    ctx->saved_data["normalize"] = options.normalize;
    ctx->saved_data["scale"] = options.scale;
    return {weights, experts};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    tensor_list saved = ctx->get_saved_variables();
    const RouterOptions options = {.sigmoid = ctx->saved_data["sigmoid"].toBool(),
                                   .normalize = ctx->saved_data["normalize"].toBool(),
                                   .scale = ctx->saved_data["scale"].toDouble()};
    return {RouteBackward(gradients[0], saved[0], saved[1], options), {}, {}};
  }
};

}  // namespace

Router::Router(const MoeConfig& config, Init init) : config_(config) {
  set_role(ModuleRole::kRouter);
  gate_ = AddChild<Linear>("gate", config.width, config.experts, init);
}

at::Tensor Router::OnlyBestGroups(const at::Tensor& choice) const {
  int64_t size = config_.experts / config_.groups;
  at::Tensor grouped = choice.view_symint({choice.sym_size(0), config_.groups, size});
  at::Tensor best = std::get<0>(at::topk(grouped, std::min<int64_t>(2, size), -1)).sum(-1);
  at::Tensor kept = std::get<1>(at::topk(best, config_.kept_groups, -1, true, false));
  at::Tensor allowed = at::scatter(at::zeros_like(best, at::kBool), 1, kept, true);
  at::Tensor masked = grouped.masked_fill(allowed.logical_not().unsqueeze(-1),
                                          -std::numeric_limits<double>::infinity());
  return masked.view_symint(choice.sym_sizes());
}

void Router::ForceLoad(const std::vector<double>& weights) {
  std::vector<double> intervals;  // an expert that must not be drawn waits forever
  for (double weight : weights) intervals.push_back(1.0 / weight);
  auto table = [](const std::vector<double>& values) { return at::tensor(values, at::kDouble); };
  AddBuffer("draw_phases", draw_phases_, table(DrawPhases(config_.experts)), BufferKind::kTable);
  AddBuffer("draw_intervals", draw_intervals_, table(intervals), BufferKind::kTable);
}

// Positions count from the first token that is seen at a time, so a chunk starts anew.
at::Tensor Router::DrawnExperts(const at::Tensor& scores) const {
  at::Tensor position = at::arange(scores.sym_size(0), scores.options().dtype(at::kLong)) + 1;
  at::Tensor square = (position * position).remainder(kDrawModulus);
  at::Tensor numbers = (square * kDrawMultiplier).remainder(kDrawModulus).to(at::kDouble);
  // In float64: rounded to float32, noise could be 1 and its logarithm 0, and 0 times the infinite
  // interval of an expert without weight is no number.
  at::Tensor noise = at::frac(numbers.unsqueeze(1) * draw_phases_);
  at::Tensor race = (at::log(noise) * draw_intervals_).to(at::kFloat);
  // Nothing of the scores is added, but the choice cannot be made before they exist: a schedule
  // must find the same dependencies as with the router's own choice.
  race = at::add(race, scores, /*alpha=*/0);
  return std::get<1>(at::topk(race, config_.top_k, -1, true, false));
}

Routing Router::forward(const at::Tensor& x, const at::Tensor& bias) {
  // Scores decide between experts by small differences: always float32.
  at::Tensor logits = at::linear(x.to(at::kFloat), gate_->weight().to(at::kFloat));
  const bool given = draw_phases_.defined() || config_.force_balance;
  return logits.is_cuda() && !given ? ByOneOperator(logits, bias) : ByParts(logits, bias);
}

Routing Router::ByOneOperator(const at::Tensor& logits, const at::Tensor& bias) const {
  const RouterOptions options = {.top_k = config_.top_k,
                                 .sigmoid = config_.score == MoeConfig::Score::kSigmoid,
                                 .groups = config_.groups,
                                 .kept_groups = config_.kept_groups,
                                 .normalize = config_.normalize,
                                 .scale = config_.scale};
  const auto correction = bias.defined() ? std::optional(bias) : std::nullopt;
  tensor_list routed = RouteTokens::apply(logits, correction, options);
  return {.experts = routed[1], .weights = routed[0], .counts = TokensOf(routed[1], logits)};
}

// libtorch's operators, which a CPU has kernels for; also where experts are not chosen by score.
Routing Router::ByParts(const at::Tensor& logits, const at::Tensor& bias) const {
  at::Tensor scores =
      config_.score == MoeConfig::Score::kSigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
  Routing routing;
  {
    at::NoGradGuard no_gradients;  // which experts are chosen has no derivative
    at::Tensor choice = scores.detach();
    if (bias.defined()) choice = choice + bias;
    if (config_.groups > 1) choice = OnlyBestGroups(choice);
    c10::SymInt tokens = logits.sym_size(0);
    if (draw_phases_.defined()) {
      routing.experts = DrawnExperts(scores.detach());
    } else if (config_.force_balance) {
      at::Tensor turns = at::arange(tokens * config_.top_k, scores.options().dtype(at::kLong))
                             .remainder(config_.experts)
                             .view_symint({tokens, config_.top_k});
      // No score is below 0, so nothing is added, but the experts are seen to be those of the tokens, as
      // with the router's own choice: schedules find the same dependencies, and chunks the tokens' order.
      routing.experts = turns + (scores.detach().narrow(1, 0, config_.top_k) < 0);
    } else {
      routing.experts = std::get<1>(at::topk(choice, config_.top_k, -1, true, false));
    }
    routing.counts = TokensOf(routing.experts, scores);
  }
  routing.weights = scores.gather(1, routing.experts);
  if (config_.normalize) {
    routing.weights = routing.weights / (routing.weights.sum(-1, /*keepdim=*/true) + 1e-20);
  }
  if (config_.scale != 1.0) routing.weights = routing.weights * config_.scale;
  return routing;
}

Experts::Experts(const MoeConfig& config, const MoeInits& inits) {
  set_role(ModuleRole::kExperts);
  AddParameter("w1", w1_, {config.experts, config.hidden, config.width}, inits.in);
  AddParameter("w2", w2_, {config.experts, config.width, config.hidden}, inits.out);
  AddParameter("w3", w3_, {config.experts, config.hidden, config.width}, inits.out);
}

at::Tensor Experts::forward(const at::Tensor& rows, const at::Tensor& counts) {
  at::Tensor ends = at::cumsum(counts, 0, at::kInt);
  auto product = [&ends](const at::Tensor& left, const Parameter& weight) {
    return at::_grouped_mm(left, weight().transpose(1, 2), ends);
  };
  at::Tensor hidden = at::silu(product(rows, w1_)) * product(rows, w3_);
  return product(hidden, w2_);
}

Moe::Moe(const MoeConfig& config, const MoeInits& inits) : config_(config) {
  set_role(ModuleRole::kMoe);
  router_ = AddChild<Router>("router", config, inits.router);
  experts_ = AddChild<Experts>("experts", config, inits);
  if (config.shared_hidden > 0) {
    shared_experts_ =
        AddChild<SwiGlu>("shared_experts", config.width, config.shared_hidden, inits.in, inits.out);
    shared_experts_->set_role(ModuleRole::kSharedExperts);
  }
  if (config.bias) AddBuffer("expert_bias", expert_bias_, at::zeros({config.experts}));
  AddBuffer("tokens_per_expert", tokens_per_expert_, at::zeros({config.experts}));
}

at::Tensor Moe::forward(const at::Tensor& x) {
  AnnotationGuard compute({.ep_role = EpRole::kCompute});
  auto sizes = x.sym_sizes();
  at::Tensor tokens = x.reshape_symint({sizes[0] * sizes[1], sizes[2]});
  Routing routing = router_(tokens, expert_bias_);
  if (is_training()) {
    at::NoGradGuard no_gradients;
    tokens_per_expert_.add_(routing.counts);
  }
  Order order;
  at::Tensor rows;
  {
    AnnotationGuard dispatch({.ep_role = EpRole::kDispatch});
    order = ByExpert(routing.experts);
    rows = RepeatTokens::apply(tokens, order.to_slots, order.to_rows, config_.top_k);
  }
  at::Tensor results = AtExperts(rows, routing.counts);
  at::Tensor out;
  {
    AnnotationGuard combine({.ep_role = EpRole::kCombine});
    out = CollectTokens::apply(results, routing.weights, order.to_slots, order.to_rows);
  }
  if (shared_experts_) out = out + shared_experts_(tokens);
  return out.view_symint(sizes);
}

at::Tensor Moe::AtExperts(const at::Tensor& rows, const at::Tensor& counts) {
  if (!exchange_) return experts_(rows, counts);
  ExpertExchange::Arrived arrived;
  {
    AnnotationGuard dispatch({.ep_role = EpRole::kDispatch});
    arrived = exchange_->Send(rows, counts);
  }
  at::Tensor results = experts_(arrived.rows, arrived.counts);
  AnnotationGuard combine({.ep_role = EpRole::kCombine});
  return exchange_->Return(results, arrived);
}

int64_t Moe::ActiveParameters() const {
  int64_t experts = ParameterCount(*experts_);
  return ParameterCount(*this) - experts + experts / config_.experts * config_.top_k;
}

void Moe::BalanceLoad(const at::Tensor& counts) {
  at::NoGradGuard no_gradients;
  if (config_.load_balance > 0 && expert_bias_.defined()) {
    at::Tensor step = config_.load_balance * at::sign(counts.mean() - counts);
    expert_bias_.add_(step - step.mean());
  }
  tokens_per_expert_.zero_();
}

}  // namespace gt::nn
