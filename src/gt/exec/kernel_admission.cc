#include "gt/exec/kernel_admission.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "gt/exec/reference.h"
#include "gt/torch_bridge/convert.h"

namespace gt {
namespace {

enum class Inputs { kUsual, kCancelling, kHostile, kMisaligned };

const char* NameOf(Inputs kind) {
  switch (kind) {
    case Inputs::kUsual:
      return "ordinary";
    case Inputs::kCancelling:
      return "cancelling";
    case Inputs::kHostile:
      return "extreme";
    case Inputs::kMisaligned:
      return "misaligned";
  }
  return "";
}

// Values that integers of the body may have at most, so that what they index is there.
class IndexBounds {
 public:
  IndexBounds(const Graph& body, SymbolValues symbols) : symbols_(symbols) {
    std::vector<const Node*> nodes;
    for (const Node* node : body.nodes()) nodes.push_back(node);
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) Visit(**node);
  }

  int64_t Of(const Value& value) const {
    constexpr int64_t kAny = 1000;
    const auto found = bounds_.find(&value);
    return found == bounds_.end() ? kAny : found->second;
  }

 private:
  void Visit(const Node& node) {
    const std::string& name = node.op().name.str();
    if (name == "aten::index_select") {
      const TensorType& source = node.operand(0)->type();
      int64_t dim = *std::get<Dim>(node.arg(1)).as_const();
      if (dim < 0) dim += source.rank();
      Limit(*node.operand(1), source.sizes[static_cast<size_t>(dim)].Evaluate(symbols_));
    }
    if (name == "aten::nll_loss_backward") {
      Limit(*node.operand(2), node.operand(1)->type().sizes.back().Evaluate(symbols_));
    }
    if (name == "aten::floor_divide.Scalar" && bounds_.contains(node.result())) {
      Limit(*node.operand(0), Of(*node.result()) * *std::get<Dim>(node.arg(1)).as_const());
    }
    if (!node.op().is_view()) return;
    for (int32_t i = 0; i < node.result_count(); ++i) {
      if (bounds_.contains(node.result(i))) Limit(*node.operand(0), Of(*node.result(i)));
    }
  }
  void Limit(const Value& value, int64_t bound) {
    auto [entry, fresh] = bounds_.try_emplace(&value, bound);
    if (!fresh) entry->second = std::min(entry->second, bound);
  }

