#include "gt/conformance/sharding_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "gt/conformance/shard_proof.h"

namespace gt::conformance {
namespace {

constexpr int kEnough = 2;  // proofs of one row by shards of one length, and by others

struct Proved {
  std::string kind;
  int even = 0, uneven = 0;
  int times() const { return even + uneven; }
};
using Rows = std::map<std::string, Proved>;  // by the text of the row
std::map<const Operator*, Rows>& Proofs() {
  static auto* proofs = new std::map<const Operator*, Rows>();
  return *proofs;
}

// Whether elements share memory: copies of operands without a pattern do, and then the last element
// that is written counts.
bool Overlaps(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dims.begin(), dims.end());
  int64_t span = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < span) return true;
    span += stride * (size - 1);
  }
  return false;
}

// What a row is like, whatever the dimensions and the number of operands.
std::string KindOf(ShardingRow row) {
  for (std::vector<ShardState>* states : {&row.operands, &row.results}) {
    for (ShardState& state : *states) state = std::min<ShardState>(state, 0);
    std::sort(states->begin(), states->end());
    states->erase(std::unique(states->begin(), states->end()), states->end());
  }
  row.multiple = 1;
  return RowText(row);
}

// Of the dimensions that are cut.
std::set<int64_t> CutSizes(const ShardedCall& call, const ShardingRow& row) {
  std::set<int64_t> sizes;
  for (size_t i = 0; i < row.operands.size(); ++i) {
    if (row.operands[i] >= 0) sizes.insert(call.operands[i].size(row.operands[i]));
  }
  for (size_t i = 0; i < row.results.size(); ++i) {
    if (row.results[i] >= 0) sizes.insert(call.results[i].size(row.results[i]));
  }
  return sizes;
}

bool CutsEvenly(const ShardedCall& call, const ShardingRow& row, int64_t ranks) {
  const std::set<int64_t> sizes = CutSizes(call, row);
  return std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size % ranks == 0; });
}

// Where all dimensions that are cut are equally long, and ranks only call the operator, it does not
// matter which positions are together on a rank.
bool TakesAnyPositions(const ShardedCall& call, const ShardingRow& row) {
  if (row.method != ShardMethod::kPlain || row.even || row.multiple > 1) return false;
  return CutSizes(call, row).size() == 1;
}

std::vector<const TensorType*> Pointers(const std::vector<TensorType>& types) {
  std::vector<const TensorType*> pointers;
  for (const TensorType& type : types) pointers.push_back(&type);
  return pointers;
}

}  // namespace

std::string CheckSharding(const ShardedCall& call) {
  if (call.op.sharding == nullptr) return "";
  const Tensors& whole = call.results;
  if (!call.op.is_view() && std::any_of(whole.begin(), whole.end(), Overlaps)) return "";
  const auto operands = Pointers(call.operand_types), results = Pointers(call.result_types);
  ShardingContext context(call.args, operands, results, {});
  call.op.sharding(context);
  // Sums over ranks in half precision are too coarse to tell a wrong rule from rounding.
  const bool precise = RoundingOf(call) < 1e-3;
  Rows& rows = Proofs()[&call.op];
  for (const ShardingRow& row : context.rows()) {
    const std::string text = RowText(row);
    Proved& proved = rows[text];
    proved.kind = KindOf(row);
    const bool sums = HasPartial(row) || row.method == ShardMethod::kStatistics;
    if (sums && !precise) continue;
    for (int64_t ranks : {2, 3}) {
      int& times = CutsEvenly(call, row, ranks) ? proved.even : proved.uneven;
      if (times >= kEnough || !CanShard(row, operands, results, {}, ranks)) continue;
      for (const Deal deal : {Deal::kStretches, Deal::kInTurns}) {
        if (deal == Deal::kInTurns && !TakesAnyPositions(call, row)) continue;
        if (std::string problem = ProveRow(call, row, ranks, deal); !problem.empty()) {
          return fmt::format("the way {} does not hold for {} ranks{}: {}", text, ranks,
                             deal == Deal::kInTurns ? " in turns" : "", problem);
        }
      }
      ++times;
    }
  }
  return "";
}

std::vector<std::string> UnprovedRows(const Operator& op) {
  std::set<std::string> proved, unproved;
  for (const auto& [text, row] : Proofs()[&op]) {
    (row.times() > 0 ? proved : unproved).insert(row.kind);
  }
  std::vector<std::string> missing;
  std::set_difference(unproved.begin(), unproved.end(), proved.begin(), proved.end(),
                      std::back_inserter(missing));
  return missing;
}

int ProvedRows(const Operator& op) {
  const Rows& rows = Proofs()[&op];
  return static_cast<int>(std::count_if(rows.begin(), rows.end(),
                                        [](const auto& row) { return row.second.times() > 0; }));
}

}  // namespace gt::conformance
