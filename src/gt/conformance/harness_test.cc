#include "gt/conformance/harness.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
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
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include "gt/base/error.h"
#include "gt/conformance/fact_checks.h"
#include "gt/conformance/sharding_checks.h"
#include "gt/testing/slow_tests.h"
#include "gt/torch_bridge/convert.h"

namespace gt::conformance {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != 0 ? std::atoll(text) : otherwise;
}

uint64_t BaseSeed() {
  static const auto kSeed = static_cast<uint64_t>(FromEnvironment("GT_CONFORMANCE_SEED", 20240607));
  return kSeed;
}

int64_t Iterations() {
  static const int64_t kCount =
      FromEnvironment("GT_CONFORMANCE_ITERATIONS", 400) * (testing::SlowTestsWanted() ? 10 : 1);
  return kCount;
}

std::string_view NameOf(Variant variant) {
  constexpr std::string_view kNames[] = {"static", "symbolic", "data"};
  return kNames[static_cast<size_t>(variant)];
}

struct Entry {
  std::vector<std::pair<void (*)(Case&), ConformOptions>> generators;
};

// Filled by static initializers, read by tests.
std::map<std::string, Entry, std::less<>>& Entries() {
  static auto* entries = new std::map<std::string, Entry, std::less<>>();
  return *entries;
}

std::map<std::string, std::string, std::less<>>& Exemptions() {
  static auto* exemptions = new std::map<std::string, std::string, std::less<>>();
  return *exemptions;
}

}  // namespace

Case::Case(const Operator& op, Variant variant, uint64_t seed)
    : op_(op), variant_(variant), random_(seed) {
  env_.SetAsker(Name(), op.name);
}

int64_t Case::Random(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
}

bool Case::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

Dim Case::NewSymbol(int64_t hint, int64_t low, int64_t high) {
  if (variant_ == Variant::kData) return Dim::Symbol(env_.AddDataSymbol(hint, low, high));
  return Dim::Symbol(env_.AddInputSymbol(hint, low, high));
}

Dim Case::Extent(int64_t low, int64_t high, bool capped) {
  int64_t value = Random(std::max<int64_t>(low, std::min<int64_t>(high, 2)), high);
  if (low <= 1 && high >= 1 && Chance(0.15)) value = 1;
  if (low <= 0 && Chance(0.06)) value = 0;
  if (variant_ == Variant::kStatic || Chance(0.5)) return value;
  // A data symbol that is 0 or 1 would be a different question: rules take it as at least 2.
  if (variant_ == Variant::kData && value < 2) return value;
  if (Chance(0.2)) {
    for (SymbolId id = 0; id < env_.symbols().size(); ++id) {
      const Symbol& symbol = env_.symbol(id);
      bool fits = symbol.hint == value && symbol.low >= low && (!capped || symbol.high <= high);
      if (fits && Chance()) return Dim::Symbol(id);
    }
  }
  // Most input symbols rule out 0 and 1, as those of a captured batch do; some do not.
  int64_t symbol_low =
      variant_ == Variant::kSymbolic && value >= 2 && Chance(0.7) ? std::max<int64_t>(low, 2) : low;
  return NewSymbol(value, symbol_low, capped ? high : kUnbounded);
}

Dim Case::MustEqual(const Dim& extent) {
  if (variant_ != Variant::kSymbolic || extent.is_const() || !Chance(0.25)) return extent;
  Interval bounds = env_.Bounds(extent);
  if (Chance(0.2)) return Drawn(extent);
  return NewSymbol(Drawn(extent), std::max<int64_t>(bounds.low, 0), bounds.high);
}

Shape Case::MustEqual(const Shape& shape) {
  Shape result;
  for (const Dim& extent : shape) result.push_back(MustEqual(extent));
  return result;
}

Shape Case::RandomShape(int min_rank, int max_rank) {
  Shape shape;
  int64_t rank = Random(min_rank, max_rank);
  for (int64_t i = 0; i < rank; ++i) shape.push_back(Extent());
  return shape;
}

Shape Case::BroadcastOperand(const Shape& shape) {
  size_t skip = 0;
  if (Chance(0.25)) skip = static_cast<size_t>(Random(0, static_cast<int64_t>(shape.size())));
  Shape result;
  for (size_t i = skip; i < shape.size(); ++i) {
    result.push_back(Chance(0.15) ? Dim(1) : MustEqual(shape[i]));
  }
  return result;
}

Dim Case::RandomDim(int64_t rank) {
  int64_t count = std::max<int64_t>(rank, 1);
  return Random(-count, count - 1);
}

Shape Case::RandomDims(int64_t rank, int64_t min_count) {
  std::vector<int64_t> all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random_);
  int64_t count = Random(std::min(min_count, rank), rank);
  Shape dims;
  for (int64_t i = 0; i < count; ++i) {
    dims.push_back(Chance(0.3) ? all[static_cast<size_t>(i)] - rank : all[static_cast<size_t>(i)]);
  }
  return dims;
}

