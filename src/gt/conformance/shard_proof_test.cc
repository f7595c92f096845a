#include "gt/conformance/shard_proof.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace gt::conformance {
namespace {

// The coarsest rounding that a tensor's dtype stands for; 0 for integers.
double RoundingIn(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  switch (tensor.scalar_type()) {
    case at::kDouble:
    case at::kComplexDouble:
      return 1e-11;
    case at::kFloat:
    case at::kComplexFloat:
      return 2e-5;
    default:
      return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) ? 0 : 2e-2;
  }
}

// The positions of one rank, as a slice.
struct Hand {
  int64_t begin, end, step;
  int64_t length() const { return (end - begin + step - 1) / step; }
  at::Tensor Of(const at::Tensor& tensor, int64_t dim) const {
    return tensor.slice(dim, begin, end, step);
  }
};

Hand HandOf(Deal deal, int64_t size, int64_t ranks, int64_t rank) {
  if (deal == Deal::kInTurns) return {rank, size, ranks};
  const ShardRange range = ShardOf(size, ranks, rank);
  return {range.begin, range.begin + range.length, 1};
}

// A copy with the same strides, also where they mean nothing, because some kernels look at those.
at::Tensor SameLayout(const at::Tensor& tensor, const at::Tensor& like) {
  if (!like.is_non_overlapping_and_dense()) return tensor;
  return at::empty_strided(like.sizes(), like.strides(), like.options()).copy_(tensor);
}

// Summands of a tensor, one for each rank.
Tensors Summands(const at::Tensor& tensor, int64_t ranks) {
  Tensors parts;
  at::Tensor rest = tensor.clone();
  for (int64_t r = 0; r + 1 < ranks; ++r) {
    at::Tensor part;
    if (tensor.scalar_type() == at::kByte) {
      part = rest.div(2, "floor");
    } else if (c10::isIntegralType(tensor.scalar_type(), false)) {
      part = at::randint_like(rest, -2, 3);
    } else {
      part = at::randn_like(rest);
    }
    rest = rest - part;
    parts.push_back(SameLayout(part, tensor));
  }
  parts.push_back(SameLayout(rest, tensor));
  return parts;
}

bool OnlyMovesData(const Operator& op) {
  return op.work == Work::kView || op.work == Work::kClone || op.work == Work::kSelect ||
         op.work == Work::kMove || op.work == Work::kFill;
}

// Largest magnitude among finite elements.
double ScaleOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !(tensor.is_floating_point() || tensor.is_complex())) return 0;
  const at::Tensor size = tensor.abs().to(at::kDouble);
  return at::where(size.isfinite(), size, at::zeros_like(size)).max().item<double>();
}

// One row, for one number of ranks.
class Proof {
 public:
  Proof(const ShardedCall& call, const ShardingRow& row, int64_t ranks, Deal deal)
      : call_(call), row_(row), ranks_(ranks), deal_(deal) {}

  // What is wrong, or nothing.
  std::string Run() {
    Scatter();
    try {
      if (row_.method == ShardMethod::kStatistics) {
        ComputeWithStatistics();
      } else {
        for (int64_t r = 0; r < ranks_; ++r) results_.push_back(Compute(r));
      }
    } catch (const std::exception& error) {
      return fmt::format("libtorch rejects a rank's call: {}", FirstLine(error.what()));
    }
    for (size_t i = 0; i < call_.results.size(); ++i) {
      if (std::string problem = CheckResult(i); !problem.empty()) {
        return fmt::format("result {}: {}", i, problem);
      }
    }
    return "";
  }

 private:
  static std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

  Hand HandAt(int64_t size, int64_t rank) const { return HandOf(deal_, size, ranks_, rank); }

  void Scatter() {
    operands_.resize(static_cast<size_t>(ranks_));
    for (size_t i = 0; i < call_.operands.size(); ++i) {
      const at::Tensor& whole = call_.operands[i];
      const ShardState state = row_.operands[i];
      const Tensors parts = state == kPartial ? Summands(whole, ranks_) : Tensors();
      for (int64_t r = 0; r < ranks_; ++r) {
        at::Tensor local = whole;
        if (state == kPartial) local = parts[static_cast<size_t>(r)];
        if (state >= 0) local = HandAt(whole.size(state), r).Of(whole, state).clone();
        operands_[static_cast<size_t>(r)].push_back(local);
      }
    }
  }

  std::vector<Shape> LocalSizes(int64_t rank) const {
    std::vector<Shape> sizes;
    for (size_t i = 0; i < call_.result_types.size(); ++i) {
      sizes.push_back(call_.result_types[i].sizes);
      const ShardState state = row_.results[i];
      if (state < 0) continue;
      Dim& size = sizes.back()[static_cast<size_t>(state)];
      size = HandAt(*size.as_const(), rank).length();
    }
    return sizes;
  }

