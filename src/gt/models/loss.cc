#include "gt/models/loss.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gt/dist/collectives.h"
#include "gt/kernels/row_operators.h"
#include "gt/torch_bridge/scope.h"

namespace gt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

using HeadSharding = LanguageModel::HeadSharding;

// Cross entropy of logits whose columns are spread over ranks: per token, the loss and the logarithm
// of the softmax's denominator. Three numbers a token travel, never logits.
class ShardedCrossEntropy : public torch::autograd::Function<ShardedCrossEntropy> {
 public:
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& logits,
                             const at::Tensor& labels, const HeadSharding* spread) {
    at::Tensor largest = AllReduceMax(at::amax(logits, {-1}), spread->group);
    at::Tensor powers = at::exp(logits - largest.unsqueeze(1));
    at::Tensor column = labels - spread->first_row;
    at::Tensor here = at::logical_and(at::ge(column, 0), at::lt(column, logits.sym_size(1)));
    column = column.masked_fill(at::logical_not(here), 0).unsqueeze(1);
    at::Tensor chosen = logits.gather(1, column).squeeze(1).masked_fill(at::logical_not(here), 0.0);
    at::Tensor sums = AllReduceSum(at::stack({powers.sum(1), chosen}), spread->group);
    at::Tensor log_sum = at::log(sums[0]) + largest;
    at::Tensor ignored = at::eq(labels, kIgnoredLabel);
    at::Tensor softmax = powers / sums[0].unsqueeze(1);
    ctx->save_for_backward({softmax, column, here, ignored});
    return {(log_sum - sums[1]).masked_fill(ignored, 0.0), log_sum.masked_fill(ignored, 0.0)};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    tensor_list saved = ctx->get_saved_variables();
    const at::Tensor &softmax = saved[0], &column = saved[1], &here = saved[2];
    at::Tensor of_loss = gradients[0].masked_fill(saved[3], 0.0);
    at::Tensor of_log_sum =
        gradients[1].defined() ? of_loss + gradients[1].masked_fill(saved[3], 0.0) : of_loss;
    at::Tensor slope = softmax * of_log_sum.unsqueeze(1);
    at::Tensor at_label = of_loss.masked_fill(at::logical_not(here), 0.0).unsqueeze(1);
    return {at::scatter(slope, 1, column, slope.gather(1, column) - at_label), {}, {}};
  }
};

// Cross entropy of logits in whatever dtype the head has made them: nothing as large as they are is kept but
// they themselves, and nothing wider is written. Per token, the loss and the logarithm of the softmax's
// denominator, in float32.
class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& logits,
                             const at::Tensor& labels) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->set_materialize_grads(false);
    at::Tensor log_sum = RowLogSumExp(logits);
    at::Tensor ignored = at::eq(labels, kIgnoredLabel);
    at::Tensor column = labels.masked_fill(ignored, 0).unsqueeze(1);
    at::Tensor chosen = logits.gather(1, column).squeeze(1);
    at::Tensor losses = at::sub(log_sum, chosen).masked_fill(ignored, 0.0);
    ctx->save_for_backward({logits, labels, log_sum, ignored});
    return {losses, log_sum.masked_fill(ignored, 0.0)};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    tensor_list saved = ctx->get_saved_variables();
    const at::Tensor &logits = saved[0], &labels = saved[1], &log_sum = saved[2];
    at::Tensor of_loss = gradients[0].masked_fill(saved[3], 0.0);
    at::Tensor of_log_sum =
        gradients[1].defined() ? of_loss + gradients[1].masked_fill(saved[3], 0.0) : of_loss;
    return {CrossEntropyBackward(of_loss, of_log_sum, logits, labels, log_sum, kIgnoredLabel), {}};
  }
};

// logits: [tokens, vocab], as the head has made them. All that follows is computed in float32.
at::Tensor LossOfLogits(const at::Tensor& logits, const at::Tensor& labels,
                        const at::Tensor& valid_tokens, double z_loss, const HeadSharding& spread) {
  if (spread.group != nullptr || logits.is_cuda()) {
    tensor_list per_token = spread.group == nullptr ? CrossEntropy::apply(logits, labels)
                                                    : ShardedCrossEntropy::apply(
                                                          logits.to(at::kFloat), labels, &spread);
    at::Tensor sum = per_token[0].sum();
    if (z_loss > 0) sum = sum + z_loss * per_token[1].square().sum();
    return sum / valid_tokens;
  }
  // libtorch's operators, which a CPU has kernels for.
  at::Tensor scores = logits.to(at::kFloat);
  at::Tensor sum = at::cross_entropy_loss_symint(scores, labels, /*weight=*/{}, at::Reduction::Sum,
                                                 kIgnoredLabel);
  if (z_loss > 0) {
    at::Tensor counted = at::ne(labels, kIgnoredLabel);
    at::Tensor squares = at::logsumexp(scores, {-1}).square();
    sum = sum + z_loss * at::where(counted, squares, at::zeros_like(squares)).sum();
  }
  return sum / valid_tokens;
}

