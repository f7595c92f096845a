#include "gt/nn/module.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/trace/recorder.h"

namespace gt::nn {
namespace {

// One stream of random numbers per parameter: FNV-1a over seed and name.
uint64_t StreamOf(int64_t seed, const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3ull; };
  for (int i = 0; i < 8; ++i) add(static_cast<uint8_t>(static_cast<uint64_t>(seed) >> (8 * i)));
  for (char c : name) add(static_cast<uint8_t>(c));
  return hash;
}

// A number in (0, 1) for every element: SplitMix64 at position `index` of the stream.
double UniformAt(uint64_t stream, uint64_t index) {
  uint64_t z = stream + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return (static_cast<double>(z >> 11) + 0.5) * 0x1p-53;
}

// Inverse of the normal distribution (Acklam's rational approximation, relative error 1e-9).
double NormalQuantile(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                          6.680131188771972e+01, -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                          3.754408661907416e+00};
  constexpr double kTail = 0.02425;
  auto tail = [&](double q) {
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  };
  if (p < kTail) return tail(std::sqrt(-2 * std::log(p)));
  if (p > 1 - kTail) return -tail(std::sqrt(-2 * std::log1p(-p)));
  double q = p - 0.5, r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

at::Tensor Draw(const Init& init, const TensorBox& box, uint64_t stream) {
  if (init.kind == Init::Kind::kZeros) return at::zeros(box.sizes, at::kFloat);
  if (init.kind == Init::Kind::kOnes) return at::ones(box.sizes, at::kFloat);
  at::Tensor values = at::empty(box.sizes, at::kFloat);
  if (values.numel() == 0) return values;
  float* data = values.data_ptr<float>();
  // A truncated distribution is the whole one, drawn from the share of it that is kept.
  double below = 0.0;
  if (init.kind == Init::Kind::kTruncatedNormal) {
    below = 0.5 * std::erfc(init.cut / (init.deviation * std::numbers::sqrt2));
  }
  BoxRows rows(box);
  int64_t grain = std::max<int64_t>(1, 65536 / rows.length());
  at::parallel_for(0, rows.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      auto first = static_cast<uint64_t>(rows.First(row));
      float* out = data + row * rows.length();
      for (int64_t i = 0; i < rows.length(); ++i) {
        double share =
            below + UniformAt(stream, first + static_cast<uint64_t>(i)) * (1 - 2 * below);
        out[i] = static_cast<float>(init.deviation * NormalQuantile(share));
      }
    }
  });
  return values;
}

}  // namespace

at::Tensor Parameter::operator()() const {
  at::Tensor tensor = Recorder::Substituted(tensor_);
  return prepare_ ? prepare_(tensor) : tensor;
}

Module::Module(std::source_location where) : source_(SourceName(where)) {}

Scope Module::EnterScope() const {
  Scope scope = CurrentScope();
  scope.module = fqn_;
  scope.source = source_;
  return scope;
}

void Module::AddParameter(const std::string& name, Parameter& parameter, at::IntArrayRef sizes,
                          Init init, at::ScalarType dtype) {
  parameter.init_ = init;
  parameter.box_ = TensorBox::All(sizes.vec());
  parameter.tensor_ =
      register_parameter(name, at::empty(sizes, at::device(at::kMeta).dtype(dtype)));
  own_parameters_.emplace_back(name, &parameter);
}

void Module::AddBuffer(const std::string& name, at::Tensor& buffer, const at::Tensor& values,
                       BufferKind kind) {
  buffer = register_buffer(name, values);
  own_buffers_.push_back({name, buffer, kind});
}

void Module::ForEachParameter(const std::function<void(const std::string&, Parameter&)>& visit) {
  for (auto& [name, parameter] : own_parameters_) visit(name, *parameter);
}

void Module::ForEachState(const std::function<void(const std::string&, at::Tensor&)>& visit) {
  for (Buffer& buffer : own_buffers_) {
    if (buffer.kind == BufferKind::kState) visit(buffer.name, buffer.tensor);
  }
}

void Module::Replace(const std::string& name, Parameter& parameter, at::Tensor by) {
  by.requires_grad_(parameter.tensor_.requires_grad());
  parameters_[name] = by;
  parameter.tensor_ = std::move(by);
}