Device Case::device() {
  static const Device kDevice = [] {
    const char* name = std::getenv("GT_CONFORMANCE_DEVICE");
    if (name == nullptr || std::string_view(name) == "cpu") return Device{};
    // As the program does it: the CUDA half of libtorch registers its kernels when it is loaded.
    void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
    GT_CHECK(library != nullptr, "GT_CONFORMANCE_DEVICE={}: {}", name, dlerror());
    return Device{DeviceKind::kCuda, 0};
  }();
  return kDevice;
}

void Case::PushOperand(Operand operand) {
  operand.type.device = device();
  auto index = static_cast<int32_t>(operands_.size());
  operands_.push_back(std::move(operand));
  if (list_ != nullptr) {
    list_->indices.push_back(index);
  } else {
    args_.push_back(OperandRef{index});
  }
}

// Strides that follow no pattern, as of diagonals and sliding windows: the only layouts whose order
// can change with sizes.
Case& Case::ArbitraryTensor(DType dtype, const Shape& sizes, const TensorOptions& options) {
  Operand operand;
  operand.type.dtype = dtype;
  operand.type.sizes = sizes;
  operand.storage = 1;
  for (const Dim& size : sizes) {
    operand.type.strides.push_back(Chance(0.1) ? Dim(0) : Extent(1, 7));
    operand.storage += size * operand.type.strides.back();
  }
  operand.options = options;
  // Equal strides of such a tensor can only be told by pinning the symbols in them.
  pinned_allowed_ = true;
  PushOperand(std::move(operand));
  return *this;
}

// A random layout is a row-major buffer with permuted dimensions, some of them longer than needed
// (sliced), stepped over or repeated. All of it in Dims, so that the same layout exists at every
// value of the symbols.
Case& Case::Tensor(DType dtype, const Shape& sizes, const TensorOptions& options) {
  size_t rank = sizes.size();
  LayoutChoice layout = options.layout;
  if (layout == LayoutChoice::kAny && Chance(0.03)) return ArbitraryTensor(dtype, sizes, options);
  if (layout == LayoutChoice::kAny) layout = LayoutChoice::kRegular;
  if (layout == LayoutChoice::kRegular && Chance(0.35)) layout = LayoutChoice::kContiguous;
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (layout != LayoutChoice::kContiguous && Chance(0.6)) {
    if (rank >= 2 && Chance(0.5)) {
      auto i = static_cast<size_t>(Random(0, static_cast<int64_t>(rank) - 1));
      auto j = static_cast<size_t>(Random(0, static_cast<int64_t>(rank) - 1));
      std::swap(order[i], order[j]);
    } else {
      std::shuffle(order.begin(), order.end(), random_);
    }
  }
  bool dense = layout != LayoutChoice::kRegular || Chance(0.4);
  Shape buffer(rank), steps(rank, Dim(1)), starts(rank, Dim(0));
  for (size_t k = 0; k < rank; ++k) {
    size_t d = order[k];
    buffer[k] = sizes[d];
    if (dense) continue;
    double kind = static_cast<double>(Random(0, 99)) / 100;
    if (kind < 0.15) {  // repeated
      buffer[k] = 1;
      steps[k] = 0;
    } else if (kind < 0.3) {  // stepped over
      int64_t step = Random(2, 3);
      buffer[k] = sizes[d] * Dim(step);
      steps[k] = step;
      starts[k] = Random(0, step - 1);
    } else if (kind < 0.5) {  // a slice
      int64_t before = Random(0, 2);
      buffer[k] = sizes[d] + Dim(before + Random(0, 2));
      starts[k] = before;
    }
  }
  Shape buffer_strides = ContiguousStrides(buffer, env_);
  Operand operand;
  operand.type.dtype = dtype;
  operand.type.sizes = sizes;
  operand.type.strides.resize(rank);
  operand.offset = 0;
  operand.storage = Product(buffer);
  for (size_t k = 0; k < rank; ++k) {
    operand.type.strides[order[k]] = buffer_strides[k] * steps[k];
    operand.offset += buffer_strides[k] * starts[k];
  }
  operand.options = options;
  PushOperand(std::move(operand));
  return *this;
}

Case& Case::Tensor(const TensorType& type, const Dim& offset, const Dim& storage_elements,
                   const TensorOptions& options) {
  PushOperand({type, offset, storage_elements, options});
  return *this;
}

Case& Case::SameTensor() {
  auto index = static_cast<int32_t>(operands_.size()) - 1;
  if (list_ != nullptr) {
    list_->indices.push_back(index);
  } else {
    args_.push_back(OperandRef{index});
  }
  return *this;
}

