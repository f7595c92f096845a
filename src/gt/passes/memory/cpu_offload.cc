#include "gt/passes/memory/cpu_offload.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/parameter_nodes.h"
#include "gt/analysis/roles.h"
#include "gt/base/logging.h"
#include "gt/passes/memory/backward_copy.h"

namespace gt {
namespace {

// Below this a copy costs more in launches than it frees.
constexpr int64_t kLeastBytes = 4096;
constexpr int32_t kNotUsed = std::numeric_limits<int32_t>::max();

// Whether the elements fill their memory without gaps, for all values of the symbols: a copy on the
// host and back then has the same strides, and views of it are what they were.
bool IsDense(const TensorType& type, const ShapeEnv& shapes) {
  std::vector<size_t> left;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    if (!type.sizes[i].Is(1)) left.push_back(i);
  }
  // From the innermost dimension outwards: the next is the one whose stride is the product so far.
  Dim expected = 1;
  while (!left.empty()) {
    auto next = std::find_if(left.begin(), left.end(),
                             [&](size_t i) { return type.strides[i] == expected; });
    if (next == left.end()) return false;
    const Dim& size = type.sizes[*next];
    expected *= shapes.Bounds(size).low >= 1 ? size : Max(size, Dim(1));
    left.erase(next);
  }
  return true;
}

// When the layers run. Positions are numbers of nodes; the nodes must be numbered. Transfers that
// exist already do not count, so that a second run sees the layers as the first one did.
class LayerSchedule {
 public:
  explicit LayerSchedule(const Graph& graph) : roles_(graph) {
    int32_t run_start = -1;  // of the backward nodes without others between them
    for (const Node* node : graph.nodes()) {
      if (node->op().transfer != Transfer::kNone) continue;
      if (node->meta().is_backward()) {
        if (run_start < 0) run_start = node->number();
        AddBackward(*node, run_start);
        continue;
      }
      run_start = -1;
      // Once layers run backward, the forward is over, whatever still belongs to it.
      if (node->meta().phase == Phase::kForward && starts_.empty()) AddForward(*node);
    }
  }

  // Place of the node's layer in the forward, or -1.
  int32_t ForwardPlace(const Node& node) { return PlaceOf(forward_places_, node); }
  int32_t layer_count() const { return static_cast<int32_t>(ends_.size()); }

  // The last node of the layer so many layers after this place, or of the whole forward.
  int32_t ForwardEnd(int32_t place, int64_t layers_later) const {
    const int64_t left = layer_count() - 1 - place;
    return layers_later <= left ? ends_[static_cast<size_t>(place + layers_later)] : forward_end_;
  }

  // Whether the layer with which the backward begins, or the loss before it, wants the value.
  bool IsNeededImmediately(int32_t first_use) const {
    return starts_.size() > 1 && first_use < starts_[1];
  }

  // The first backward node of the layer that runs so many layers before that of a value's
  // producer, or of the whole backward. Where that is not ahead of the value's first use, layers
  // are counted from the one that uses it.
  int32_t BackwardStart(const Node& producer, int32_t first_use, int64_t layers_earlier) {
    const int32_t own = PlaceOf(backward_places_, producer);
    if (own >= 0 && StartBefore(own, layers_earlier) < first_use) {
      return StartBefore(own, layers_earlier);
    }
    auto behind = std::upper_bound(starts_.begin(), starts_.end(), first_use);
    if (behind == starts_.begin()) return first_use;
    return StartBefore(static_cast<int32_t>(behind - starts_.begin()) - 1, layers_earlier);
  }

 private:
  using Places = std::unordered_map<int32_t, int32_t>;  // by layer

  int32_t PlaceOf(const Places& places, const Node& node) {
    auto found = places.find(roles_.BlockOf(node));
    return found == places.end() ? -1 : found->second;
  }

  int32_t StartBefore(int32_t place, int64_t layers_earlier) const {
    return layers_earlier <= place ? starts_[static_cast<size_t>(place - layers_earlier)]
                                   : backward_start_;
  }

  // A layer ends where the next one begins, whatever it still has to do later.
  void AddForward(const Node& node) {
    forward_end_ = node.number();
    const int32_t layer = roles_.BlockOf(node);
    if (layer < 0) return;
    auto [found, is_new] = forward_places_.try_emplace(layer, layer_count());
    if (is_new) ends_.push_back(node.number());
    if (found->second == layer_count() - 1) ends_.back() = node.number();
  }

