// Mixture of experts: a router chooses k experts for every token, tokens are brought into the order
// of their experts, each expert is one group of a grouped matrix product, and the results go back
// weighted by the router's scores.
//
// Everything is deterministic. A token's k results are gathered and added in the order of the
// choice; nothing is scattered with atomic additions, neither forward nor backward.
#pragma once

#include <c10/core/SymInt.h>

#include <memory>
#include <optional>
#include <vector>

#include "gt/nn/blocks.h"

namespace gt::nn {

struct MoeConfig {
  enum class Score { kSoftmax, kSigmoid };
  int64_t width = 256;
  int64_t experts = 8;
  int64_t hidden = 256;  // of one expert
  int64_t top_k = 2;
  int64_t shared_hidden = 0;  // of the expert that every token visits; 0: there is none
  Score score = Score::kSoftmax;
  bool normalize = false;  // chosen scores are divided by their sum
  double scale = 1.0;      // and multiplied by this
  // Experts are in `groups` equal groups; only the best `kept_groups` of them (by the sum of their
  // two best choices) may be chosen from. 1: no groups.
  int64_t groups = 1;
  int64_t kept_groups = 1;
  bool bias = false;           // a correction that is added for choosing, but not to the weight
  double load_balance = 0.0;   // how far the correction moves toward balance at each step
  bool force_balance = false;  // for measurements: experts in turn, whatever the router says
};

struct MoeInits {
  Init router, in, out;  // `in` for w1, `out` for w2 and w3
};

// Which experts a token is routed to, and how much each counts.
struct Routing {
  at::Tensor experts;  // [tokens, k], int64
  at::Tensor weights;  // [tokens, k], float32
  at::Tensor counts;   // [experts], int64: tokens of each expert
};

class Router : public Module {
 public:
  Router(const MoeConfig& config, Init init);
  // x: [tokens, width]; bias: [experts], or undefined.
  Routing forward(const at::Tensor& x, const at::Tensor& bias);

  // For measurements: from now on experts are drawn by these weights, one for each, instead of chosen
  // by score (sim/routing_loads.h). Before the model has its memory.
  void ForceLoad(const std::vector<double>& weights);

 private:
  Routing ByOneOperator(const at::Tensor& logits, const at::Tensor& bias) const;
  Routing ByParts(const at::Tensor& logits, const at::Tensor& bias) const;
  at::Tensor OnlyBestGroups(const at::Tensor& choice) const;
  at::Tensor DrawnExperts(const at::Tensor& scores) const;
  MoeConfig config_;
  Ref<Linear> gate_;
  at::Tensor draw_phases_, draw_intervals_;  // [experts], float64; undefined unless ForceLoad
};

// The experts' weights, one above the other, and their grouped products.
class Experts : public Module {
 public:
  Experts(const MoeConfig& config, const MoeInits& inits);
  // Rows in the order of the experts; `counts` rows for each.
  at::Tensor forward(const at::Tensor& rows, const at::Tensor& counts);

 private:
  Parameter w1_, w2_, w3_;  // [experts, hidden, width], [experts, width, hidden], like w1
};

// Brings rows to where their experts are, and results back, when experts are spread over ranks.
class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;
  struct Arrived {
    at::Tensor rows;    // in the order of the experts that are here
    at::Tensor counts;  // rows of each of them
    // What Return needs to know.
    at::Tensor to_experts, to_ranks;
    std::vector<c10::SymInt> sent, received;
  };
  // `rows` in the order of all experts, `counts` of each.
  virtual Arrived Send(const at::Tensor& rows, const at::Tensor& counts) = 0;
  // Results of arrived rows, to where those came from.
  virtual at::Tensor Return(const at::Tensor& results, const Arrived& arrived) = 0;
};

class Moe : public FeedForward {
 public:
  Moe(const MoeConfig& config, const MoeInits& inits);
  at::Tensor forward(const at::Tensor& x) override;
  int64_t ActiveParameters() const override;

  const MoeConfig& config() const { return config_; }
  void ForceLoad(const std::vector<double>& weights) { router_->ForceLoad(weights); }
  // From now on experts are where the exchange takes rows.
  void ShardExperts(std::shared_ptr<ExpertExchange> exchange) { exchange_ = std::move(exchange); }

  // Tokens of each expert since the last BalanceLoad, as far as this rank has seen them.
  const at::Tensor& tokens_per_expert() const { return tokens_per_expert_; }
  // Before the optimizer's step, with the counts of all ranks: moves the correction of experts with
  // fewer tokens than average up and of the others down, and starts counting anew.
  void BalanceLoad(const at::Tensor& counts);

 private:
  at::Tensor AtExperts(const at::Tensor& rows, const at::Tensor& counts);

  MoeConfig config_;
  std::shared_ptr<ExpertExchange> exchange_;  // null: all experts are here
  Ref<Router> router_;
  Ref<Experts> experts_;
  Ref<SwiGlu> shared_experts_;
  at::Tensor expert_bias_;        // [experts]; undefined without bias
  at::Tensor tokens_per_expert_;  // [experts], counted since the last BalanceLoad
};

}  // namespace gt::nn
