#include "gt/conformance/call_comparison.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sort.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "gt/base/error.h"
#include "gt/conformance/case_text.h"
#include "gt/conformance/fact_checks.h"
#include "gt/conformance/sharding_checks.h"
#include "gt/torch_bridge/convert.h"

namespace gt::conformance {

// Runs one case and collects what is wrong with it.
class Runner {
 public:
  explicit Runner(Case& c) : c_(c) {
    while (c_.args_.size() < c_.op_.schema.args.size()) c_.Default();
  }

  using Outcome = Comparison::Outcome;

  Outcome Run() {
    const std::vector<int64_t> hints(c_.env_.Hints().begin(), c_.env_.Hints().end());
    std::string rule_error;
    try {
      rule_error = Infer();
    } catch (const Error& error) {
      // A layout that only data can decide is an error of its own; generators reach it with tensors
      // no program has.
      if (c_.variant_ != Variant::kData || error.code() != ErrorCode::kDataDependentBranch) throw;
      return Outcome::kBothReject;
    }
    std::string torch_error = Call(hints);
    if (Case::on_cuda() && NoKernel(torch_error)) return Outcome::kNoKernel;
    if (!rule_error.empty() && !torch_error.empty()) return Outcome::kBothReject;
    // A dtype that graphs do not know (complex numbers of half precision) is rightly rejected.
    if (!rule_error.empty() && ReturnsUnknownDType()) return Outcome::kBothReject;
    if (!rule_error.empty())
      return Differs("the rule rejects what libtorch accepts: " + rule_error);
    if (!torch_error.empty()) {
      return Differs("the rule accepts what libtorch rejects: " + torch_error);
    }
    if (std::string problem = Compare(hints, true); !problem.empty()) return Differs(problem);
    if (std::string problem = CompareFacts(hints); !problem.empty()) return Differs(problem);
    if (std::string problem = PinnedSymbol(); !problem.empty()) return Differs(problem);
    return Elsewhere(hints);
  }

  const std::string& problem() const { return problem_; }
  // Whether a second set of extents was found and agreed.
  bool checked_elsewhere() const { return checked_elsewhere_; }

  std::string Describe() const { return DescribeCase(c_, types_); }

 private:
  Outcome Differs(std::string why) {
    problem_ = std::move(why);
    return Outcome::kDiffers;
  }

  std::string Infer() {
    std::vector<const TensorType*> operands;
    for (const Case::Operand& operand : c_.operands_) operands.push_back(&operand.type);
    RuleContext context(c_.op_, c_.args_, operands, c_.env_);
    try {
      c_.op_.rule(context);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kDataDependentBranch)
        throw;
      return error.what();
    }
    types_ = std::move(context.results());
    offsets_ = std::move(context.offsets());
    integers_ = std::move(context.integers());
    return "";
  }

  // Operators of the CPU alone, and collectives: the process group that tests use has no part for
  // GPUs.
  static bool NoKernel(const std::string& error) {
    return error.find("Could not run") != std::string::npos ||
           error.find("No backend type associated with device type cuda") != std::string::npos;
  }

  bool ReturnsUnknownDType() const {
    return std::any_of(results_.begin(), results_.end(), [](const at::Tensor& result) {
      return result.defined() && result.scalar_type() == at::kComplexHalf;
    });
  }

  static at::Tensor Filled(at::ScalarType dtype, int64_t count, const TensorOptions& options,
                           SymbolValues values) {
    auto plain = at::TensorOptions().dtype(dtype);
    int64_t bound = options.bound.Evaluate(values);
    bool real = c10::isFloatingType(dtype) || c10::isComplexType(dtype);
    switch (options.fill) {
      case Fill::kPlain:
        if (c10::isFloat8Type(dtype)) return at::randn({count}).to(dtype);
        if (real) return at::randn({count}, plain);
        return dtype == at::kBool ? at::randint(0, 2, {count}, plain)
                                  : at::randint(1, 4, {count}, plain);
      case Fill::kUnit:
        return at::rand({count}, plain);
      case Fill::kIndex:
        return at::randint(0, std::max<int64_t>(bound, 1), {count}, plain);
      case Fill::kSame:
        return at::full({count}, bound, plain);
      case Fill::kEnds: {
        at::Tensor ends = std::get<0>(at::sort(at::randint(0, bound + 1, {count}, plain)));
        if (count > 0) ends.narrow(0, count - 1, 1).fill_(bound);
        return ends;
      }
    }
    return {};
  }

