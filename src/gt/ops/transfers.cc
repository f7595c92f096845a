// Copies between the device's memory and the host's that run side by side with compute, and the
// state of random generators, which lets a value be drawn a second time.
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/view_rules.h"

namespace gt {
namespace {

// The same elements in the same order elsewhere. Dense tensors keep their strides.
TensorType MovedTo(RuleContext& ctx, Device device) {
  const TensorType& self = ctx.Tensor(0);
  return {self.dtype, device, self.sizes, rules::PreservedStrides(ctx.env(), self)};
}

void OffloadRule(RuleContext& ctx) { ctx.Return(MovedTo(ctx, Device{})); }

void ReloadRule(RuleContext& ctx) {
  if (ctx.Tensor(0).device.kind != DeviceKind::kCpu) ctx.Reject("needs a tensor in host memory");
  ctx.Return(MovedTo(ctx, *ctx.OptionalDevice(1)));
}

void TransferWaitRule(RuleContext& ctx) { ctx.Return(ctx.Tensor(0)); }

// As many bytes as libtorch's generators have: a Mersenne twister, or a seed and an offset.
TensorType StateType(RuleContext& ctx, Device generator) {
  const int64_t bytes = generator.kind == DeviceKind::kCuda ? 16 : 5056;
  return rules::Contiguous(ctx, DType::kUInt8, Device{}, {Dim(bytes)});
}

void StateRule(RuleContext& ctx) { ctx.Return(StateType(ctx, *ctx.OptionalDevice(0))); }

void SetStateRule(RuleContext& ctx) {
  TensorType expected = StateType(ctx, *ctx.OptionalDevice(1));
  if (ctx.Tensor(0) != expected) ctx.Reject("the state is not one of this device's generator");
  ctx.Return(std::move(expected));
}

}  // namespace

void RegisterTransfers(OperatorTable& table) {
  // The host finds a buffer, or the generator, at every run.
  auto add = [&table](const char* schema, ShapeRule rule, Transfer transfer) -> Operator& {
    return table.Add(schema, rule,
                     {.work = Work::kTransfer,
                      .order = DimOrder::kKept,
                      .flops = rules::NoFlops,
                      .host = HostPart::kAlways,
                      .transfer = transfer});
  };
  add("gt::offload(Tensor self) -> Tensor", OffloadRule, Transfer::kOffload);
  add("gt::reload(Tensor self, Device device) -> Tensor", ReloadRule, Transfer::kReload);
  // `source` is what `moved` is copied from: it must not be freed before.
  add("gt::wait_transfer(Tensor moved, Tensor source) -> Tensor", TransferWaitRule, Transfer::kWait)
      .aliasing = Aliasing::kAlways;

  OperatorGroup states(table, {.work = Work::kHost,
                               .order = DimOrder::kUnknown,
                               .flops = rules::NoFlops,
                               .host = HostPart::kAlways,
                               .random = true,
                               .generator_state = true});
  states.Add("gt::generator_state(Device device) -> Tensor", StateRule);
  // Returns the state as it was.
  states.Add("gt::set_generator_state(Tensor state, Device device) -> Tensor", SetStateRule);
}

}  // namespace gt
