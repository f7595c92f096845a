// The base of all modules here. It is a torch::nn::Module whose children are called through Ref, so
// that every operation runs inside the scope of the module that called it (torch_bridge/scope.h), and
// whose parameters know how they are initialized and how they are prepared for use (cast, later
// gathered), so that models contain neither. A module declares its role, so that passes and
// parallelisms need not know its name.
//
// Memory: parameters are built on the meta device, without data. Materialize() allocates; a model
// that is only captured or sized up never does.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "gt/ir/modules.h"
#include "gt/nn/chunking.h"
#include "gt/storage/tensor_box.h"
#include "gt/torch_bridge/scope.h"

namespace gt {
struct FillPiece;
}

namespace gt::nn {

// How a parameter gets its first values. Every element is a function of the run's seed, the
// parameter's name and the element's index alone, so that the values depend neither on the order of
// initialization, nor on the number of threads, nor on how the model is distributed.
struct Init {
  enum class Kind { kZeros, kOnes, kNormal, kTruncatedNormal };
  Kind kind = Kind::kZeros;
  double deviation = 0.0;
  double cut = 0.0;  // truncated to [-cut, cut]

  static Init Ones() { return {Kind::kOnes, 0.0, 0.0}; }
  static Init Normal(double deviation) { return {Kind::kNormal, deviation, 0.0}; }
  static Init TruncatedNormal(double deviation, double cut = 2.0) {
    return {Kind::kTruncatedNormal, deviation, cut};
  }
};

// What happens to a parameter each time it is used. Differentiable: its backward takes the gradient
// the other way.
using Preparation = std::function<at::Tensor(const at::Tensor&)>;

// What happens to a tensor on its way into or out of a module. Differentiable.
using Transform = std::function<at::Tensor(const at::Tensor&)>;

class Parameter {
 public:
  Parameter() = default;
  // The tensor to compute with.
  at::Tensor operator()() const;
  // The stored tensor: what the optimizer updates and checkpoints hold. The whole parameter, or this
  // rank's part of it.
  const at::Tensor& stored() const { return tensor_; }
  // Which part that is.
  const TensorBox& box() const { return box_; }
  // Whether this rank answers for that part, of all ranks that have it. Nothing: the parameter is not
  // shared out, and rank 0 does.
  const std::optional<bool>& owned() const { return owned_; }
  const Init& init() const { return init_; }
  void set_preparation(Preparation prepare) { prepare_ = std::move(prepare); }

 private:
  friend class Module;
  at::Tensor tensor_;
  TensorBox box_;
  std::optional<bool> owned_;
  Init init_;
  Preparation prepare_;
};

enum class BufferKind { kState, kTable };

template <typename M>
class Ref;

class Module : public torch::nn::Module {
 public:
  // The location is that of the deriving class's constructor: where to look when a node of this
  // module is in question.
  explicit Module(std::source_location where = std::source_location::current());

  // Path from the root, "layers.3.attention"; set by NameModules.
  Name fqn() const { return fqn_; }
  // What the module is for (ir/modules.h). Blocks must declare theirs: bucketing, resharding,
  // rematerialization and offloading work block by block.
  std::optional<ModuleRole> role() const { return role_; }
  void set_role(ModuleRole role) { role_ = role; }
  // The scope to run in: this module, within the phase and region that are open.
  Scope EnterScope() const;

  // Visits this module's own parameters (not its children's).
  void ForEachParameter(const std::function<void(const std::string&, Parameter&)>& visit);
  // This module's own buffers of kind kState.
  void ForEachState(const std::function<void(const std::string&, at::Tensor&)>& visit);
  // Gives parameters memory on `device`, uninitialized, and moves buffers there.
  void AllocateOwn(at::Device device, at::ScalarType dtype);
  // Adds what gives them their first values; constant ones (zeros, ones) are filled immediately.
  void AddInitialization(int64_t seed, std::vector<FillPiece>& pieces);
  // Parameters are of this type from now on. Before they are allocated, as the next.
  void StoreOwnAs(at::ScalarType dtype);
  // From now on the module holds this part of its parameter. Of the ranks that hold it, one owns it: it
  // writes it to checkpoints, counts it in hashes and norms, and sends it to exports.
  void KeepPart(const std::string& name, const TensorBox& box, bool owned = true);

  // From now on calls through Ref run once for each chunk of their inputs.
  void set_chunking(Chunking chunking) { chunking_ = chunking; }
  const std::optional<Chunking>& chunking() const { return chunking_; }
  // Whether the module has been called through Ref.
  bool was_called() const { return was_called_; }