Case& Case::TensorList(const std::function<void(Case&)>& add) {
  OperandList list;
  list_ = &list;
  add(*this);
  list_ = nullptr;
  args_.emplace_back(std::move(list));
  return *this;
}

Case& Case::Arg(Argument argument) {
  if (list_ != nullptr) {
    GT_CHECK(std::holds_alternative<std::monostate>(argument), "lists hold tensors");
    list_->indices.push_back(-1);
  } else {
    args_.push_back(std::move(argument));
  }
  return *this;
}

Case& Case::RandomNumber() {
  switch (Random(0, 4)) {
    case 0:
      return Int(Random(1, 3));
    case 1:
      return Bool(Chance());
    default:
      return Float(static_cast<double>(Random(1, 9)) * 0.25);
  }
}

Case& Case::Default() {
  const ArgSpec& spec = op_.schema.args[args_.size()];
  if (spec.default_value) return Arg(*spec.default_value);
  GT_CHECK(spec.optional, "{}: argument '{}' has no default", op_.name.str(), spec.name);
  return None();
}

// Runs one case and collects what is wrong with it.
class Runner {
 public:
  explicit Runner(Case& c) : c_(c) {
    while (c_.args_.size() < c_.op_.schema.args.size()) c_.Default();
  }

  enum class Outcome { kAgrees, kBothReject, kNoKernel, kDiffers };

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

  std::string Describe() const {
    std::string text = c_.op_.name.str() + "(";
    for (size_t i = 0; i < c_.args_.size(); ++i) {
      if (i > 0) text += ", ";
      text += c_.op_.schema.args[i].name + "=" + PrintArg(c_.args_[i]);
    }
    text += ")";
    for (size_t i = 0; i < c_.operands_.size(); ++i) {
      text += fmt::format("\n  operand {}: {} offset {} of {}", i, PrintType(c_.operands_[i].type),
                          c_.env_.Print(c_.operands_[i].offset),
                          c_.env_.Print(c_.operands_[i].storage));
    }
    for (const Symbol& symbol : c_.env_.symbols()) {
      text += fmt::format("\n  symbol {}: hint {} range [{}, {}]", symbol.name, symbol.hint,
                          symbol.low, symbol.high);
    }
    for (const Guard& guard : c_.env_.guards()) {
      text += "\n  guard " + guard.predicate.ToString(c_.env_.Namer());
    }
    for (size_t i = 0; i < types_.size(); ++i) {
      text += fmt::format("\n  rule's result {}: {}", i, PrintType(types_[i]));
    }
    return text;
  }

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

  std::string PrintShape(const Shape& shape) const {
    std::string text = "[";
    for (const Dim& dim : shape) text += (text.size() > 1 ? ", " : "") + c_.env_.Print(dim);
    return text + "]";
  }

  std::string PrintType(const TensorType& type) const {
    if (!type.defined()) return "undefined";
    return fmt::format("{}{} strides {}", DTypeName(type.dtype), PrintShape(type.sizes),
                       PrintShape(type.strides));
  }

