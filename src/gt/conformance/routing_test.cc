// Cases of ops/routing.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::routing_test {
namespace {

constexpr DType kLogitTypes[] = {DType::kFloat32, DType::kFloat64};

Conform kRouter("gt::router", [](Case& c) {
  // How many experts there are, and in how many groups, is the same in every call of a model.
  const int64_t groups = c.Random(1, 3), experts = groups * c.Random(1, 4);
  c.Tensor(c.Pick(kLogitTypes), {c.Extent(0, 5), experts});
  c.Chance() ? c.Tensor(DType::kFloat32, {experts}) : c.None();
  c.Int(c.Random(0, experts)).Bool(c.Chance());
  c.Int(groups).Int(c.Random(1, groups)).Bool(c.Chance()).Float(c.Pick({1.0, 2.5}));
});

Conform kRouterOfSymbols("gt::router", [](Case& c) {
  const Dim experts = c.Extent(1, 6);
  c.Tensor(c.Pick(kLogitTypes), {c.Extent(0, 5), experts});
  c.Tensor(DType::kFloat32, {c.MustEqual(experts)});
  c.Int(1).Bool(c.Chance()).Int(1).Int(1).Bool(c.Chance()).Float(1.0);
});

Conform kRouterBackward("gt::router_backward", [](Case& c) {
  const Dim tokens = c.Extent(0, 5), experts = c.Extent(1, 6), k = c.Extent(1, 3);
  const DType dtype = c.Pick(kLogitTypes);
  c.Tensor(dtype, {c.MustEqual(tokens), c.MustEqual(k)}).Tensor(dtype, {tokens, experts});
  c.Tensor(DType::kInt64, {c.MustEqual(tokens), k}, {.fill = Fill::kIndex, .bound = experts});
  c.Bool(c.Chance()).Bool(c.Chance()).Float(c.Pick({1.0, 2.5}));
});

Conform kExpertOrder("gt::expert_order", [](Case& c) {
  const int64_t experts = c.Random(1, 9);
  c.Tensor(DType::kInt64, c.RandomShape(0, 3), {.fill = Fill::kIndex, .bound = experts});
  c.Int(experts);
});

}  // namespace
}  // namespace gt::conformance::routing_test