  // What is recomputed has the name of the layer where it was computed first, which for a value
  // that layers share is another one. It tells where a layer begins only together with the layer's
  // own work after it.
  void AddBackward(const Node& node, int32_t run_start) {
    const int32_t layer = roles_.BlockOf(node);
    if (layer < 0) return;
    if (prelude_.layer != layer) prelude_ = {layer, node.number()};
    if (node.meta().recompute != Recompute::kNone || node.op().aliasing != Aliasing::kNone) {
      return;
    }
    if (starts_.empty()) backward_start_ = run_start;
    const auto place = static_cast<int32_t>(starts_.size());
    if (backward_places_.try_emplace(layer, place).second) starts_.push_back(prelude_.start);
    prelude_ = {};
  }

  struct Prelude {
    int32_t layer = -1;
    int32_t start = -1;
  };

  Roles roles_;
  Places forward_places_, backward_places_;
  std::vector<int32_t> ends_;    // by place in the forward
  std::vector<int32_t> starts_;  // by place in the backward
  Prelude prelude_;              // nodes of one layer since the last work of any
  int32_t forward_end_ = -1;
  // Behind the loss, even if a chunked loss has backward nodes of its own: in between, memory is
  // fullest.
  int32_t backward_start_ = -1;
};

// A node of forward or loss that shows memory of a value which leaves.
struct ShownBy {
  Node* node;
  int32_t parent;                // index of the view that it looks into, -1: the value itself
  int32_t first_use = kNotUsed;  // by a backward node, directly or through views of it
};

// A value that could leave. Numbers are those of nodes before anything is inserted.
struct Candidate {
  Value* value = nullptr;
  int32_t place = 0;  // of its layer in the forward
  int64_t bytes = 0;
  bool is_gone = false;             // by an earlier run; it counts against the budget
  int32_t leaves = 0;               // its memory is free after this node
  int32_t returns = 0;              // its way back begins before this node
  int32_t first_use = 0;            // of the value or a view, after `leaves`
  std::vector<ShownBy> views = {};  // each after what it looks into
  bool chosen = false;
};

// Finds the candidates of a graph, in order.
class CandidateFinder {
 public:
  CandidateFinder(Graph& graph, const CpuOffloadOptions& options)
      : graph_(graph),
        options_(options),
        returned_(graph),
        parameters_(graph),  // numbers the nodes
        schedule_(graph),
        hints_(graph.shapes().Hints()) {}

  std::vector<Candidate> Find() {
    std::vector<Candidate> candidates;
    for (Node* node : graph_.nodes()) {
      if (!MayLeave(*node)) continue;
      for (int32_t i = 0; i < node->result_count(); ++i) {
        Candidate candidate{.value = node->result(i), .place = schedule_.ForwardPlace(*node)};
        if (IsWorthMoving(candidate) && (IsGone(candidate) || PlanMoves(candidate))) {
          candidates.push_back(std::move(candidate));
        }
      }
    }
    return candidates;
  }

 private:
  bool MayLeave(const Node& node) {
    const Meta& meta = node.meta();
    if (meta.phase != Phase::kForward) return false;
    // kOffload: of several results another one has left.
    if (meta.recompute != Recompute::kMustSave && meta.recompute != Recompute::kOffload) {
      return false;
    }
    const Operator& op = node.op();
    // A collective's buffers belong to it until its wait.
    if (op.aliasing != Aliasing::kNone || op.collective != Collective::kNone) return false;
    // States of generators are in host memory.
    if (op.transfer != Transfer::kNone || op.generator_state) return false;
    if (parameters_.Contains(node)) return false;
    const int32_t place = schedule_.ForwardPlace(node);
    const int32_t last = schedule_.layer_count() - 1;
    // The backward begins with the last layer: its values would be back before they are gone.
    return place >= 0 && (place < last || last == 0);
  }

  bool IsWorthMoving(Candidate& candidate) const {
    const TensorType& type = candidate.value->type();
    if (!type.defined() || returned_.Contains(*candidate.value)) return false;
    candidate.bytes = type.bytes().Evaluate(hints_);
    return candidate.bytes >= kLeastBytes && IsDense(type, graph_.shapes());
  }

  static bool IsGone(Candidate& candidate) {
    for (const Use& use : candidate.value->uses()) {
      candidate.is_gone |= use.node() != nullptr && use.node()->op().transfer == Transfer::kOffload;
    }
    return candidate.is_gone;
  }