// hidden: [batch, length, width] -> [batch * length, width]
at::Tensor Rows(const at::Tensor& hidden) {
  return hidden.reshape_symint({hidden.sym_size(0) * hidden.sym_size(1), hidden.sym_size(2)});
}

at::Tensor ChunkLoss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                     const at::Tensor& valid_tokens, double z_loss, const HeadSharding& spread) {
  at::Tensor logits = at::linear(Rows(hidden), weight);
  return LossOfLogits(logits, labels.reshape({-1}), valid_tokens, z_loss, spread);
}

// Calls `visit(start, count)` for each of at most `chunks` equal stretches of the sequence; the last
// may be shorter.
template <typename Visit>
void ForEachChunk(const c10::SymInt& length, int64_t chunks, Visit&& visit) {
  c10::SymInt step = (length + (chunks - 1)) / chunks;
  for (int64_t i = 0; i < chunks; ++i) {
    c10::SymInt start = step * i;
    if (start >= length) break;
    visit(start, i + 1 == chunks ? length - start : step.min(length - start));
  }
}

// Loss and gradients of each chunk before the next one begins. The gradients are those of the loss
// itself; backward only multiplies them by what the loss is multiplied with.
class ChunkedLoss : public torch::autograd::Function<ChunkedLoss> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& labels,
                            const at::Tensor& valid_tokens, int64_t chunks, double z_loss,
                            const HeadSharding* spread) {
    at::Tensor total, weight_gradient;
    std::vector<at::Tensor> hidden_gradients;
    ForEachChunk(
        hidden.sym_size(1), chunks, [&](const c10::SymInt& start, const c10::SymInt& count) {
          at::Tensor part = hidden.narrow_symint(1, start, count);
          at::Tensor rows = Rows(part);
          at::Tensor logits = at::linear(rows, weight).requires_grad_();
          at::Tensor loss;
          {
            at::AutoGradMode enable(true);
            loss = LossOfLogits(logits, labels.narrow_symint(1, start, count).reshape({-1}),
                                valid_tokens, z_loss, *spread);
          }
          AnnotationGuard backward({.phase = Phase::kBackward});
          at::Tensor slope = torch::autograd::grad({loss}, {logits}, {at::ones_like(loss)})[0];
          hidden_gradients.push_back(slope.mm(weight).view_symint(part.sym_sizes()));
          // Added up inside the matrix product.
          weight_gradient = weight_gradient.defined() ? at::addmm(weight_gradient, slope.t(), rows)
                                                      : slope.t().mm(rows);
          total = total.defined() ? total + loss.detach() : loss.detach();
        });
    ctx->save_for_backward({at::cat(hidden_gradients, 1), weight_gradient});
    return total;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    tensor_list saved = ctx->get_saved_variables();
    auto scaled = [&](const at::Tensor& gradient) {
      return gradient * gradients[0].to(gradient.scalar_type());
    };
    return {scaled(saved[0]), scaled(saved[1]), {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor LossOf(LanguageModel& model, const ModelInputs& inputs, const at::Tensor& labels,
                  const at::Tensor& valid_tokens, const LossConfig& config) {
  const HeadSharding& spread = model.head_sharding();
  at::Tensor hidden = GatherAlong(model.Hidden(inputs), 1, spread.group);
  at::Tensor weight = model.HeadWeight();
  Scope scope = CurrentScope();
  scope.module = Name("loss");
  scope.phase = Phase::kLoss;
  scope.source = SourceName(std::source_location::current());
  ScopeGuard guard(scope);
  if (config.chunks == 1)
    return ChunkLoss(hidden, weight, labels, valid_tokens, config.z_loss, spread);
  if (at::GradMode::is_enabled() && hidden.requires_grad()) {
    return ChunkedLoss::apply(hidden, weight, labels, valid_tokens, config.chunks, config.z_loss,
                              &spread);
  }
  at::Tensor total;
  ForEachChunk(
      hidden.sym_size(1), config.chunks, [&](const c10::SymInt& start, const c10::SymInt& count) {
        at::Tensor part =
            ChunkLoss(hidden.narrow_symint(1, start, count), weight,
                      labels.narrow_symint(1, start, count), valid_tokens, config.z_loss, spread);
        total = total.defined() ? total + part : part;
      });
  return total;
}

}  // namespace gt