void Module::StoreOwnAs(at::ScalarType dtype) {
  for (auto& [name, parameter] : own_parameters_) {
    const at::Tensor& tensor = parameter->tensor_;
    GT_CHECK(tensor.is_meta(), "parameter '{}' has its data already", name);
    Replace(name, *parameter, at::empty(tensor.sizes(), tensor.options().dtype(dtype)));
  }
}

void Module::AllocateOwn(at::Device device, at::ScalarType dtype) {
  for (auto& [name, parameter] : own_parameters_) {
    const at::Tensor& tensor = parameter->tensor_;
    Replace(name, *parameter,
            at::empty(tensor.sizes(), tensor.options().device(device).dtype(dtype)));
  }
  for (Buffer& buffer : own_buffers_) buffer.tensor.set_data(buffer.tensor.to(device));
}

void Module::InitializeOwn(int64_t seed) {
  at::NoGradGuard no_gradients;
  for (auto& [name, parameter] : own_parameters_) {
    at::Tensor& tensor = parameter->tensor_;
    uint64_t stream = StreamOf(seed, JoinName(fqn_.str(), name));
    tensor.copy_(Draw(parameter->init_, parameter->box_, stream));
  }
}

void Module::KeepPart(const std::string& name, const TensorBox& box) {
  for (auto& [own, parameter] : own_parameters_) {
    if (own != name) continue;
    const at::Tensor& tensor = parameter->tensor_;
    GT_CHECK(tensor.is_meta(), "parameter '{}' has its data already", name);
    Replace(name, *parameter, at::empty(box.sizes, tensor.options()));
    parameter->box_ = box;
  }
}

std::string JoinName(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

namespace {

// Not torch's named_modules: that wants the root in a shared_ptr, which it is not while it is being
// built.
template <typename Visit>
void Walk(torch::nn::Module& module, const std::string& path, const Visit& visit) {
  if (auto* ours = dynamic_cast<Module*>(&module)) visit(path, *ours);
  for (const auto& child : module.named_children()) {
    Walk(*child.value(), JoinName(path, child.key()), visit);
  }
}

}  // namespace

void NameModules(Module& root) {
  Walk(root, "", [](const std::string& path, Module& module) { module.fqn_ = Name(path); });
}

std::vector<Module*> ModulesOf(Module& root) {
  std::vector<Module*> found;
  Walk(root, "", [&found](const std::string&, Module& module) { found.push_back(&module); });
  return found;
}

void StoreAs(Module& root, at::ScalarType dtype) {
  for (Module* module : ModulesOf(root)) module->StoreOwnAs(dtype);
}

void Allocate(Module& root, at::Device device, at::ScalarType dtype) {
  for (Module* module : ModulesOf(root)) module->AllocateOwn(device, dtype);
}

void Materialize(Module& root, at::Device device, int64_t seed, at::ScalarType dtype) {
  for (Module* module : ModulesOf(root)) {
    module->AllocateOwn(device, dtype);
    module->InitializeOwn(seed);
  }
}

std::vector<StateTensor> NamedState(Module& root) {
  std::vector<StateTensor> state;
  for (Module* module : ModulesOf(root)) {
    const std::string& path = module->fqn().str();
    module->ForEachParameter([&](const std::string& name, Parameter& parameter) {
      state.push_back({JoinName(path, name), parameter.stored(), parameter.box()});
    });
    module->ForEachState([&](const std::string& name, at::Tensor& buffer) {
      state.push_back({JoinName(path, name), buffer, TensorBox::All(buffer.sizes().vec())});
    });
  }
  return state;
}

namespace {

int64_t CountParameters(torch::nn::Module& module, std::unordered_set<const void*>& seen) {
  int64_t count = 0;
  if (auto* ours = dynamic_cast<Module*>(&module)) {
    ours->ForEachParameter([&](const std::string&, Parameter& parameter) {
      if (!seen.insert(parameter.stored().unsafeGetTensorImpl()).second) return;
      count += TensorBox::All(parameter.box().whole).elements();
    });
  }
  for (const auto& parameter : module.parameters(/*recurse=*/false)) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  }
  for (const auto& child : module.children()) count += CountParameters(*child, seen);
  return count;
}

}  // namespace

int64_t ParameterCount(const Module& root) {
  std::unordered_set<const void*> seen;
  return CountParameters(const_cast<Module&>(root), seen);
}

}  // namespace gt::nn
