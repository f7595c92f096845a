#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/ir/builder.h"
#include "gt/passes/fsdp/fsdp_buckets.h"

namespace gt::fsdp {
namespace {

// Makes one collective of each bucket. New nodes go to the end of the graph; OrderBuckets finds their
// places.
class Packer {
 public:
  explicit Packer(Graph& graph) : graph_(graph) {}

  void Pack(Bucket& bucket) {
    for (const Member& member : bucket.members) {
      bucket.launch.insert(bucket.launch.end(), member.chain.begin(), member.chain.end());
    }
    if (bucket.members.size() == 1) {
      KeepAlone(bucket);
      return;
    }
    bucket_ = &bucket;
    shared_ = SharedMeta();
    names_ = bucket.members[0].collective->result()->name();
    Value* packed = PackInputs();
    Node* collective = Copy(*bucket.members[0].collective, packed);
    bucket.launch.push_back(collective);
    Node* wait = Copy(*bucket.members[0].wait, collective->result());
    bucket.end.push_back(wait);
    CutOut(wait->result());
    for (const Member& member : bucket.members) {
      graph_.Erase(member.wait);
      graph_.Erase(member.collective);
    }
  }

 private:
  static const Operator* Find(std::string_view name) {
    const Operator* op = FindOperator(name);
    GT_CHECK(op != nullptr, "no operator {}", name);
    return op;
  }

  static void KeepAlone(Bucket& bucket) {
    const Member& member = bucket.members[0];
    member.collective->meta().fsdp_bucket = bucket.name;
    member.wait->meta().fsdp_bucket = bucket.name;
    bucket.launch.push_back(member.collective);
    bucket.end.push_back(member.wait);
  }

  bool Scatters() const { return bucket_->key.op->collective == Collective::kReduceScatter; }

  // Elements that a member has in the pack: those of one rank.
  int64_t CountOf(const Member& member) const {
    const int64_t count = *member.collective->operand(0)->type().numel().as_const();
    return Scatters() ? count / bucket_->key.ranks : count;
  }

  // A reduce-scatter gives rank r the r-th shard: the members' r-th shards have to be contiguous.
  Value* PackInputs() {
    const Dim ranks = bucket_->key.ranks;
    std::vector<Value*> parts;
    int64_t total = 0;
    for (const Member& member : bucket_->members) {
      const int64_t count = CountOf(member);
      Shape sizes = Scatters() ? Shape{ranks, Dim(count)} : Shape{Dim(count)};
      total += count;
      parts.push_back(View(member.collective->operand(0), std::move(sizes),
                           OwnMeta(*member.collective), bucket_->launch,
                           member.collective->result()->name() + "_flat"));
    }
    OperandList all;
    for (size_t i = 0; i < parts.size(); ++i) all.indices.push_back(static_cast<int32_t>(i));
    static const Operator* const kCat = Find("aten::cat");
    Node* pack = Insert({kCat,
                         std::move(parts),
                         {std::move(all), Dim(Scatters() ? 1 : 0)},
                         shared_,
                         names_ + "_pack"},
                        bucket_->launch);
    if (!Scatters()) return pack->result();
    return View(pack->result(), {ranks * Dim(total)}, shared_, bucket_->launch, names_ + "_parts");
  }

  void CutOut(Value* whole) {
    Shape counts;
    Dim total = 0;
    for (const Member& member : bucket_->members) {
      counts.emplace_back(CountOf(member));
      total += counts.back();
    }
    // A gathered member is split into one piece per rank and has to be copied to be contiguous. A
    // reduced one is a contiguous range of the packed result.
    static const Operator* const kSplit = Find("aten::split_with_sizes");
    static const Operator* const kSplitCopy = Find("aten::split_with_sizes_copy");
    const bool gathers = bucket_->IsGather();
    if (gathers) {
      whole =
          View(whole, {Dim(bucket_->key.ranks), total}, shared_, bucket_->end, names_ + "_rows");
    }
    Node* split = Insert({gathers ? kSplitCopy : kSplit,
                          {whole},
                          {OperandRef{0}, std::move(counts), Dim(gathers ? 1 : 0)},
                          shared_,
                          names_ + "_piece"},
                         bucket_->end);
    for (size_t i = 0; i < bucket_->members.size(); ++i) {
      Replace(bucket_->members[i], split->result(static_cast<int32_t>(i)));
    }
  }

  void Replace(const Member& member, Value* piece) {
    Value* old = member.wait->result();
    const Meta meta = OwnMeta(*member.wait);
    Value* part = View(piece, old->type().sizes, meta, bucket_->end, old->name() + "_part");
    // The caller owns what a step returns, so two outputs must not share one allocation.
    if (member.escapes) {
      static const Operator* const kClone = Find("aten::clone");
      part = Insert({kClone, {part}, {OperandRef{0}, std::monostate()}, meta, old->name() + "_own"},
                    bucket_->end)
                 ->result();
    }
    GT_CHECK(part->type() == old->type(), "%{} would change its type", old->name());
    old->ReplaceAllUses(part);
  }

  // The value itself if it has these sizes already.
  Value* View(Value* value, Shape sizes, const Meta& meta, std::vector<Node*>& list,
              std::string name) {
    if (value->type().sizes == sizes) return value;
    static const Operator* const kView = Find("aten::view");
    return Insert({kView, {value}, {OperandRef{0}, std::move(sizes)}, meta, std::move(name)}, list)
        ->result();
  }

  Node* Copy(const Node& original, Value* operand) {
    Graph::NodeSpec spec = SpecOf(original);
    spec.operands = {operand};
    spec.meta = shared_;
    spec.name = original.result()->name() + "_bucket";
    return graph_.Insert(std::move(spec));
  }

  Node* Insert(Graph::NodeSpec spec, std::vector<Node*>& list) {
    list.push_back(graph_.Insert(std::move(spec)));
    return list.back();
  }

  Meta OwnMeta(const Node& node) const {
    Meta meta = node.meta();
    meta.fsdp_bucket = bucket_->name;
    return meta;
  }

  // For nodes that serve all members: what they agree on.
  Meta SharedMeta() const {
    const Meta& first = bucket_->members[0].collective->meta();
    Meta meta = OwnMeta(*bucket_->members[0].collective);
    meta.sequence = -1;
    for (const Member& member : bucket_->members) {
      const Meta& other = member.collective->meta();
      if (other.ep_role != first.ep_role) meta.ep_role = EpRole::kNone;
      if (other.recompute != first.recompute) meta.recompute = Recompute::kNone;
      if (other.module != first.module) {
        meta.module = bucket_->key.experts.empty() ? bucket_->key.unit : bucket_->key.experts;
      }
    }
    if (first.chunk != nullptr) {
      auto chunk = std::make_shared<ChunkMeta>(*first.chunk);
      chunk->original = Name();
      meta.chunk = std::move(chunk);
    }
    return meta;
  }

  Graph& graph_;
  Bucket* bucket_ = nullptr;  // the one at work
  Meta shared_;
  std::string names_;  // what names of new values begin with
};

}  // namespace

void PackBuckets(Graph& graph, Buckets& found) {
  Packer packer(graph);
  for (Bucket& bucket : found.buckets) {
    packer.Pack(bucket);
    log::Debug("bucket {}: {} of {} collectives in group {}", bucket.name.str(),
               bucket.key.op->name.str(), bucket.members.size(), bucket.key.group.str());
  }
}

}  // namespace gt::fsdp
