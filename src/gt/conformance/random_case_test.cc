#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "gt/base/error.h"
#include "gt/conformance/harness.h"

namespace gt::conformance {

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

}  // namespace gt::conformance
