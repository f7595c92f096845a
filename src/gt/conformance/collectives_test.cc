// Cases of ops/collectives.cc, run in a process group that stands for four ranks and moves no data.
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gt/conformance/harness.h"
#include "gt/dist/idle_backend.h"

namespace gt::conformance::collectives_test {
namespace {

constexpr int64_t kRanks = 4;

const std::string& Group() {
  static const std::string* name = [] {
    auto backend = c10::make_intrusive<IdleBackend>(0, static_cast<int>(kRanks));
    auto group = c10::make_intrusive<c10d::ProcessGroup>(0, static_cast<int>(kRanks));
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    group->setGroupName("conformance");
    c10d::register_process_group("conformance", group);
    // The registry holds weak references.
    static auto* kept = new c10::intrusive_ptr<c10d::ProcessGroup>(group);
    (void)kept;
    return new std::string("conformance");
  }();
  return *name;
}

// These send memory as it is; other layouts are rejected on both sides.
TensorOptions Sent(Case& c) {
  return {.layout = c.Chance(0.8) ? LayoutChoice::kContiguous : LayoutChoice::kRegular};
}
Shape Rows(Case& c) {
  Shape sizes = c.RandomShape(1, 3);
  sizes[0] *= kRanks;
  return sizes;
}

Conform kAllGather("_c10d_functional::all_gather_into_tensor", [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 3), Sent(c)).Int(kRanks).Arg(Group());
});
Conform kAllGathers("_c10d_functional::all_gather_into_tensor_coalesced", [](Case& c) {
  c.TensorList([](Case& list) {
    int64_t count = list.Random(1, 3);
    for (int64_t i = 0; i < count; ++i) {
      list.Tensor(DType::kFloat32, list.RandomShape(1, 3), {.layout = LayoutChoice::kContiguous});
    }
  });
  c.Int(kRanks).Arg(Group());
});
Conform kReduceScatter("_c10d_functional::reduce_scatter_tensor", [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), Rows(c), Sent(c)).Arg(std::string("sum")).Int(kRanks).Arg(Group());
});
Conform kReduceScatters("_c10d_functional::reduce_scatter_tensor_coalesced", [](Case& c) {
  c.TensorList([](Case& list) {
    int64_t count = list.Random(1, 3);
    for (int64_t i = 0; i < count; ++i) {
      list.Tensor(DType::kFloat32, Rows(list), {.layout = LayoutChoice::kContiguous});
    }
  });
  c.Arg(std::string("sum")).Int(kRanks).Arg(Group());
});
Conform kAllReduce("_c10d_functional::all_reduce", [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 3)).Arg(std::string("sum")).Arg(Group());
});
Conform kAllReduces("_c10d_functional::all_reduce_coalesced", [](Case& c) {
  c.TensorList([](Case& list) {
    int64_t count = list.Random(1, 3);
    for (int64_t i = 0; i < count; ++i) list.Tensor(DType::kFloat32, list.RandomShape(0, 3));
  });
  c.Arg(std::string("sum")).Arg(Group());
});
Conform kAllToAll("_c10d_functional::all_to_all_single", [](Case& c) {
  Shape sizes = c.RandomShape(1, 3), received, sent;
  Dim rows = 0;
  for (int64_t i = 0; i < kRanks; ++i) {
    received.push_back(c.Extent());
    sent.push_back(c.Extent());
    rows += sent.back();
  }
  sizes[0] = rows;
  c.Tensor(c.Pick(kNumberTypes), sizes, Sent(c)).Ints(received).Ints(sent).Arg(Group());
});
Conform kBroadcast("_c10d_functional::broadcast", [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 3)).Int(0).Arg(Group());
});
Conform kWait("_c10d_functional::wait_tensor", [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 3));
  c.IgnoreAliasing();  // it returns its argument, but is no view: it waits
});

}  // namespace
}  // namespace gt::conformance::collectives_test