  // False if there is nothing to gain: no backward use is after the point where the memory is
  // free, or the first one is so soon that compute would only wait.
  bool PlanMoves(Candidate& candidate) {
    std::optional<int32_t> last_use = FindViews(candidate);
    if (!last_use) return false;
    candidate.leaves = *last_use;
    if (options_.cpu_offload_defer_n_layers > 0) {
      const int32_t end =
          schedule_.ForwardEnd(candidate.place, options_.cpu_offload_defer_n_layers);
      candidate.leaves = std::max(candidate.leaves, end);
    }
    candidate.first_use = FindFirstUses(candidate);
    if (candidate.first_use == kNotUsed || schedule_.IsNeededImmediately(candidate.first_use))
      return false;
    candidate.returns = candidate.first_use;
    if (options_.cpu_offload_prefetch_n_layers > 0) {
      const int32_t start =
          schedule_.BackwardStart(*candidate.value->producer(), candidate.first_use,
                                  options_.cpu_offload_prefetch_n_layers);
      candidate.returns = std::clamp(start, candidate.leaves + 1, candidate.first_use);
    }
    return true;
  }

  // Returns the last use of the memory by forward or loss, or nothing if it is shown in a way that
  // cannot be repeated.
  static std::optional<int32_t> FindViews(Candidate& candidate) {
    std::vector<ShownBy>& views = candidate.views;
    int32_t last_use = candidate.value->producer()->number();
    bool repeatable = true;
    auto follow = [&](const Value& value, int32_t parent) {
      for (const Use& use : value.uses()) {
        Node* user = use.node();
        if (user == nullptr || user->meta().is_backward()) continue;
        last_use = std::max(last_use, user->number());
        if (user->op().aliasing == Aliasing::kNone) continue;
        if (ViewedValue(*user->result()) != &value) continue;
        repeatable &=
            user->op().collective == Collective::kNone && user->op().transfer == Transfer::kNone;
        views.push_back({user, parent});
      }
    };
    follow(*candidate.value, -1);
    for (size_t i = 0; i < views.size() && repeatable; ++i) {
      const Node& view = *views[i].node;
      for (int32_t r = 0; r < view.result_count(); ++r) {
        follow(*view.result(r), static_cast<int32_t>(i));
      }
    }
    return repeatable ? std::optional(last_use) : std::nullopt;
  }

  // Of every view and of the value itself; returns the first of all.
  static int32_t FindFirstUses(Candidate& candidate) {
    int32_t first = FirstUseAfter(candidate.leaves, *candidate.value);
    // Views of views are after what they look into: going back, a view's own first use is known
    // when it is handed on.
    for (size_t i = candidate.views.size(); i-- > 0;) {
      ShownBy& view = candidate.views[i];
      for (int32_t r = 0; r < view.node->result_count(); ++r) {
        view.first_use =
            std::min(view.first_use, FirstUseAfter(candidate.leaves, *view.node->result(r)));
      }
      int32_t& parent =
          view.parent < 0 ? first : candidate.views[static_cast<size_t>(view.parent)].first_use;
      parent = std::min(parent, view.first_use);
    }
    return first;
  }

  static int32_t FirstUseAfter(int32_t position, const Value& value) {
    int32_t first = kNotUsed;
    for (const Use& use : value.uses()) {
      const Node* user = use.node();
      if (user == nullptr || !user->meta().is_backward() || user->number() <= position) continue;
      first = std::min(first, user->number());
    }
    return first;
  }

  Graph& graph_;
  const CpuOffloadOptions& options_;
  EscapingStorage returned_;
  ParameterNodes parameters_;
  LayerSchedule schedule_;
  SymbolValues hints_;  // by symbol
};

// Largest first; what does not fit is passed over. Returns the bytes taken.
int64_t TakeLargest(std::vector<Candidate*>& candidates, int64_t budget) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate* a, const Candidate* b) { return a->bytes > b->bytes; });
  int64_t taken = 0;
  for (Candidate* candidate : candidates) {
    if (candidate->chosen || candidate->bytes > budget - taken) continue;
    candidate->chosen = true;
    taken += candidate->bytes;
  }
  return taken;
}

// Copies hide behind compute only if every layer gives about as much, so each layer may fill an
// equal share. The layers with the least to give choose first: the rest share what they
// leave.
void ChooseWithin(int64_t budget, std::vector<Candidate>& candidates) {
  struct LayerCandidates {
    std::vector<Candidate*> all;
    int64_t bytes = 0;
  };
  std::vector<LayerCandidates> layers;
  for (Candidate& candidate : candidates) {
    const auto place = static_cast<size_t>(candidate.place);
    if (layers.size() <= place) layers.resize(place + 1);
    layers[place].all.push_back(&candidate);
    layers[place].bytes += candidate.bytes;
  }
  std::erase_if(layers, [](const LayerCandidates& layer) { return layer.all.empty(); });
  std::stable_sort(
      layers.begin(), layers.end(),
      [](const LayerCandidates& a, const LayerCandidates& b) { return a.bytes < b.bytes; });
  for (size_t i = 0; i < layers.size(); ++i) {
    budget -= TakeLargest(layers[i].all, budget / static_cast<int64_t>(layers.size() - i));
  }
  // Shares are rarely filled to the last byte.
  std::vector<Candidate*> left;
  for (Candidate& candidate : candidates) {
    if (!candidate.chosen) left.push_back(&candidate);
  }
  TakeLargest(left, budget);
}