  static std::vector<int64_t> Evaluated(const Shape& shape, SymbolValues values) {
    std::vector<int64_t> result;
    for (const Dim& dim : shape) result.push_back(dim.Evaluate(values));
    return result;
  }

  // Runs the real operator; returns its complaint, or nothing.
  std::string Call(SymbolValues values) {
    tensors_.clear();
    results_.clear();
    torch_integers_.clear();
    for (const Case::Operand& operand : c_.operands_) {
      at::Tensor storage = Filled(ToTorch(operand.type.dtype), operand.storage.Evaluate(values),
                                  operand.options, values)
                               .to(ToTorch(operand.type.device));
      tensors_.push_back(at::as_strided(storage, Evaluated(operand.type.sizes, values),
                                        Evaluated(operand.type.strides, values),
                                        operand.offset.Evaluate(values)));
    }
    return CallOnTensors(c_.args_, values);
  }

  std::string CallOnTensors(const std::vector<Argument>& args, SymbolValues values) {
    torch::jit::Stack stack;
    for (size_t i = 0; i < args.size(); ++i) {
      stack.push_back(ToStack(c_.op_.schema.args[i], args[i], values));
    }
    const at::Tensor state = GeneratorState();
    try {
      HandleOf(c_.op_).callBoxed(stack);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what();
    }
    drew_ = !at::equal(state, GeneratorState());
    for (const c10::IValue& value : stack) {
      if (value.isTensor()) {
        results_.push_back(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) results_.push_back(tensor);
      } else if (value.isNone()) {
        results_.emplace_back();
      } else if (value.isInt()) {
        torch_integers_.push_back(value.toInt());
      } else if (value.isSymInt()) {
        torch_integers_.push_back(value.toSymInt().expect_int());
      }
    }
    return "";
  }

  static at::Tensor GeneratorState() {
    return at::globalContext().defaultGenerator(at::kCPU).get_state();
  }

  // What the operator declares about itself must be what the kernel has just done. Sizes make no
  // difference to that, so one variant is enough.
  std::string CompareFacts(SymbolValues values) {
    if (c_.variant_ != Variant::kStatic || Case::on_cuda()) return "";
    if (drew_ && !c_.op_.random) return "libtorch draws from a generator, its facts deny it";
    const Tensors operands = tensors_, results = results_;
    const auto repeat = [&](const Tensors& others) {
      tensors_ = others;
      results_.clear();
      return CallOnTensors(c_.args_, values).empty() ? results_ : Tensors();
    };
    std::string problem = CheckFacts({c_.op_, c_.args_, operands, results, repeat});
    if (problem.empty()) problem = CompareShards(operands, results);
    tensors_ = operands;
    results_ = results;
    return problem.empty() ? "" : "its facts do not hold: " + problem;
  }

  std::string CompareShards(const Tensors& operands, const Tensors& results) {
    const auto call = [&](const std::vector<Argument>& args, const Tensors& others) {
      tensors_ = others;
      results_.clear();
      if (std::string error = CallOnTensors(args, {}); !error.empty()) {
        throw std::runtime_error(error);
      }
      return results_;
    };
    std::vector<TensorType> types;
    for (const Case::Operand& operand : c_.operands_) types.push_back(operand.type);
    return CheckSharding({c_.op_, c_.args_, std::move(types), types_, operands, results, call});
  }

  c10::IValue ToStack(const ArgSpec& spec, const Argument& argument, SymbolValues values) {
    if (const auto* ref = std::get_if<OperandRef>(&argument)) return tensors_[ref->index];
    if (const auto* list = std::get_if<OperandList>(&argument)) {
      if (spec.optional_elements) {
        c10::List<std::optional<at::Tensor>> result;
        for (int32_t index : list->indices) {
          result.push_back(index < 0 ? std::nullopt : std::optional<at::Tensor>(tensors_[index]));
        }
        return result;
      }
      c10::List<at::Tensor> result;
      for (int32_t index : list->indices) result.push_back(tensors_[index]);
      return result;
    }
    c10::IValue value = ToIValue(spec, argument, values);
    if (spec.kind == ArgKind::kTensor && !value.isNone()) {
      at::Scalar number = value.toScalar();
      // As libtorch's own wrapped_scalar_tensor does it: numbers are 0-dim tensors of the widest
      // dtype of their kind.
      at::ScalarType dtype = number.isFloatingPoint() ? at::kDouble
                             : number.isBoolean()     ? at::kBool
                                                      : at::kLong;
      at::Tensor wrapped = at::scalar_tensor(number, at::TensorOptions().dtype(dtype));
      wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
      return wrapped;
    }
    return value;
  }

