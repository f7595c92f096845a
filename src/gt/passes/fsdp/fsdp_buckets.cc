#include "gt/passes/fsdp/fsdp_buckets.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/collectives.h"
#include "gt/base/error.h"
#include "gt/ops/rules.h"
#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"

namespace gt::fsdp {
namespace {

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = key.unit.Hash();
    auto mix = [&hash](size_t value) { hash = hash * 0x9e3779b97f4a7c15ULL + value; };
    mix(key.experts.Hash());
    mix(key.group.Hash());
    mix(key.region.Hash());
    mix(std::hash<const void*>()(key.op));
    mix(static_cast<size_t>(key.chunk) * 4 + static_cast<size_t>(key.dtype) * 2 + key.backward);
    mix(static_cast<size_t>(key.behind) * 3 + static_cast<size_t>(key.alone));
    mix(static_cast<size_t>(key.part));
    return hash;
  }
};

// Whether it can be run at another time without anybody noticing.
bool IsPlain(const Node& node) {
  const Operator& op = node.op();
  return op.collective == Collective::kNone && op.transfer == Transfer::kNone && !op.random &&
         !op.side_effect && !op.reads_data;
}

// Whether a node only copies, casts, pads or rearranges one tensor.
bool IsPureLayoutChange(const Node& node) {
  if (node.operand_count() != 1 || node.result_count() != 1) return false;
  const Operator& op = node.op();
  if (!IsPlain(node)) return false;
  const bool pads = op.work == Work::kMove && op.linearity == Linearity::kOneOperand;
  return op.work == Work::kClone || pads || op.aliasing != Aliasing::kNone;
}

// Gradients of chunks, or of the uses of a shared parameter, are added.
bool Adds(const Node& node) {
  static const Name kAdd("aten::add.Tensor");
  return node.op().name == kAdd && node.operand_count() == 2;
}

bool IsConstant(const TensorType& type) {
  auto is_number = [](const Dim& dim) { return dim.as_const().has_value(); };
  return std::all_of(type.sizes.begin(), type.sizes.end(), is_number);
}

Node* WaitOf(const Node& collective) {
  const Value& result = *collective.result();
  if (!result.has_one_use()) return nullptr;
  Node* user = (*result.uses().begin()).node();
  return user != nullptr && user->op().collective == Collective::kWait ? user : nullptr;
}

// Finds members, and sorts the nodes around them into chains and tails.
class MemberFinder {
 public:
  MemberFinder(Graph& graph, PassContext& context, BucketChooser& chooser,
               std::vector<Bucket>& buckets)
      : graph_(graph),
        chooser_(chooser),
        buckets_(buckets),
        origins_(context.Get<ParameterOrigins>(graph)),
        escaping_(context.Get<EscapingStorage>(graph)),
        facts_(static_cast<size_t>(graph.node_count())) {}

  // Gathers, then reductions in the order in which they start, then those after reductions.
  void Find() {
    FindGradients();
    for (Node* node : graph_.nodes()) Look(*node);
    AddGathers();
    const size_t first_reduction = buckets_.size();
    AddReductions();
    SortByPosition(first_reduction);
    AssignTails();
    for (Bucket& bucket : buckets_) SortMembers(bucket);
    chooser_.NameBuckets(buckets_);
  }

  // The nodes that stay, by their positions; null where a node moves or is removed.
  std::vector<Node*> Staying() const {
    std::vector<Node*> staying;
    staying.reserve(facts_.size());
    for (Node* node : graph_.nodes()) {
      staying.push_back(Of(*node).kind == Kind::kOrdinary ? node : nullptr);
    }
    return staying;
  }
  int64_t left_alone() const { return left_alone_; }

 private:
  enum class Kind : uint8_t {
    kOrdinary,
    kChain,     // between a parameter or gradient and a member
    kMember,    // a gather of a parameter or a reduction of a gradient
    kGathered,  // a gather's wait
    kReduced,   // a reduction's wait
    kTail,      // only moves and adds what was reduced
  };
  struct Facts {
    Kind kind = Kind::kOrdinary;
    int32_t gradient = -1;      // reductions: the parameter whose gradient this becomes
    int32_t source = -1;        // chains: position of what they begin with
    int32_t deadline = kNever;  // reduced values and tails: the first node that is in no tail
    int32_t bucket = -1;        // the same: whose end they are after
  };
  Facts& Of(const Node& node) { return facts_[Index(node)]; }
  const Facts& Of(const Node& node) const { return facts_[Index(node)]; }