  std::string PrintArg(const Argument& argument) const {
    struct Printer {
      const Runner& runner;
      std::string operator()(std::monostate) const { return "None"; }
      std::string operator()(OperandRef ref) const { return fmt::format("%{}", ref.index); }
      std::string operator()(const OperandList& list) const {
        return fmt::format("[%{}]", fmt::join(list.indices, ", %"));
      }
      std::string operator()(const Dim& dim) const { return runner.c_.env_.Print(dim); }
      std::string operator()(const Shape& shape) const { return runner.PrintShape(shape); }
      std::string operator()(double value) const { return fmt::format("{}", value); }
      std::string operator()(bool value) const { return value ? "true" : "false"; }
      std::string operator()(const std::string& value) const { return "\"" + value + "\""; }
      std::string operator()(DType dtype) const { return std::string(DTypeName(dtype)); }
      std::string operator()(Device device) const { return DeviceName(device); }
      std::string operator()(Layout) const { return "strided"; }
      std::string operator()(MemoryFormat format) const {
        return format == MemoryFormat::kContiguous ? "contiguous" : "preserve";
      }
      std::string operator()(const std::vector<double>& values) const {
        return fmt::format("[{}]", fmt::join(values, ", "));
      }
      std::string operator()(const std::vector<bool>& values) const {
        std::string text = "[";
        for (bool value : values) text += value ? "1" : "0";
        return text + "]";
      }
      std::string operator()(const GraphRef&) const { return "graph"; }
    };
    return std::visit(Printer{*this}, argument);
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

namespace {

// libtorch warns about casts and degenerate variances that random calls meet all the time.
class Quiet : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class ConformanceTest : public ::testing::Test {
 public:
  explicit ConformanceTest(std::string op) : op_name_(std::move(op)) {}

  void TestBody() override {
    const Operator* op = FindOperator(std::string_view(op_name_));
    ASSERT_NE(op, nullptr) << op_name_ << " has conformance cases but no entry in ops/";
    c10::NoGradGuard no_grad;
    at::set_num_threads(
        1);  // the tensors are tiny; waking threads for them takes longer than the work
    Quiet quiet;
    c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    const Entry& entry = Entries().at(op_name_);
    for (size_t g = 0; g < entry.generators.size(); ++g) {
      const auto& [generate, options] = entry.generators[g];
      for (Variant variant : {Variant::kStatic, Variant::kSymbolic, Variant::kData}) {
        if (variant == Variant::kData && !options.data_variant) continue;
        if (!RunVariant(*op, g, generate, options, variant)) return;
      }
    }
    ExpectShardsProved(*op);
  }

 private:
  // Every way that the rule gave for some call, once at least.
  static void ExpectShardsProved(const Operator& op) {
    const bool all_ran = FromEnvironment("GT_CONFORMANCE_ONLY", -1) < 0 && Iterations() >= 400;
    if (op.sharding == nullptr || Case::on_cuda() || !all_ran) return;
    EXPECT_GE(ProvedRows(op), 1) << op.name.str() << " has a sharding rule that nothing proves";
    EXPECT_TRUE(UnprovedRows(op).empty()) << op.name.str() << ": no call proves "
                                          << fmt::format("{}", fmt::join(UnprovedRows(op), "; "));
  }

  bool RunVariant(const Operator& op, size_t generator, void (*generate)(Case&),
                  const ConformOptions& options, Variant variant) {
    auto count = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(Iterations()) * options.share));
    int64_t only = FromEnvironment("GT_CONFORMANCE_ONLY", -1);
    int64_t agreed = 0, elsewhere = 0, with_symbols = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (only >= 0 && i != only) continue;
      uint64_t seed = BaseSeed() + std::hash<std::string>()(op_name_) + generator * 7919 +
                      static_cast<uint64_t>(i) * 1000003 +
                      static_cast<uint64_t>(variant) * 15485863;
      Case c(op, variant, seed);
      generate(c);
      Runner runner(c);
      at::manual_seed(i);
      Runner::Outcome outcome = runner.Run();
      if (outcome == Runner::Outcome::kDiffers) {
        ADD_FAILURE() << runner.problem() << "\n  " << runner.Describe() << "\nrepeat with"
                      << " GT_CONFORMANCE_SEED=" << BaseSeed() << " GT_CONFORMANCE_ONLY=" << i
                      << " (variant " << NameOf(variant) << ")";
        return false;
      }
      if (outcome == Runner::Outcome::kNoKernel) return true;
      agreed += outcome == Runner::Outcome::kAgrees;
      if (outcome == Runner::Outcome::kAgrees && !c.env().symbols().empty()) {
        ++with_symbols;
        elsewhere += runner.checked_elsewhere();
      }
    }
    if (only >= 0) return true;
    // A generator whose calls are mostly rejected, or whose symbols can never move, would test
    // nothing.
    EXPECT_GE(agreed * 3, count) << op_name_ << ": too few valid calls, variant "
                                 << NameOf(variant);
    EXPECT_GE(elsewhere * 3, with_symbols)
        << op_name_ << ": too few calls could be repeated at other extents, variant "
        << NameOf(variant);
    return true;
  }

  std::string op_name_;
};

void Register(std::string_view op, void (*generate)(Case&), const ConformOptions& options) {
  std::string name(op);
  Entry& entry = Entries()[name];
  entry.generators.emplace_back(generate, options);
  if (entry.generators.size() > 1) return;
  std::string test;
  for (char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      test += c;
    } else if (test.empty() || test.back() != '_' || c == '_') {
      test += '_';
    }
  }
  ::testing::RegisterTest("Conformance", test.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [name]() -> ::testing::Test* { return new ConformanceTest(name); });
}

}  // namespace

Conform::Conform(std::string_view op, void (*generate)(Case&), ConformOptions options) {
  Register(op, generate, options);
}

Conform::Conform(std::initializer_list<std::string_view> ops, void (*generate)(Case&),
                 ConformOptions options) {
  for (std::string_view op : ops) Register(op, generate, options);
}

Exempt::Exempt(std::initializer_list<std::string_view> ops, std::string_view reason) {
  for (std::string_view op : ops) Exemptions().emplace(op, reason);
}

bool HasCases(std::string_view op) { return Entries().find(op) != Entries().end(); }

std::string_view ExemptionOf(std::string_view op) {
  auto found = Exemptions().find(op);
  return found == Exemptions().end() ? std::string_view() : found->second;
}

}  // namespace gt::conformance