  // Compares the rule's answer, evaluated at these values, with libtorch's.
  std::string Compare(SymbolValues values, bool strides) {
    if (results_.size() != types_.size()) {
      return fmt::format("libtorch returns {} tensors, the rule {}", results_.size(),
                         types_.size());
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      std::string problem = CompareResult(i, values, strides);
      if (!problem.empty()) return fmt::format("result {}: {}", i, problem);
    }
    if (!c_.op_.reads_data) {
      std::vector<int64_t> integers = Evaluated(integers_, values);
      if (integers != torch_integers_) {
        return fmt::format("integer results: libtorch {}, the rule {}", List(torch_integers_),
                           List(integers));
      }
    }
    return "";
  }

  std::string CompareResult(size_t i, SymbolValues values, bool strides) {
    const at::Tensor& real = results_[i];
    const TensorType& type = types_[i];
    if (real.defined() != type.defined()) {
      return fmt::format("libtorch's is {}, the rule's {}",
                         real.defined() ? "defined" : "undefined",
                         type.defined() ? "defined" : "undefined");
    }
    if (!real.defined()) return "";
    if (ToTorch(type.dtype) != real.scalar_type()) {
      return fmt::format("dtype: libtorch {}, the rule {}", c10::toString(real.scalar_type()),
                         DTypeName(type.dtype));
    }
    if (ToTorch(type.device) != real.device()) {
      return fmt::format("device: libtorch {}, the rule {}", real.device().str(),
                         DeviceName(type.device));
    }
    std::vector<int64_t> sizes = Evaluated(type.sizes, values);
    if (sizes != real.sizes().vec()) {
      return fmt::format("sizes: libtorch {}, the rule {}", List(real.sizes().vec()), List(sizes));
    }
    if (strides) {
      std::vector<int64_t> expected = Evaluated(type.strides, values);
      if (!SameStrides(expected, real)) {
        return fmt::format("strides: libtorch {}, the rule {} (sizes {})",
                           List(real.strides().vec()), List(expected), List(sizes));
      }
    }
    return CompareAliasing(i, values, strides);
  }

  // With numbers every stride must agree. With symbols those that reach no element need not: rules
  // do not pin a size to find out whether a tensor happens to be dense there, and that is all it
  // would change (see rules.h).
  bool SameStrides(const std::vector<int64_t>& ours, const at::Tensor& real) const {
    at::IntArrayRef theirs = real.strides();
    if (ours == theirs.vec()) return true;
    if (c_.env_.symbols().empty()) return false;
    if (real.numel() == 0) return true;
    for (size_t i = 0; i < ours.size(); ++i) {
      if (real.size(static_cast<int64_t>(i)) != 1 && ours[i] != theirs[i]) return false;
    }
    return true;
  }

  std::string CompareAliasing(size_t i, SymbolValues values, bool strides) {
    if (c_.aliasing_ignored_) return "";
    const at::Tensor& real = results_[i];
    const at::Tensor* base = nullptr;
    for (const at::Tensor& tensor : tensors_) {
      if (tensor.is_alias_of(real)) base = &tensor;
    }
    // native_dropout hands a tensor without elements straight back; there is nothing in it to
    // share.
    if (!c_.op_.is_view() && real.numel() == 0) return "";
    if (c_.op_.is_view() != (base != nullptr)) {
      return fmt::format("libtorch's result {} an argument, the rule says otherwise",
                         base ? "aliases" : "does not alias");
    }
    if (base == nullptr || !strides) return "";
    // In bytes: views may change the size of an element.
    int64_t offset = real.storage_offset() * static_cast<int64_t>(real.itemsize()) -
                     base->storage_offset() * static_cast<int64_t>(base->itemsize());
    int64_t expected = offsets_[i].Evaluate(values) * static_cast<int64_t>(base->itemsize());
    if (offset != expected) {
      return fmt::format("view offset: libtorch {}, the rule {}", offset, expected);
    }
    return "";
  }