  // Walks up from each gradient to the reductions that produce it.
  void FindGradients() {
    std::unordered_map<std::string_view, int32_t> positions;
    for (const auto& input : graph_.inputs()) {
      if (input->role == InputRole::kParameter) positions[input->name] = input->value.index();
    }
    std::vector<bool> seen(facts_.size());
    std::vector<const Value*> open;
    for (const auto& output : graph_.outputs()) {
      if (output->role != OutputRole::kGradient) continue;
      auto found = positions.find(output->name);
      if (found == positions.end()) continue;
      for (open = {output->value()}; !open.empty();) {
        const Node* node = open.back()->producer();
        open.pop_back();
        if (node == nullptr || seen[Index(*node)]) continue;
        seen[Index(*node)] = true;
        const Collective kind = node->op().collective;
        const bool reduces = kind == Collective::kReduceScatter || kind == Collective::kAllReduce;
        if (reduces) Of(*node).gradient = found->second;
        // Ancestors of a reduce-scatter are no gradient's last reduction: the walk stops there.
        if (kind == Collective::kAllReduce || kind == Collective::kWait ||
            IsPureLayoutChange(*node) || Adds(*node)) {
          for (int32_t i = 0; i < node->operand_count(); ++i) open.push_back(node->operand(i));
        }
      }
    }
  }

  // In graph order: what a node's operands are is known.
  void Look(Node& node) {
    if (origins_.IsParameterGather(node)) {
      LookAtMember(node, origins_.Of(node));
    } else if (Of(node).gradient >= 0) {
      LookAtMember(node, Of(node).gradient);
    } else if (IsTail(node)) {
      Of(node).kind = Kind::kTail;
      late_.push_back(&node);
    }
  }

  void LookAtMember(Node& node, int32_t parameter) {
    if (!node.meta().fsdp_bucket.empty()) return;  // an earlier run's
    const bool gathers = node.op().collective == Collective::kAllGather;
    const bool has_source = !IsReduced(*node.operand(0));
    if (!chooser_.Takes(node, /*follows=*/!has_source)) return;
    Node* wait = WaitOf(node);
    Member member{&node, wait, parameter, kNever, false, {}};
    if (wait == nullptr || !CanBePacked(node, has_source) ||
        (has_source && !CollectChain(member, gathers))) {
      ++left_alone_;
      return;
    }
    Of(node).kind = Kind::kMember;
    Of(*wait).kind = gathers ? Kind::kGathered : Kind::kReduced;
    if (gathers) {
      member.position = FirstUse(*wait);
      gathers_.push_back(std::move(member));
      return;
    }
    member.escapes = escaping_.Contains(*wait->result());
    if (has_source) {
      reductions_.push_back(std::move(member));
    } else {
      late_.push_back(&node);
      again_.emplace(&node, std::move(member));
    }
    late_.push_back(wait);
  }

  bool CanBePacked(const Node& node, bool has_source) const {
    if (node.operand_count() != 1 || node.result_count() != 1) return false;
    const TensorType& input = node.operand(0)->type();
    const TensorType& result = node.result()->type();
    if (!IsConstant(input) || !IsConstant(result)) return false;
    if (node.op().collective == Collective::kReduceScatter && !has_source) return false;
    // Strides of dimensions with one row, or of no rows, may be any: ranks with longer shards pack,
    // and so must this one.
    return rules::IsContiguous(graph_.shapes(), input);
  }