  Tensors Compute(int64_t rank) {
    std::vector<Shape> sizes = LocalSizes(rank);
    Tensors operands = operands_[static_cast<size_t>(rank)];
    if (row_.method == ShardMethod::kMaskedIndices) {
      return ComputeMasked(rank, std::move(sizes), std::move(operands));
    }
    if (row_.method != ShardMethod::kSliced) {
      Tensors results = call_.call(LocalArguments(call_.op, call_.args, sizes), operands);
      if (row_.method == ShardMethod::kAveraged) {
        for (at::Tensor& result : results) result = result / ranks_;
      }
      return results;
    }
    Tensors results = call_.call(call_.args, operands);
    for (size_t i = 0; i < results.size(); ++i) {
      const ShardState state = row_.results[i];
      if (state >= 0) results[i] = HandAt(results[i].size(state), rank).Of(results[i], state);
    }
    return results;
  }

  // The extent that indices count along, and what of it the rank has.
  ShardRange IndexedRange(int64_t rank) const {
    for (size_t i = 0; i < row_.operands.size(); ++i) {
      const ShardState state = row_.operands[i];
      if (state >= 0) return ShardOf(call_.operands[i].size(state), ranks_, rank);
    }
    for (size_t i = 0; i < row_.results.size(); ++i) {
      const ShardState state = row_.results[i];
      if (state >= 0) return ShardOf(call_.results[i].size(state), ranks_, rank);
    }
    return {};
  }

  // Indices of other ranks' elements are directed to one more element, which is zero and is taken
  // away again. A loss has a target that it ignores.
  Tensors ComputeMasked(int64_t rank, std::vector<Shape> sizes, Tensors operands) {
    const ShardRange range = IndexedRange(rank);
    const int ignored_arg = call_.op.schema.Find("ignore_index");
    int64_t elsewhere = range.length;
    if (ignored_arg >= 0) {
      elsewhere = *std::get<Dim>(call_.args[static_cast<size_t>(ignored_arg)]).as_const();
    } else {
      Widen(sizes, operands);
    }
    for (size_t i = 0; i < call_.args.size(); ++i) {
      const std::string& name = call_.op.schema.args[i].name;
      if (name != "index" && name != "indices" && name != "target") continue;
      for (int32_t operand : OperandsOf(call_.args[i])) {
        at::Tensor& index = operands[static_cast<size_t>(operand)];
        const at::Tensor here =
            index.ge(range.begin).logical_and(index.lt(range.begin + range.length));
        const at::Tensor other = at::full_like(index, elsewhere);
        index = at::where(here, index - range.begin, other);
      }
    }
    Tensors results = call_.call(LocalArguments(call_.op, call_.args, sizes), operands);
    if (ignored_arg >= 0) return results;
    for (size_t i = 0; i < results.size(); ++i) {
      const ShardState state = row_.results[i];
      if (state >= 0) results[i] = results[i].narrow(state, 0, range.length);
    }
    return results;
  }

  void Widen(std::vector<Shape>& sizes, Tensors& operands) const {
    for (size_t i = 0; i < operands.size(); ++i) {
      const ShardState state = row_.operands[i];
      if (state < 0) continue;
      std::vector<int64_t> one = operands[i].sizes().vec();
      one[static_cast<size_t>(state)] = 1;
      operands[i] = at::cat({operands[i], at::zeros(one, operands[i].options())}, state);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (row_.results[i] >= 0) sizes[i][static_cast<size_t>(row_.results[i])] += Dim(1);
    }
  }

  static std::vector<int32_t> OperandsOf(const Argument& argument) {
    std::vector<int32_t> operands;
    if (const auto* ref = std::get_if<OperandRef>(&argument)) operands.push_back(ref->index);
    if (const auto* list = std::get_if<OperandList>(&argument)) {
      std::copy_if(list->indices.begin(), list->indices.end(), std::back_inserter(operands),
                   [](int32_t index) { return index >= 0; });
    }
    return operands;
  }

  // What the ranks do together for softmax along a dimension that is cut, in as many reductions as
  // the row says.
  void ComputeWithStatistics() {
    const int64_t dim = row_.operands[0];
    int8_t reductions = 0;
    const auto combine = [&](const std::function<at::Tensor(const Tensors&)>& local, bool maximum) {
      ++reductions;
      at::Tensor all;
      for (const Tensors& operands : operands_) {
        const at::Tensor part = local(operands);
        all = !all.defined() ? part : maximum ? at::maximum(all, part) : all + part;
      }
      return all;
    };
    const std::string& name = call_.op.name.str();
    const bool log = name.find("_log_softmax") != std::string::npos;
    if (name.find("backward") == std::string::npos) {
      const at::Tensor most =
          combine([&](const Tensors& x) { return x[0].amax(dim, /*keepdim=*/true); }, true);
      const at::Tensor sum =
          combine([&](const Tensors& x) { return (x[0] - most).exp().sum(dim, true); }, false);
      for (const Tensors& x : operands_) {
        if (name == "gt::log_sum_exp") {
          results_.push_back({(sum.log() + most).squeeze(dim)});
          continue;
        }
        const at::Tensor shifted = x[0] - most;
        results_.push_back({log ? shifted - sum.log() : shifted.exp() / sum});
      }
    } else {
      const at::Tensor sum = combine(
          [&](const Tensors& x) { return (log ? x[0] : x[0] * x[1]).sum(dim, true); }, false);
      for (const Tensors& x : operands_) {
        results_.push_back({log ? x[0] - x[1].exp() * sum : x[1] * (x[0] - sum)});
      }
    }
    if (reductions != row_.statistics) results_.clear();
  }

