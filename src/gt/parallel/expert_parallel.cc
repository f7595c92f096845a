#include "gt/parallel/expert_parallel.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gt/dist/collectives.h"
#include "gt/torch_bridge/scope.h"
#include "gt/trace/read_ints.h"

namespace gt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Row i of the result is row order[i]. Backward uses the inverse order, so nothing is scattered.
class Reorder : public torch::autograd::Function<Reorder> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& order,
                            const at::Tensor& inverse) {
    ctx->save_for_backward({inverse});
    return rows.index_select(0, order);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    return {gradients[0].index_select(0, ctx->get_saved_variables()[0]), {}, {}};
  }
};

at::Tensor StartsOf(const at::Tensor& lengths) { return at::cumsum(lengths, 0) - lengths; }

class AllToAllExchange : public nn::ExpertExchange {
 public:
  explicit AllToAllExchange(const Group* group) : group_(group) {}

  Arrived Send(const at::Tensor& rows, const at::Tensor& counts) override {
    int64_t ranks = group_->size();
    int64_t experts = counts.sym_size(0).guard_int(__FILE__, __LINE__) / ranks;  // on each rank
    Arrived arrived;
    at::Tensor from_ranks;  // [ranks, experts here]: rows that each rank sends to each expert
    {
      at::NoGradGuard no_gradients;
      AnnotationGuard annotation({.exchange = TokenExchange::kCountExchange});
      std::vector<c10::SymInt> even(static_cast<size_t>(ranks), experts);
      from_ranks = AllToAll(counts, even, even, group_).view({ranks, experts});
    }
    {
      at::NoGradGuard no_gradients;
      AnnotationGuard annotation({.exchange = TokenExchange::kCountSync});
      arrived.sent = ReadInts(counts.view({ranks, experts}).sum(1), {.sum = rows.sym_size(0)});
      arrived.received = ReadInts(from_ranks.sum(1), {.expected_sum = rows.sym_size(0)});
    }
    at::Tensor by_rank;
    {
      AnnotationGuard annotation({.exchange = TokenExchange::kExchange});
      by_rank = ExchangeRows(rows, arrived.received, arrived.sent, group_);
    }
    FindOrder(from_ranks, by_rank.sym_size(0), &arrived);
    arrived.rows = Reorder::apply(by_rank, arrived.to_experts, arrived.to_ranks);
    arrived.counts = from_ranks.sum(0);
    return arrived;
  }

  at::Tensor Return(const at::Tensor& results, const Arrived& arrived) override {
    at::Tensor by_rank = Reorder::apply(results, arrived.to_ranks, arrived.to_experts);
    AnnotationGuard annotation({.exchange = TokenExchange::kExchange});
    return ExchangeRows(by_rank, arrived.sent, arrived.received, group_);
  }

 private:
  // Rows arrive in segments ordered by rank and, within it, by expert. They are wanted by expert and,
  // within it, by rank. `rows` is the sum of the segments' lengths.
  static void FindOrder(const at::Tensor& from_ranks, const c10::SymInt& rows, Arrived* arrived) {
    at::NoGradGuard no_gradients;
    at::Tensor starts = StartsOf(from_ranks.reshape({-1})).view_symint(from_ranks.sym_sizes());
    at::Tensor wanted_lengths = from_ranks.t().reshape({-1});
    at::Tensor wanted_starts = starts.t().reshape({-1});
    // A row of the wanted order -> its segment -> its distance from the segment's first row.
    at::Tensor segment = at::repeat_interleave_symint(wanted_lengths, std::optional(rows));
    at::Tensor position = at::arange(rows, segment.options());
    at::Tensor within = position - StartsOf(wanted_lengths).index_select(0, segment);
    arrived->to_experts = wanted_starts.index_select(0, segment) + within;
    arrived->to_ranks =
        at::scatter(at::zeros_like(arrived->to_experts), 0, arrived->to_experts, position);
  }

  const Group* group_;
};

}  // namespace

std::shared_ptr<nn::ExpertExchange> MakeExpertExchange(const Group* group) {
  return std::make_shared<AllToAllExchange>(group);
}

}  // namespace gt