void Choose(double budget_gb, std::vector<Candidate>& candidates) {
  constexpr double kGib = 1 << 30;
  constexpr double kMost = static_cast<double>(int64_t{1} << 62);
  if (budget_gb > 0) {
    const double budget = std::min(budget_gb * kGib, kMost);
    return ChooseWithin(static_cast<int64_t>(budget), candidates);
  }
  for (Candidate& candidate : candidates) candidate.chosen = true;
}

Meta TransferMeta(const Node& producer, Phase phase) {
  Meta meta = phase == Phase::kBackward ? BackwardMeta(producer.meta()) : producer.meta();
  // These tell what the producer is for, not where it is.
  meta.recompute = Recompute::kNone;
  meta.exchange = TokenExchange::kNone;
  return meta;
}

// Inserts the transfers. Where several are between the same two nodes, copies to the host begin
// before any is waited for, and copies back begin in the order in which they are needed.
class OffloadRewriter {
 public:
  OffloadRewriter(Graph& graph, std::vector<Candidate*> leaving) : graph_(graph) {
    nodes_.reserve(static_cast<size_t>(graph.node_count()));
    for (Node* node : graph.nodes()) nodes_.push_back(node);
    for (Candidate* candidate : leaving) moves_.push_back({candidate});
  }

  void Rewrite() {
    for (Move& move : moves_) BeginOffload(move);
    for (Move& move : moves_) EndOffload(move);
    std::stable_sort(moves_.begin(), moves_.end(), [](const Move& a, const Move& b) {
      return a.candidate->first_use < b.candidate->first_use;
    });
    for (Move& move : moves_) BeginReload(move);
    for (Move& move : moves_) EndReload(move);
  }

  int64_t view_count() const { return view_count_; }

 private:
  struct Move {
    Candidate* candidate;
    Value* moved = nullptr;  // the newest of %t_offload, %t_host, %t_reload
    Value* host = nullptr;
  };

  void BeginOffload(Move& move) {
    static const Operator* const kOp = FindOperator("gt::offload");
    Value* value = move.candidate->value;
    Node& producer = *value->producer();
    producer.meta().recompute = Recompute::kOffload;
    move.moved = Insert({kOp,
                         {value},
                         {OperandRef{0}},
                         TransferMeta(producer, Phase::kForward),
                         value->name() + "_offload"},
                        Behind(producer.number()));
  }

  void EndOffload(Move& move) {
    move.host = InsertWait(move, move.candidate->value, Phase::kForward, "_host",
                           Behind(move.candidate->leaves));
    move.moved = move.host;
  }

  void BeginReload(Move& move) {
    static const Operator* const kOp = FindOperator("gt::reload");
    const Value& value = *move.candidate->value;
    move.moved = Insert({kOp,
                         {move.host},
                         {OperandRef{0}, value.type().device},
                         TransferMeta(*value.producer(), Phase::kBackward),
                         value.name() + "_reload"},
                        At(move.candidate->returns));
  }

  void EndReload(Move& move) {
    Candidate& candidate = *move.candidate;
    Value* back = InsertWait(move, move.host, Phase::kBackward, "_back", At(candidate.first_use));
    Redirect(candidate, *candidate.value, back);
    std::vector<Node*> copies(candidate.views.size());
    for (size_t i = 0; i < copies.size(); ++i) {
      const ShownBy& view = candidate.views[i];
      if (view.first_use == kNotUsed) continue;
      const Value& viewed = *ViewedValue(*view.node->result());
      Value* shown =
          view.parent < 0 ? back : copies[static_cast<size_t>(view.parent)]->result(viewed.index());
      copies[i] = CopyView(view, viewed, shown);
      for (int32_t r = 0; r < view.node->result_count(); ++r) {
        Redirect(candidate, *view.node->result(r), copies[i]->result(r));
      }
    }
  }