  // Applied to the first argument of every call through Ref, and to the result; several run in the
  // order they were added. This is how parallelisms change what a module sees without the module
  // knowing.
  void AddInputTransform(Transform transform) { into_.push_back(std::move(transform)); }
  void AddOutputTransform(Transform transform) { out_of_.push_back(std::move(transform)); }
  at::Tensor Entering(const at::Tensor& x) const { return Apply(into_, x); }
  at::Tensor Leaving(const at::Tensor& x) const { return Apply(out_of_, x); }
  template <typename T>
  T Leaving(T result) const {  // results that are no tensors pass as they are
    return result;
  }

 protected:
  // `parameter` must be a member of this module.
  void AddParameter(const std::string& name, Parameter& parameter, at::IntArrayRef sizes, Init init,
                    at::ScalarType dtype = at::kFloat);
  // A tensor that is part of the state but not trained. Buffers are small, so they have their
  // values from the start. Checkpoints hold those that are kState; kTable is made anew from the
  // configuration.
  void AddBuffer(const std::string& name, at::Tensor& buffer, const at::Tensor& values,
                 BufferKind kind = BufferKind::kState);
  template <typename M, typename... Args>
  Ref<M> AddChild(const std::string& name, Args&&... args);

 private:
  friend void NameModules(Module& root);
  template <typename M>
  friend class Ref;
  void Replace(const std::string& name, Parameter& parameter, at::Tensor by);
  static at::Tensor Apply(const std::vector<Transform>& transforms, at::Tensor x) {
    for (const Transform& transform : transforms) x = transform(x);
    return x;
  }

  Name fqn_;
  Name source_;
  std::optional<ModuleRole> role_;
  std::vector<Transform> into_, out_of_;
  std::optional<Chunking> chunking_;
  bool was_called_ = false;
  std::vector<std::pair<std::string, Parameter*>> own_parameters_;
  struct Buffer {
    std::string name;
    at::Tensor tensor;
    BufferKind kind;
  };
  std::vector<Buffer> own_buffers_;
};

// A child module. Calling it opens its scope and runs its forward.
template <typename M>
class Ref {
 public:
  Ref() = default;
  explicit Ref(std::shared_ptr<M> module) : module_(std::move(module)) {}

  template <typename... Args>
  auto operator()(const at::Tensor& x, const Args&... args) const {
    static_cast<Module&>(*module_).was_called_ = true;
    if (!module_->chunking()) return Call(x, args...);
    return InChunks(
        module_->fqn(), *module_->chunking(),
        [this](const auto&... pieces) { return Call(pieces...); }, x, args...);
  }
  M* operator->() const { return module_.get(); }
  M& operator*() const { return *module_; }
  explicit operator bool() const { return module_ != nullptr; }

 private:
  template <typename... Args>
  auto Call(const at::Tensor& x, const Args&... args) const {
    ScopeGuard scope(module_->EnterScope());
    return module_->Leaving(module_->forward(module_->Entering(x), args...));
  }

  std::shared_ptr<M> module_;
};

template <typename M, typename... Args>
Ref<M> Module::AddChild(const std::string& name, Args&&... args) {
  return Ref<M>(register_module(name, std::make_shared<M>(std::forward<Args>(args)...)));
}

// Gives every module below `root` its path. Call once, when the model is complete.
void NameModules(Module& root);

// "layers.3.attention" and "weight" make "layers.3.attention.weight".
std::string JoinName(const std::string& path, const std::string& name);

// All modules of ours below and including `root`, in registration order.
std::vector<Module*> ModulesOf(Module& root);

// The roles that modules below `root` declare, by path; blocks in registration order.
ModuleTable RolesOf(const Module& root);

// Parameters will be kept in this type: a step can be captured and measured before they have memory.
void StoreAs(Module& root, at::ScalarType dtype);

// Gives all parameters memory on `device` and moves buffers there. Parameters are kept in `dtype`;
// buffers keep theirs.
void Allocate(Module& root, at::Device device, at::ScalarType dtype = at::kFloat);

// Allocate, then the first values of all parameters from `seed`.
void Materialize(Module& root, at::Device device, int64_t seed, at::ScalarType dtype = at::kFloat);

// Parameters and buffers of kind kState by full name, in registration order: all that a checkpoint
// of the model holds. A parameter that two modules share is listed once, under its first name.
struct StateTensor {
  std::string name;
  at::Tensor tensor;
  TensorBox box;  // which part of the whole this rank has; buffers are whole everywhere
  std::optional<bool> owned = {};  // as Parameter::owned
  bool IsOwnedBy(int64_t rank) const { return owned.value_or(rank == 0); }
};
std::vector<StateTensor> NamedState(Module& root);

// Elements of all parameters, wherever they are kept; a tensor used twice counts once.
int64_t ParameterCount(const Module& root);

}  // namespace gt::nn
