#include "gt/nn/module.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <unordered_set>

#include "gt/base/error.h"
#include "gt/base/normal_stream.h"
#include "gt/torch_bridge/tensor_fill.h"
#include "gt/trace/recorder.h"

namespace gt::nn {
namespace {

// One stream of random numbers per parameter: FNV-1a over seed and name.
uint64_t StreamNumber(int64_t seed, const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3ull; };
  for (int i = 0; i < 8; ++i) add(static_cast<uint8_t>(static_cast<uint64_t>(seed) >> (8 * i)));
  for (char c : name) add(static_cast<uint8_t>(c));
  return hash;
}

NormalStream StreamOf(const Init& init, uint64_t stream) {
  if (init.kind == Init::Kind::kNormal) return {stream, init.deviation};
  return {stream, init.deviation, init.cut};
}

// The numbers of a box, row-major.
void DrawFloats(const NormalStream& stream, const TensorBox& box, float* out) {
  BoxRows rows(box);
  auto length = static_cast<size_t>(rows.length());
  for (int64_t row = 0; row < rows.count(); ++row, out += length) {
    stream.Fill(static_cast<uint64_t>(rows.First(row)), {out, length});
  }
}

// Narrower types are rounded from float32, a little at a time, while it is in the cache.
void Draw(const NormalStream& stream, const TensorBox& box, const at::Tensor& out) {
  if (out.scalar_type() == at::kFloat) {
    DrawFloats(stream, box, out.mutable_data_ptr<float>());
    return;
  }
  constexpr int64_t kBlock = 16384;
  std::vector<float> block(kBlock);
  at::Tensor flat = out.view({-1});
  int64_t begin = 0;
  for (const TensorBox& part : SplitBox(box, kBlock)) {
    DrawFloats(stream, part, block.data());
    flat.narrow(0, begin, part.elements()).copy_(at::from_blob(block.data(), {part.elements()}));
    begin += part.elements();
  }
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
  // Far beyond any machine, and so small that sums over all layers of a model do not overflow.
  constexpr double kMostElements = static_cast<double>(int64_t{1} << 40);
  double elements = 1;
  for (const int64_t size : sizes) elements *= static_cast<double>(size);
  if (elements > kMostElements) {
    Fail(ErrorCode::kDoesNotFit, "the parameter {} of sizes [{}] is larger than any machine holds",
         name, fmt::join(sizes, ", "));
  }
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

void Module::AddInitialization(int64_t seed, std::vector<FillPiece>& pieces) {
  for (auto& [name, parameter] : own_parameters_) {
    const Init& init = parameter->init_;
    const TensorBox& box = parameter->box_;
    at::Tensor tensor = parameter->tensor_.detach();
    if (init.kind == Init::Kind::kZeros || init.kind == Init::Kind::kOnes) {
      tensor.fill_(init.kind == Init::Kind::kOnes ? 1 : 0);
      continue;
    }
    NormalStream stream = StreamOf(init, StreamNumber(seed, JoinName(fqn_.str(), name)));
    for (TensorBox& piece : SplitBox(box, kFillElements)) {
      at::Tensor destination = ViewOfBox(tensor, box, piece);
      auto draw = [stream, piece = std::move(piece)](const at::Tensor& out) {
        Draw(stream, piece, out);
      };
      pieces.push_back({std::move(destination), std::move(draw)});
    }
  }
}

void Module::KeepPart(const std::string& name, const TensorBox& box, bool owned) {
  for (auto& [own, parameter] : own_parameters_) {
    if (own != name) continue;
    const at::Tensor& tensor = parameter->tensor_;
    GT_CHECK(tensor.is_meta(), "parameter '{}' has its data already", name);
    Replace(name, *parameter, at::empty(box.sizes, tensor.options()));
    parameter->box_ = box;
    parameter->owned_ = owned;
  }
}

std::string JoinName(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

namespace {

// Not torch's named_modules: that wants the root in a shared_ptr, which it is not while it is being
// built. Nor named_children, which copies a table of them for each module.
template <typename Visit>
void Walk(torch::nn::Module& root, const Visit& visit) {
  root.apply([&](const std::string& path, torch::nn::Module& module) {
    if (auto* ours = dynamic_cast<Module*>(&module)) visit(path, *ours);
  });
}

}  // namespace

void NameModules(Module& root) {
  Walk(root, [](const std::string& path, Module& module) { module.fqn_ = Name(path); });
}

std::vector<Module*> ModulesOf(Module& root) {
  std::vector<Module*> found;
  root.apply([&](torch::nn::Module& module) {
    if (auto* ours = dynamic_cast<Module*>(&module)) found.push_back(ours);
  });
  return found;
}

ModuleTable RolesOf(const Module& root) {
  ModuleTable roles;
  Walk(const_cast<Module&>(root), [&](const std::string& path, const Module& module) {
    if (!path.empty() && module.role()) roles.Declare(Name(path), *module.role());
  });
  return roles;
}

void StoreAs(Module& root, at::ScalarType dtype) {
  for (Module* module : ModulesOf(root)) module->StoreOwnAs(dtype);
}

void Allocate(Module& root, at::Device device, at::ScalarType dtype) {
  for (Module* module : ModulesOf(root)) module->AllocateOwn(device, dtype);
}

void Materialize(Module& root, at::Device device, int64_t seed, at::ScalarType dtype) {
  Allocate(root, device, dtype);
  std::vector<FillPiece> pieces;
  for (Module* module : ModulesOf(root)) module->AddInitialization(seed, pieces);
  FillTensors(std::move(pieces));
}

std::vector<StateTensor> NamedState(Module& root) {
  std::vector<StateTensor> state;
  for (Module* module : ModulesOf(root)) {
    const std::string& path = module->fqn().str();
    module->ForEachParameter([&](const std::string& name, Parameter& parameter) {
      state.push_back(
          {JoinName(path, name), parameter.stored(), parameter.box(), parameter.owned()});
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
