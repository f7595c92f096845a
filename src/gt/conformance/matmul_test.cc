// Cases of ops/matmul.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::matmul_test {
namespace {

constexpr DType kFactorTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                  DType::kComplex64};

Conform kMm("aten::mm", [](Case& c) {
  DType dtype = c.Pick(kFactorTypes);
  Dim inner = c.Extent();
  c.Tensor(dtype, {c.Extent(), inner}).Tensor(dtype, {c.MustEqual(inner), c.Extent()});
});
Conform kBmm("aten::bmm", [](Case& c) {
  DType dtype = c.Pick(kFactorTypes);
  Dim batch = c.Extent(), inner = c.Extent();
  c.Tensor(dtype, {batch, c.Extent(), inner});
  c.Tensor(dtype, {c.MustEqual(batch), c.MustEqual(inner), c.Extent()});
});
Conform kAddmm("aten::addmm", [](Case& c) {
  DType dtype = c.Pick(kFactorTypes);
  Dim rows = c.Extent(), inner = c.Extent(), columns = c.Extent();
  c.Tensor(dtype, c.BroadcastOperand({rows, columns}));
  c.Tensor(dtype, {rows, inner}).Tensor(dtype, {c.MustEqual(inner), columns});
});
Conform kBaddbmm("aten::baddbmm", [](Case& c) {
  DType dtype = c.Pick(kFactorTypes);
  Dim batch = c.Extent(), rows = c.Extent(), inner = c.Extent(), columns = c.Extent();
  c.Tensor(dtype, c.BroadcastOperand({batch, rows, columns}));
  c.Tensor(dtype, {batch, rows, inner}).Tensor(dtype, {batch, c.MustEqual(inner), columns});
});
Conform kAddbmm("aten::addbmm", [](Case& c) {
  DType dtype = c.Pick({DType::kFloat32, DType::kFloat64});
  Dim batch = c.Extent(), rows = c.Extent(), inner = c.Extent(), columns = c.Extent();
  c.Tensor(dtype, c.BroadcastOperand({rows, columns}));
  c.Tensor(dtype, {batch, rows, inner}).Tensor(dtype, {batch, c.MustEqual(inner), columns});
});
Conform kDot("aten::dot", [](Case& c) {
  DType dtype = c.Pick(kFactorTypes);
  Dim inner = c.Extent();
  c.Tensor(dtype, {inner}).Tensor(dtype, {c.MustEqual(inner)});
});
Conform kMv("aten::mv", [](Case& c) {
  DType dtype = c.Pick(kFactorTypes);
  Dim inner = c.Extent();
  c.Tensor(dtype, {c.Extent(), inner}).Tensor(dtype, {c.MustEqual(inner)});
});
Conform kAddmv("aten::addmv", [](Case& c) {
  DType dtype = c.Pick(kFactorTypes);
  // On empty matrices libtorch forgets to broadcast self, with a warning.
  Dim rows = c.Extent(1, 5), inner = c.Extent(1, 5);
  c.Tensor(dtype, c.Chance(0.2) ? Shape{} : Shape{rows});
  c.Tensor(dtype, {rows, inner}).Tensor(dtype, {c.MustEqual(inner)});
});

// The kernel wants rows of 16 bytes; widths are multiples of 8 elements, which are that for every
// dtype here.
Dim Aligned(Case& c) { return c.Extent(1, 3) * Dim(8); }

// A factor that is dense in its last dimension, or in the one before it.
void Factor(Case& c, DType dtype, const Shape& sizes, bool transposed) {
  Shape memory = sizes;
  size_t last = sizes.size() - 1;
  if (transposed) std::swap(memory[last], memory[last - 1]);
  TensorType type{dtype, {}, sizes, ContiguousStrides(memory, c.env())};
  if (transposed) std::swap(type.strides[last], type.strides[last - 1]);
  c.Tensor(type, 0, Product(sizes));
}
// On a GPU groups must be aligned as well: the first has everything.
void Ends(Case& c, const Dim& groups, const Dim& total) {
  c.Tensor(DType::kInt32, {groups},
           {.layout = LayoutChoice::kContiguous,
            .fill = Case::on_cuda() ? Fill::kSame : Fill::kEnds,
            .bound = total});
}
constexpr DType kGroupedTypes[] = {DType::kFloat32, DType::kBFloat16};

// Rows in groups, one matrix for each: the forward pass of experts.
Conform kGroupedRows("aten::_grouped_mm", [](Case& c) {
  DType dtype = c.Pick(kGroupedTypes);
  Dim groups = c.Extent(1, 4), rows = c.Extent(2, 5), inner = Aligned(c);
  bool transposed = c.Chance();
  // Along the last dimension nothing needs to be aligned when the other one is dense.
  Dim columns = transposed ? c.Extent(1, 5) : Aligned(c);
  Factor(c, dtype, {rows, inner}, false);
  Factor(c, dtype, {groups, inner, columns}, transposed);
  Ends(c, groups, rows);
});
// Groups along the inner dimension: gradients of the experts' weights.
Conform kGroupedInner("aten::_grouped_mm", [](Case& c) {
  DType dtype = c.Pick(kGroupedTypes);
  Dim inner = c.Extent(2, 5);
  Factor(c, dtype, {Aligned(c), inner}, true);
  Factor(c, dtype, {inner, Aligned(c)}, false);
  Ends(c, c.Extent(1, 4), inner);
});
Conform kGroupedColumns("aten::_grouped_mm", [](Case& c) {
  DType dtype = c.Pick(kGroupedTypes);
  Dim groups = c.Extent(1, 4), inner = Aligned(c), columns = Aligned(c);
  Factor(c, dtype, {groups, c.Extent(1, 5), inner}, false);
  Factor(c, dtype, {inner, columns}, c.Chance());
  Ends(c, groups, columns);
});
Conform kGroupedBatch("aten::_grouped_mm", [](Case& c) {
  DType dtype = c.Pick(kGroupedTypes);
  Dim groups = c.Extent(1, 4), inner = Aligned(c);
  bool transposed = c.Chance();
  Factor(c, dtype, {groups, c.Extent(1, 5), inner}, false);
  Factor(c, dtype, {c.MustEqual(groups), inner, transposed ? c.Extent(1, 5) : Aligned(c)},
         transposed);
});

}  // namespace
}  // namespace gt::conformance::matmul_test
