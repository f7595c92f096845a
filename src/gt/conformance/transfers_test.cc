// Cases of ops/transfers.cc. What they do is tested in exec/transfer_test.cc and
// train/memory_test.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::transfers_test {
namespace {

void AnyTensor(Case& c) { c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 3)); }

Conform kOffload("gt::offload", [](Case& c) { AnyTensor(c); });
Conform kReload("gt::reload", [](Case& c) {
  AnyTensor(c);
  c.Arg(Device{});
});
Conform kWait("gt::wait_transfer", [](Case& c) {
  AnyTensor(c);
  AnyTensor(c);
  c.IgnoreAliasing();  // it returns its argument, but is no view: it waits
});

Exempt kGenerators({"gt::generator_state", "gt::set_generator_state"},
                   "operators of our own; not every tensor of the right type is a state");

}  // namespace
}  // namespace gt::conformance::transfers_test
