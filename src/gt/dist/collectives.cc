#include "gt/dist/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gt/torch_bridge/scope.h"

namespace gt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

template <typename Signature>
auto Find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

at::Tensor Wait(const at::Tensor& started) {
  static auto op = Find<at::Tensor(const at::Tensor&)>("_c10d_functional::wait_tensor");
  return op.call(started);
}

at::Tensor AllReduce(const at::Tensor& x, const char* kind, const Group* group) {
  if (group == nullptr) return x;
  static auto op =
      Find<at::Tensor(const at::Tensor&, std::string, std::string)>("_c10d_functional::all_reduce");
  return Wait(op.call(x, kind, group->name));
}

// [a, parts * b, c] seen as [parts * a, b, c]: what libtorch's collectives, which work along
// dimension 0, need to work along another one.
at::Tensor PartsToFront(const at::Tensor& x, int64_t dim, int64_t parts) {
  if (dim == 0) return x.contiguous();
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  auto at = static_cast<size_t>(dim);
  std::vector<c10::SymInt> split = sizes;
  split[at] = sizes[at] / parts;
  split.insert(split.begin() + dim, parts);
  at::Tensor moved = x.reshape_symint(split).movedim(dim, 0).contiguous();
  sizes[at] = sizes[at] / parts;
  sizes[0] = sizes[0] * parts;
  return moved.view_symint(sizes);
}

// The reverse.
at::Tensor PartsFromFront(const at::Tensor& x, int64_t dim, int64_t parts) {
  if (dim == 0) return x;
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  sizes[0] = sizes[0] / parts;
  std::vector<c10::SymInt> split = sizes;
  split.insert(split.begin(), parts);
  at::Tensor moved = x.view_symint(split).movedim(0, dim);
  sizes[static_cast<size_t>(dim)] = sizes[static_cast<size_t>(dim)] * parts;
  return moved.reshape_symint(sizes);
}

at::Tensor Gather(const at::Tensor& x, int64_t dim, const Group* group) {
  return PartsFromFront(AllGather(x.contiguous(), group), dim, group->size());
}

at::Tensor ReduceScatter(const at::Tensor& x, int64_t dim, const Group* group) {
  return ReduceScatter(PartsToFront(x, dim, group->size()), group);
}

// What an autograd function of ours remembers of where it ran and with whom. Groups live as long as
// the job, so their address may be kept.
void Remember(AutogradContext* ctx, const Group* group) {
  ctx->saved_data["group"] = reinterpret_cast<int64_t>(group);
  ctx->saved_data["module"] = CurrentScope().module.str();
}
const Group* GroupOf(AutogradContext* ctx) {
  return reinterpret_cast<const Group*>(ctx->saved_data["group"].toInt());
}
// Messages about a collective name its module, also when it runs in an eager backward.
Scope ScopeOf(AutogradContext* ctx) {
  Scope scope = CurrentScope();
  scope.module = Name(ctx->saved_data["module"].toStringRef());
  return scope;
}

class GatherFunction : public Function<GatherFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t dim,
                            const Group* group) {
    Remember(ctx, group);
    ctx->saved_data["dim"] = dim;
    return Gather(x, dim, group);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    ScopeGuard scope(ScopeOf(ctx));
    return {ReduceScatter(gradients[0], ctx->saved_data["dim"].toInt(), GroupOf(ctx)), {}, {}};
  }
};

class ReduceScatterFunction : public Function<ReduceScatterFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t dim,
                            const Group* group) {
    Remember(ctx, group);
    ctx->saved_data["dim"] = dim;
    return ReduceScatter(x, dim, group);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    ScopeGuard scope(ScopeOf(ctx));
    return {Gather(gradients[0], ctx->saved_data["dim"].toInt(), GroupOf(ctx)), {}, {}};
  }
};

class ExchangeFunction : public Function<ExchangeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            std::vector<c10::SymInt> output_splits,
                            std::vector<c10::SymInt> input_splits, const Group* group) {
    Remember(ctx, group);
    at::Tensor received = AllToAll(x, output_splits, input_splits, group);
    ctx->saved_data["output"] = std::move(output_splits);
    ctx->saved_data["input"] = std::move(input_splits);
    return received;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list gradients) {
    ScopeGuard scope(ScopeOf(ctx));
    return {AllToAll(gradients[0], ctx->saved_data["input"].toSymIntVector(),
                     ctx->saved_data["output"].toSymIntVector(), GroupOf(ctx)),
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor AllGather(const at::Tensor& x, const Group* group) {
  if (group == nullptr) return x;
  static auto op = Find<at::Tensor(const at::Tensor&, int64_t, std::string)>(
      "_c10d_functional::all_gather_into_tensor");
  return Wait(op.call(x, group->size(), group->name));
}

at::Tensor ReduceScatter(const at::Tensor& x, const Group* group) {
  if (group == nullptr) return x;
  static auto op = Find<at::Tensor(const at::Tensor&, std::string, int64_t, std::string)>(
      "_c10d_functional::reduce_scatter_tensor");
  return Wait(op.call(x, "sum", group->size(), group->name));
}

at::Tensor AllReduceSum(const at::Tensor& x, const Group* group) {
  return AllReduce(x, "sum", group);
}

at::Tensor AllReduceMax(const at::Tensor& x, const Group* group) {
  return AllReduce(x, "max", group);
}

at::Tensor AllToAll(const at::Tensor& x, const std::vector<c10::SymInt>& output_splits,
                    const std::vector<c10::SymInt>& input_splits, const Group* group) {
  if (group == nullptr) return x;
  static auto op =
      Find<at::Tensor(const at::Tensor&, at::SymIntArrayRef, at::SymIntArrayRef, std::string)>(
          "_c10d_functional::all_to_all_single");
  return Wait(op.call(x.contiguous(), output_splits, input_splits, group->name));
}

at::Tensor GatherAlong(const at::Tensor& x, int64_t dim, const Group* group) {
  return group == nullptr ? x : GatherFunction::apply(x, dim, group);
}

at::Tensor ReduceScatterAlong(const at::Tensor& x, int64_t dim, const Group* group) {
  return group == nullptr ? x : ReduceScatterFunction::apply(x, dim, group);
}

at::Tensor ExchangeRows(const at::Tensor& x, const std::vector<c10::SymInt>& output_splits,
                        const std::vector<c10::SymInt>& input_splits, const Group* group) {
  return group == nullptr ? x : ExchangeFunction::apply(x, output_splits, input_splits, group);
}

}  // namespace gt