  SymbolValues symbols_;
  std::unordered_map<const Value*, int64_t> bounds_;
};

// Sprinkled over numbers of all magnitudes: values at which formulas that are equal on paper differ.
at::Tensor HostileFloats(const at::Tensor& usual, const at::Generator& random) {
  const at::Tensor which = at::randint(32, usual.sizes(), random, usual.options().dtype(at::kInt));
  at::Tensor values = usual;
  const double special[] = {std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            -0.0,
                            0.0,
                            1e-40,
                            -1e-40,
                            3e38,
                            88.8,
                            -104.0};
  int number = 0;
  for (double value : special) values = values.masked_fill(which == number++, value);
  return values;
}

at::Tensor Elements(DType dtype, int64_t count, c10::Device device, Inputs kind, int64_t bound,
                    const at::Generator& random) {
  const auto floats = at::TensorOptions(device).dtype(at::kFloat);
  const at::ScalarType type = ToTorch(dtype);
  if (dtype == DType::kBool) return at::randint(2, {count}, random, floats).to(at::kBool);
  if (IsIntegral(dtype)) {
    return at::randint(std::max<int64_t>(bound, 1), {count}, random, floats.dtype(at::kLong))
        .to(type);
  }
  if (dtype == DType::kComplex64) {
    return at::view_as_complex(
        Elements(DType::kFloat32, 2 * count, device, kind, bound, random).view({count, 2}));
  }
  if (kind == Inputs::kCancelling) {
    // Close to 1.3 or -1.3: sums of such numbers, and of their products, often leave nothing but what was
    // rounded away, and show it also where the result is rounded to few bits.
    const at::Tensor away =
        at::rand({count}, random, floats) * at::exp2(-4 - 16 * at::rand({count}, random, floats));
    const at::Tensor sign = 2 * at::randint(2, {count}, random, floats) - 1;
    return (sign * 1.3 * (1 + away)).to(type);
  }
  at::Tensor values =
      at::randn({count}, random, floats) * at::exp(2 * at::randn({count}, random, floats));
  if (kind != Inputs::kHostile) return values.to(type);
  values = HostileFloats(values, random).to(type);
  // Every eighth has arbitrary bits: NaNs with a payload among them.
  const at::ScalarType bits = ItemSize(dtype) == 2 ? at::kShort : at::kInt;
  const int64_t range = ItemSize(dtype) == 2 ? int64_t{1} << 15 : int64_t{1} << 31;
  const at::Tensor any =
      at::randint(-range, range, {count}, random, floats.dtype(at::kLong)).to(bits);
  const at::Tensor chosen = at::randint(8, {count}, random, floats.dtype(at::kInt)) == 0;
  return at::where(chosen, any, values.view(bits)).view(type);
}

c10::DimVector At(const Shape& shape, SymbolValues symbols) {
  c10::DimVector numbers;
  for (const Dim& dim : shape) numbers.push_back(dim.Evaluate(symbols));
  return numbers;
}

at::Tensor MakeInput(const Value& value, SymbolValues symbols, c10::Device device, Inputs kind,
                     int64_t bound, const at::Generator& random) {
  const TensorType& type = value.type();
  const c10::DimVector sizes = At(type.sizes, symbols), strides = At(type.strides, symbols);
  int64_t extent = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    extent += std::max<int64_t>(sizes[d] - 1, 0) * strides[d];
  const int64_t offset = kind == Inputs::kMisaligned ? 1 : 0;
  return Elements(type.dtype, extent + offset, device, kind, bound, random)
      .as_strided(sizes, strides, offset);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return b.numel() == 0;
  const auto bytes = [](const at::Tensor& tensor) {
    at::Tensor flat = tensor.as_strided({tensor.numel()}, {1});
    if (flat.is_complex()) flat = at::view_as_real(flat).reshape({-1});
    return flat.view(at::kByte);
  };
  return a.sizes() == b.sizes() && a.strides() == b.strides() && at::equal(bytes(a), bytes(b));
}

template <typename Body>
double Milliseconds(c10::Device device, const Body& body) {
  constexpr int kRuns = 5;
  const c10::impl::VirtualGuardImpl guard(device.type());
  c10::Event start(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event stop(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  body();
  start.record(guard.getStream(device));
  for (int i = 0; i < kRuns; ++i) body();
  stop.record(guard.getStream(device));
  stop.synchronize();
  return start.elapsedTime(stop) / kRuns;
}

// Small tensors are drawn again: arithmetic that differs on one number in a hundred thousand is found at
// the sizes of a small model as it would be at those of a large one.
int RoundsFor(const std::vector<at::Tensor>& results) {
  constexpr int64_t kEnough = int64_t{1} << 20, kMostRounds = 16;
  int64_t smallest = kEnough;
  for (const at::Tensor& result : results) {
    if (result.numel() > 0) smallest = std::min(smallest, result.numel());
  }
  return static_cast<int>(std::min(kMostRounds, (kEnough + smallest - 1) / smallest));
}

// A kernel and its operators, run on the same inputs.
class Comparison {
 public:
  Comparison(const FusedKernel& kernel, const Graph& body, SymbolValues symbols, c10::Device device)
      : kernel_(kernel),
        body_(body),
        symbols_(symbols),
        device_(device),
        bounds_(body, symbols),
        // Of its own: what the job draws must not depend on what is compared here.
        random_(at::globalContext().defaultGenerator(device).clone()) {
    random_.set_current_seed(1);
  }

  // Draws inputs, runs both and returns what differs.
  std::string Differs(Inputs kind) {
    inputs_.clear();
    for (const auto& input : body_.inputs()) {
      inputs_.push_back(
          MakeInput(input->value, symbols_, device_, kind, bounds_.Of(input->value), random_));
    }
    const std::vector<at::Tensor> expected = RunNested(body_, inputs_, symbols_);
    std::vector<at::Tensor> actual;
    kernel_.Run(inputs_, symbols_, actual);
    rounds_ = RoundsFor(expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (SameBits(expected[i], actual[i])) continue;
      return fmt::format("its bits differ on {} inputs, output {}", NameOf(kind), i);
    }
    return {};
  }

  // On the inputs that were compared last.
  std::string IsSlower() const {
    const double operators = Milliseconds(device_, [&] { RunNested(body_, inputs_, symbols_); });
    const double fused = Milliseconds(device_, [&] {
      std::vector<at::Tensor> outputs;
      kernel_.Run(inputs_, symbols_, outputs);
    });
    if (fused <= operators) return {};
    return fmt::format("it takes {:.3f} ms, its operators {:.3f} ms", fused, operators);
  }

  int rounds() const { return rounds_; }

 private:
  const FusedKernel& kernel_;
  const Graph& body_;
  const SymbolValues symbols_;
  const c10::Device device_;
  const IndexBounds bounds_;
  at::Generator random_;
  std::vector<at::Tensor> inputs_;
  int rounds_ = 1;
};

}  // namespace

Verdict Admit(const FusedKernel& kernel, const Graph& body, SymbolValues symbols,
              c10::Device device) {
  Comparison comparison(kernel, body, symbols, device);
  const auto differs = [&](std::initializer_list<Inputs> kinds) {
    std::string difference;
    for (Inputs kind : kinds) {
      if (difference.empty()) difference = comparison.Differs(kind);
    }
    return difference;
  };
  std::string reason = differs({Inputs::kMisaligned, Inputs::kUsual});
  if (!reason.empty()) return {.same_bits = false, .reason = reason};
  const std::string slower = comparison.IsSlower();
  for (int round = 0; round < comparison.rounds() && reason.empty(); ++round) {
    reason = differs({Inputs::kCancelling, Inputs::kHostile, Inputs::kUsual});
  }
  if (!reason.empty()) return {.same_bits = false, .reason = reason};
  return {.same_bits = true, .reason = slower};
}

std::string Stored(const Verdict& verdict) {
  return (verdict.same_bits ? "equal " : "other ") + verdict.reason;
}

std::optional<Verdict> VerdictFrom(std::string_view stored) {
  constexpr size_t kWord = 6;
  const std::string_view word = stored.substr(0, kWord);
  if (word != "equal " && word != "other ") return std::nullopt;
  return Verdict{.same_bits = word == "equal ", .reason = std::string(stored.substr(kWord))};
}

}  // namespace gt