  // From the collective's input up to the parameter or gradient.
  bool CollectChain(Member& member, bool gathers) {
    const Value* value = member.collective->operand(0);
    int32_t source = -1;  // a graph input is available from the start
    for (; !value->is_input(); value = value->producer()->operand(0)) {
      Node& node = *value->producer();
      // What an earlier run left alone after a bucket stays alone.
      if (!node.meta().fsdp_bucket.empty()) return false;
      if (Of(node).kind == Kind::kChain) {  // shared with another member
        source = Of(node).source;
        break;
      }
      const bool moves =
          gathers ? IsPlain(node) && IsConstant(node.result()->type()) : IsPureLayoutChange(node);
      if (!moves || Of(node).kind != Kind::kOrdinary) {
        source = node.number();
        break;
      }
      member.chain.push_back(&node);
    }
    // The input of a gather is made by something that must stay, say another collective.
    if (gathers && source >= 0) return false;
    std::reverse(member.chain.begin(), member.chain.end());
    for (Node* node : member.chain) {
      Of(*node).kind = Kind::kChain;
      Of(*node).source = source;
    }
    member.position = source;
    return true;
  }

  bool IsReduced(const Value& value) const {
    if (value.is_input()) return false;
    const Kind kind = Of(*value.producer()).kind;
    return kind == Kind::kReduced || kind == Kind::kTail;
  }

