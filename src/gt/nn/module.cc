#include "gt/nn/module.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <unordered_set>

#include "gt/base/error.h"

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

at::Tensor Draw(const Init& init, at::IntArrayRef sizes, uint64_t stream) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  at::Generator generator = at::detail::createCPUGenerator(stream);
  switch (init.kind) {
    case Init::Kind::kZeros:
      return values.zero_();
    case Init::Kind::kOnes:
      return values.fill_(1.0);
    case Init::Kind::kNormal:
      return values.normal_(0.0, init.deviation, generator);
    case Init::Kind::kTruncatedNormal: {
      // Inverse of the normal distribution on a uniform sample of the interval that is kept.
      double edge = std::erf(init.cut / (init.deviation * std::sqrt(2.0)));
      values.uniform_(-edge, edge, generator);
      values.erfinv_().mul_(init.deviation * std::sqrt(2.0));
      return values.clamp_(-init.cut, init.cut);
    }
  }
  return values;
}

}  // namespace

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
  parameter.tensor_ =
      register_parameter(name, at::empty(sizes, at::device(at::kMeta).dtype(dtype)));
  own_parameters_.emplace_back(name, &parameter);
}

void Module::AddBuffer(const std::string& name, at::Tensor& buffer, const at::Tensor& values) {
  buffer = register_buffer(name, values);
  own_buffers_.push_back(buffer);
}

void Module::ForEachParameter(const std::function<void(const std::string&, Parameter&)>& visit) {
  for (auto& [name, parameter] : own_parameters_) visit(name, *parameter);
}

void Module::AllocateOwn(at::Device device) {
  for (auto& [name, parameter] : own_parameters_) {
    at::Tensor& tensor = parameter->tensor_;
    at::Tensor real = at::empty(tensor.sizes(), tensor.options().device(device));
    real.requires_grad_(tensor.requires_grad());
    parameters_[name] = real;
    tensor = real;
  }
  for (at::Tensor& buffer : own_buffers_) buffer.set_data(buffer.to(device));
}

void Module::InitializeOwn(int64_t seed) {
  at::NoGradGuard no_gradients;
  for (auto& [name, parameter] : own_parameters_) {
    std::string full = fqn_.empty() ? name : fqn_.str() + "." + name;
    at::Tensor& tensor = parameter->tensor_;
    tensor.copy_(Draw(parameter->init_, tensor.sizes(), StreamOf(seed, full)));
  }
}

namespace {

// Not torch's named_modules: that wants the root in a shared_ptr, which it is not while it is being
// built.
template <typename Visit>
void Walk(torch::nn::Module& module, const std::string& path, const Visit& visit) {
  if (auto* ours = dynamic_cast<Module*>(&module)) visit(path, *ours);
  for (const auto& child : module.named_children()) {
    Walk(*child.value(), path.empty() ? child.key() : path + "." + child.key(), visit);
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

void Materialize(Module& root, at::Device device, int64_t seed) {
  for (Module* module : ModulesOf(root)) {
    module->AllocateOwn(device);
    module->InitializeOwn(seed);
  }
}

int64_t ParameterCount(const Module& root) {
  std::unordered_set<const c10::TensorImpl*> seen;
  int64_t count = 0;
  for (const at::Tensor& parameter : root.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  }
  return count;
}

}  // namespace gt::nn
