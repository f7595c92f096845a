// Cases of ops/data_reads.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::data_reads_test {
namespace {

Conform kLocalScalar("aten::_local_scalar_dense",
                     [](Case& c) {
                       c.Tensor(c.Pick(kIntTypes),
                                Shape(static_cast<size_t>(c.Random(0, 2)), Dim(1)));
                     },
                     {.data_variant = false});  // nothing about one element is symbolic

Exempt kFused({"gt::fused"},
              "an operator of our own; see ops/fused_test.cc and exec/fused_test.cc");
Exempt kReadInts({"gt::read_ints"}, "an operator of our own; see ops/data_reads_test.cc");

}  // namespace
}  // namespace gt::conformance::data_reads_test