  std::string CheckResult(size_t i) const {
    const at::Tensor& whole = call_.results[i];
    if (!whole.defined()) return "";
    const ShardState state = row_.results[i];
    Tensors parts;
    for (const Tensors& results : results_) {
      if (results.size() != call_.results.size()) return "a rank has another number of results";
      parts.push_back(results[i]);
    }
    if (std::ssize(parts) != ranks_) return "the ranks combine other statistics than the row says";
    if (state >= 0) {
      at::Tensor made = at::empty_like(whole, parts[0].options());
      for (int64_t r = 0; r < ranks_; ++r) {
        const at::Tensor& part = parts[static_cast<size_t>(r)];
        const at::Tensor place = HandAt(whole.size(state), r).Of(made, state);
        if (part.sizes() != place.sizes()) return "a rank's shard has other sizes than its place";
        place.copy_(part);
      }
      return CompareWhole(made, whole, 0);
    }
    double scale = 0;
    for (const at::Tensor& part : parts) scale = std::max(scale, ScaleOf(part));
    if (state == kPartial) {
      at::Tensor sum = parts[0].clone();
      for (size_t r = 1; r < parts.size(); ++r) {
        if (parts[r].sizes() != sum.sizes()) return "the ranks' partial sums differ in size";
        sum = sum + parts[r];
      }
      return CompareWhole(sum, whole, scale);
    }
    for (const at::Tensor& part : parts) {
      if (std::string problem = CompareWhole(part, whole, scale); !problem.empty()) return problem;
    }
    return "";
  }

  std::string CompareWhole(const at::Tensor& made, const at::Tensor& whole, double scale) const {
    if (made.sizes() != whole.sizes() || made.scalar_type() != whole.scalar_type()) {
      return fmt::format("the shards make {} of {}, not {} of {}",
                         fmt::join(made.sizes().vec(), "x"), c10::toString(made.scalar_type()),
                         fmt::join(whole.sizes().vec(), "x"), c10::toString(whole.scalar_type()));
    }
    // Nobody knows what these would be.
    if (row_.method == ShardMethod::kRandom || call_.op.work == Work::kAllocate) return "";
    const bool has_partial = HasPartial(row_);
    const bool integral = c10::isIntegralType(whole.scalar_type(), /*includeBool=*/true);
    if (integral || (OnlyMovesData(call_.op) && !has_partial)) {
      const at::Tensor same = made.eq(whole).logical_or(made.ne(made).logical_and(whole.ne(whole)));
      return same.all().item<bool>() ? "" : "the shards do not make up the whole";
    }
    const double tolerance = RoundingOf(call_);
    at::Tensor left = made, right = whole;
    if (has_partial) {
      // Infinities do not add up.
      const at::Tensor finite = made.isfinite().logical_and(whole.isfinite());
      left = at::where(finite, made, at::zeros_like(made));
      right = at::where(finite, whole, at::zeros_like(whole));
    }
    const double scaled = tolerance * std::max({1.0, scale, has_partial ? ScaleOf(whole) : 0.0});
    return at::allclose(left, right, tolerance, scaled, /*equal_nan=*/true)
               ? ""
               : fmt::format("the shards do not make up the whole: off by {}",
                             (left - right).abs().max().item<double>());
  }

  const ShardedCall& call_;
  const ShardingRow& row_;
  const int64_t ranks_;
  const Deal deal_;
  std::vector<Tensors> operands_, results_;  // of each rank
};

}  // namespace

double RoundingOf(const ShardedCall& call) {
  double most = 0;
  for (const at::Tensor& operand : call.operands) most = std::max(most, RoundingIn(operand));
  for (const at::Tensor& result : call.results) most = std::max(most, RoundingIn(result));
  return most;
}

bool HasPartial(const ShardingRow& row) {
  return std::count(row.operands.begin(), row.operands.end(), kPartial) > 0 ||
         std::count(row.results.begin(), row.results.end(), kPartial) > 0;
}

std::string ProveRow(const ShardedCall& call, const ShardingRow& row, int64_t ranks, Deal deal) {
  return Proof(call, row, ranks, deal).Run();
}

}  // namespace gt::conformance