  Node* CopyView(const ShownBy& view, const Value& viewed, Value* shown) {
    std::vector<Value*> operands;
    for (int32_t i = 0; i < view.node->operand_count(); ++i) {
      Value* operand = view.node->operand(i);
      operands.push_back(operand == &viewed ? shown : operand);
    }
    std::vector<std::string> names;
    for (int32_t r = 0; r < view.node->result_count(); ++r) {
      names.push_back(FreeName(view.node->result(r)->name() + "_back"));
    }
    ++view_count_;
    return InsertBackwardCopy(graph_, *view.node, std::move(operands), At(view.first_use),
                              std::move(names));
  }

  // Uses before the value has left keep the original.
  static void Redirect(const Candidate& candidate, const Value& from, Value* to) {
    std::vector<const Use*> uses;  // the list itself changes with every operand that is set
    for (const Use& use : from.uses()) {
      const Node* user = use.node();
      if (user == nullptr || !user->meta().is_backward() || user->number() <= candidate.leaves)
        continue;
      uses.push_back(&use);
    }
    for (const Use* use : uses) use->node()->SetOperand(use->index(), to);
  }

  Value* InsertWait(const Move& move, Value* source, Phase phase, std::string_view suffix,
                    Node* before) {
    static const Operator* const kOp = FindOperator("gt::wait_transfer");
    const Value& value = *move.candidate->value;
    return Insert({kOp,
                   {move.moved, source},
                   {OperandRef{0}, OperandRef{1}},
                   TransferMeta(*value.producer(), phase),
                   value.name() + std::string(suffix)},
                  before);
  }

  Value* Insert(Graph::NodeSpec spec, Node* before) {
    return graph_.Insert(std::move(spec), before)->result();
  }

  std::string FreeName(const std::string& wanted) const {
    std::string name = wanted;
    for (int n = 1; graph_.FindValue(name) != nullptr; ++n) name = fmt::format("{}_{}", wanted, n);
    return name;
  }

  Node* At(int32_t number) const { return nodes_[static_cast<size_t>(number)]; }
  Node* Behind(int32_t number) const {
    const size_t next = static_cast<size_t>(number) + 1;
    return next < nodes_.size() ? nodes_[next] : nullptr;
  }

  Graph& graph_;
  std::vector<Node*> nodes_;  // by number; new nodes have none
  std::vector<Move> moves_;
  int64_t view_count_ = 0;
};

}  // namespace

CpuOffload::CpuOffload(CpuOffloadOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& CpuOffload::info() const {
  static constexpr PassInfo kInfo = {
      .name = "cpu_offload",
      .summary = "Moves kept forward values to host memory until the backward needs them.",
      .description =
          "Values tagged must_save that own their memory, have 4 KiB or more and a backward use, "
          "and belong to a layer other than the last are copied to the host while compute goes on, "
          "and back ahead of their use. What the first layer of the backward wants stays as well. "
          "Every layer gets an equal share of the budget, which it "
          "fills with its largest values; what a layer leaves goes to the others. Compute waits "
          "for the copy to the host at the end of a later layer, never before the last forward use "
          "of the memory, which is then free. Views of a value that leaves are made again in the "
          "backward, each once. Backward nodes that come before a value has left use it as it is. "
          "Runs behind rematerialize, so that what is computed again reads what came back.",
      .reads = "recompute tags, phases, blocks, sizes at their hints, outputs.",
      .writes = "transfers and copies of views; the tag offload on what leaves.",
      .never =
          "moves what a collective returned, what is made of parameters alone, or what the step "
          "returns.",
      .by_block = true,
  };
  return kInfo;
}

bool CpuOffload::RunImpl(Graph& graph, PassContext& /*context*/) {
  std::vector<Candidate> candidates = CandidateFinder(graph, options_).Find();
  Choose(options_.cpu_offload_budget_gb, candidates);
  std::vector<Candidate*> leaving;
  int64_t bytes = 0, skipped = 0;
  for (Candidate& candidate : candidates) {
    skipped += candidate.chosen ? 0 : 1;
    if (!candidate.chosen || candidate.is_gone) continue;
    leaving.push_back(&candidate);
    bytes += candidate.bytes;
  }
  const auto count = static_cast<int64_t>(leaving.size());
  OffloadRewriter rewriter(graph, std::move(leaving));
  rewriter.Rewrite();
  tensors_ += count;
  bytes_ += bytes;
  views_ += rewriter.view_count();
  skipped_budget_ += skipped;
  log::Debug("cpu offload: {} of {} values leave with {} bytes, {} are over the budget", count,
             candidates.size(), bytes, skipped);
  return count > 0;
}

}  // namespace gt
