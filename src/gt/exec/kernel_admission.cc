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

enum class Inputs { kUsual, kHostile, kMisaligned };

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

}  // namespace

std::string ReasonToReject(const FusedKernel& kernel, const Graph& body, SymbolValues symbols,
                           c10::Device device) {
  const IndexBounds bounds(body, symbols);
  // Of its own: what the job draws must not depend on what is compared here.
  at::Generator random = at::globalContext().defaultGenerator(device).clone();
  random.set_current_seed(1);
  for (Inputs kind : {Inputs::kUsual, Inputs::kHostile, Inputs::kMisaligned}) {
    std::vector<at::Tensor> inputs;
    for (const auto& input : body.inputs()) {
      inputs.push_back(
          MakeInput(input->value, symbols, device, kind, bounds.Of(input->value), random));
    }
    const std::vector<at::Tensor> expected = RunNested(body, inputs, symbols);
    std::vector<at::Tensor> actual;
    kernel.Run(inputs, symbols, actual);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (SameBits(expected[i], actual[i])) continue;
      return fmt::format("its bits differ on {} inputs, output {}",
                         kind == Inputs::kUsual     ? "ordinary"
                         : kind == Inputs::kHostile ? "extreme"
                                                    : "misaligned",
                         i);
    }
    if (kind != Inputs::kUsual) continue;
    actual.clear();
    const double operators = Milliseconds(device, [&] { RunNested(body, inputs, symbols); });
    const double fused = Milliseconds(device, [&] {
      std::vector<at::Tensor> outputs;
      kernel.Run(inputs, symbols, outputs);
    });
    if (fused > operators) {
      return fmt::format("it takes {:.3f} ms, its operators {:.3f} ms", fused, operators);
    }
  }
  return {};
}

}  // namespace gt