  bool IsTail(const Node& node) const {
    if (Of(node).kind != Kind::kOrdinary) return false;
    bool any = false;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value& operand = *node.operand(i);
      if (IsReduced(operand)) {
        any = true;
      } else if (!operand.is_input()) {
        return false;
      }
    }
    return any && (IsPureLayoutChange(node) || Adds(node));
  }

  static int32_t FirstUse(const Node& wait) {
    int32_t first = wait.result()->has_uses() ? kNever : wait.number();
    for (const Use& use : wait.result()->uses()) {
      if (use.node() != nullptr) first = std::min(first, use.node()->number());
    }
    return first;
  }

  // What members of one bucket must have in common, whoever chooses.
  static Key CommonKey(const Member& member) {
    const Node& node = *member.collective;
    const Operator& op = node.op();
    Key key;
    key.op = &op;
    key.backward = node.meta().phase == Phase::kBackward;
    key.group = Name(GroupOf(node));
    if (int at = op.schema.Find("reduce_op"); at >= 0) {
      key.reduction = Name(std::get<std::string>(node.arg(at)));
    }
    if (int at = op.schema.Find("group_size"); at >= 0) {
      key.ranks = *std::get<Dim>(node.arg(at)).as_const();
    }
    key.dtype = node.result()->type().dtype;
    key.device = node.result()->type().device;
    if (const ChunkMeta* chunk = node.meta().chunk.get()) {
      key.chunk = chunk->id;
      key.region = chunk->region;
    }
    return key;
  }

  std::vector<Candidate> Chosen(const std::vector<Member>& members) {
    std::vector<Candidate> candidates;
    candidates.reserve(members.size());
    for (const Member& member : members) {
      candidates.push_back({&member, CommonKey(member), Of(*member.wait).deadline});
    }
    chooser_.Choose(candidates);
    return candidates;
  }

  int32_t Add(const Key& key, Member member) {
    auto [found, is_new] = known_.try_emplace(key, static_cast<int32_t>(buckets_.size()));
    if (is_new) buckets_.emplace_back().key = key;
    buckets_[Index(found->second)].members.push_back(std::move(member));
    return found->second;
  }

  void AddGathers() {
    for (const Candidate& candidate : Chosen(gathers_)) {
      Bucket& bucket = buckets_[Index(Add(candidate.key, *candidate.member))];
      bucket.position = std::min(bucket.position, candidate.member->position);
    }
  }

  void AddReductions() {
    FindDeadlines();
    std::vector<Candidate> candidates = Chosen(reductions_);
    std::unordered_map<Key, int32_t, KeyHash> complete;  // where the last gradient is made
    for (const Candidate& candidate : candidates) {
      const int32_t position = candidate.member->position;
      int32_t& last = complete.try_emplace(candidate.key, position).first->second;
      last = std::max(last, position);
    }
    for (Candidate& candidate : candidates) {
      const Member& member = *candidate.member;
      // A node needs this one before the gradients of the others are available.
      if (candidate.deadline <= complete.at(candidate.key)) {
        candidate.key.alone = member.collective->number();
      }
      Bucket& bucket = buckets_[Index(Add(candidate.key, member))];
      bucket.position =
          bucket.members.size() == 1 ? member.position : std::max(bucket.position, member.position);
    }
  }

  // Users are after what they use, so a walk from the end sees them first.
  void FindDeadlines() {
    for (auto late = late_.rbegin(); late != late_.rend(); ++late) {
      Facts& facts = Of(**late);
      for (const Use& use : (*late)->result()->uses()) {
        if (use.node() == nullptr) continue;
        const Facts& user = Of(*use.node());
        const bool moves =
            user.kind == Kind::kTail || user.kind == Kind::kMember || user.kind == Kind::kReduced;
        facts.deadline = std::min(facts.deadline, moves ? user.deadline : use.node()->number());
      }
    }
  }

  // Reductions start in the order in which their gradients are complete.
  void SortByPosition(size_t first) {
    auto begin = buckets_.begin() + static_cast<std::ptrdiff_t>(first);
    std::stable_sort(begin, buckets_.end(),
                     [](const Bucket& a, const Bucket& b) { return a.position < b.position; });
    known_.clear();
    for (size_t i = first; i < buckets_.size(); ++i) {
      if (i > first) {
        const Bucket& before = buckets_[i - 1];
        buckets_[i].round = before.round + (before.key.IsInOneRoundWith(buckets_[i].key) ? 0 : 1);
      }
      for (const Member& member : buckets_[i].members) {
        Of(*member.wait).bucket = static_cast<int32_t>(i);
      }
    }
  }

  // In graph order. A tail is after the last of the buckets that it is made of. A reduction of
  // reduced values starts at the end of the bucket before it and is finished one round later.
  void AssignTails() {
    for (Node* node : late_) {
      if (Of(*node).kind == Kind::kTail) {
        const int32_t bucket = LastBucketBefore(*node);
        Of(*node).bucket = bucket;
        buckets_[Index(bucket)].tail.push_back(node);
      } else if (Of(*node).kind == Kind::kMember) {
        AddAfter(std::move(again_.at(node)), LastBucketBefore(*node));
      }
    }
  }

  void AddAfter(Member member, int32_t in_front) {
    Candidate candidate{&member, CommonKey(member)};
    candidate.key.behind = in_front;
    chooser_.Choose({&candidate, 1});
    const Node& wait = *member.wait;
    const size_t count = buckets_.size();
    const int32_t bucket = Add(candidate.key, std::move(member));
    Of(wait).bucket = bucket;
    if (buckets_.size() == count) return;
    buckets_.back().round = buckets_[Index(in_front)].round + 1;
    buckets_[Index(in_front)].behind.push_back(bucket);
  }

  int32_t LastBucketBefore(const Node& node) const {
    int32_t last = -1;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      if (node.operand(i)->is_input()) continue;
      const int32_t bucket = Of(*node.operand(i)->producer()).bucket;
      if (last < 0 || std::pair(buckets_[Index(bucket)].round, bucket) >
                          std::pair(buckets_[Index(last)].round, last)) {
        last = bucket;
      }
    }
    return last;
  }

  static void SortMembers(Bucket& bucket) {
    std::stable_sort(bucket.members.begin(), bucket.members.end(),
                     [](const Member& a, const Member& b) { return a.parameter < b.parameter; });
  }

  Graph& graph_;
  BucketChooser& chooser_;
  std::vector<Bucket>& buckets_;
  const ParameterOrigins& origins_;
  const EscapingStorage& escaping_;
  std::vector<Facts> facts_;  // by number
  std::vector<Member> gathers_, reductions_;
  std::unordered_map<const Node*, Member> again_;  // reductions of what was reduced, by collective
  std::vector<Node*> late_;  // tails, waits of reductions, reductions of what was reduced; in order
  std::unordered_map<Key, int32_t, KeyHash> known_;
  int64_t left_alone_ = 0;
};

}  // namespace

Buckets FindBuckets(Graph& graph, PassContext& context, BucketChooser& chooser) {
  Buckets found;
  MemberFinder finder(graph, context, chooser, found.buckets);
  finder.Find();
  found.staying = finder.Staying();
  found.left_alone = finder.left_alone();
  return found;
}

}  // namespace gt::fsdp