  // A guard that fixes a symbol to a number of at least 2 makes the graph useless at other sizes.
  std::string PinnedSymbol() const {
    if (c_.pinned_allowed_ || c_.variant_ != Variant::kSymbolic) return "";
    for (const Guard& guard : c_.env_.guards()) {
      const Predicate& predicate = guard.predicate;
      if (predicate.kind != Predicate::Kind::kZero || !predicate.holds) continue;
      std::set<SymbolId> symbols;
      predicate.expression.ForEachSymbol([&](SymbolId id) { symbols.insert(id); });
      if (symbols.size() != 1 || c_.env_.symbol(*symbols.begin()).hint < 2) continue;
      // MustEqual() may demand that a symbol equals a number; then the number is among the
      // arguments.
      if (MustBeNumber(*symbols.begin())) continue;
      return "the rule pins a symbol: " + predicate.ToString(c_.env_.Namer());
    }
    return "";
  }

  bool MustBeNumber(SymbolId id) const {
    int64_t hint = c_.env_.symbol(id).hint;
    for (const Case::Operand& operand : c_.operands_) {
      for (const Dim& size : operand.type.sizes) {
        if (size.Is(hint)) return true;
      }
    }
    for (const Argument& argument : c_.args_) {
      if (const Shape* shape = std::get_if<Shape>(&argument)) {
        for (const Dim& size : *shape) {
          if (size.Is(hint)) return true;
        }
      }
    }
    return false;
  }

  // Other extents, drawn from few numbers so that sizes that must be equal have a chance to be.
  Outcome Elsewhere(const std::vector<int64_t>& hints) {
    if (hints.empty()) return Outcome::kAgrees;
    constexpr int kAttempts = 60, kWanted = 2;
    int found = 0;
    for (int attempt = 0; attempt < kAttempts && found < kWanted; ++attempt) {
      std::vector<int64_t> values = hints;
      bool uniform = c_.Chance(0.3);
      int64_t shared = c_.Random(0, 7);
      bool changed = false, small_data = false;
      for (size_t i = 0; i < values.size(); ++i) {
        const Symbol& symbol = c_.env_.symbol(static_cast<SymbolId>(i));
        if (!uniform && c_.Chance(0.3)) continue;
        int64_t value = uniform ? (c_.Chance(0.5) ? shared : hints[i]) : c_.Random(0, 7);
        if (value < symbol.low || value > symbol.high) continue;
        // Symbols of one hint usually stand for one size.
        for (size_t j = i; j < values.size(); ++j) {
          const Symbol& other = c_.env_.symbol(static_cast<SymbolId>(j));
          bool follows =
              j == i || (hints[j] == hints[i] && value >= other.low && value <= other.high);
          if (follows) values[j] = value;
        }
      }
      for (size_t i = 0; i < values.size(); ++i) {
        changed |= values[i] != hints[i];
        small_data |=
            c_.env_.symbol(static_cast<SymbolId>(i)).kind == Symbol::Kind::kData && values[i] < 2;
      }
      if (!changed || c_.env_.FirstBroken(values) != nullptr) continue;
      ++found;
      std::string at;
      for (size_t i = 0; i < values.size(); ++i) {
        at += fmt::format(" {}={}", c_.env_.symbol(static_cast<SymbolId>(i)).name, values[i]);
      }
      std::string torch_error = Call(values);
      if (!torch_error.empty()) {
        // Data symbols have no guards: that a kernel does not accept every value is not the rule's
        // business.
        if (c_.variant_ == Variant::kData) continue;
        return Differs("at" + at +
                       " the guards hold but libtorch rejects the call: " + torch_error);
      }
      std::string problem = Compare(values, !small_data);
      if (!problem.empty()) return Differs("at" + at + " " + problem);
      checked_elsewhere_ = true;
    }
    return Outcome::kAgrees;
  }

  static std::string List(const std::vector<int64_t>& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
  }

  Case& c_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> results_;
  std::vector<int64_t> torch_integers_;
  std::vector<TensorType> types_;
  std::vector<Dim> offsets_;
  std::vector<Dim> integers_;
  std::string problem_;
  bool drew_ = false;  // the last call took random numbers
  bool checked_elsewhere_ = false;
};

Comparison Compare(Case& c) {
  Runner runner(c);
  Comparison comparison{.outcome = runner.Run(), .elsewhere = runner.checked_elsewhere()};
  if (comparison.outcome == Comparison::Outcome::kDiffers) {
    comparison.problem = runner.problem() + "\n  " + runner.Describe();
  }
  return comparison;
}

}  // namespace gt::conformance
