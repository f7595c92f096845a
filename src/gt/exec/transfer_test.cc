#include "gt/exec/transfer.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/exec/host_pool.h"
#include "gt/exec/program.h"
#include "gt/exec/reference.h"
#include "gt/ir/text.h"
#include "gt/torch_bridge/convert.h"

namespace gt::transfer_test {
namespace {

template <typename Signature>
auto OperatorNamed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

at::Tensor Offload(const at::Tensor& x) {
  return OperatorNamed<at::Tensor(const at::Tensor&)>("gt::offload").call(x);
}
at::Tensor Reload(const at::Tensor& x, at::Device device) {
  return OperatorNamed<at::Tensor(const at::Tensor&, at::Device)>("gt::reload").call(x, device);
}
at::Tensor Wait(const at::Tensor& moved, const at::Tensor& source) {
  return OperatorNamed<at::Tensor(const at::Tensor&, const at::Tensor&)>("gt::wait_transfer")
      .call(moved, source);
}

TEST(Transfer, BringsBackValuesAndStrides) {
  at::Tensor x = at::rand({3, 5, 4}).transpose(0, 2);
  at::Tensor host = Wait(Offload(x), x);
  EXPECT_NE(host.const_data_ptr(), x.const_data_ptr());
  EXPECT_EQ(host.strides(), x.strides());
  at::Tensor back = Wait(Reload(host, at::kCPU), host);
  EXPECT_NE(back.const_data_ptr(), host.const_data_ptr());
  EXPECT_EQ(back.strides(), x.strides());
  EXPECT_TRUE(at::equal(back, x));
}

TEST(Transfer, PacksWhatIsNotDense) {
  at::Tensor wide = at::rand({6, 8}), x = wide.narrow(1, 2, 3);
  at::Tensor host = Offload(x);
  EXPECT_EQ(host.strides(), (at::IntArrayRef{3, 1}));
  EXPECT_TRUE(at::equal(Reload(host, at::kCPU), x));
  at::Tensor expanded = at::rand({1, 4}).expand({3, 4});
  EXPECT_TRUE(at::equal(Reload(Offload(expanded), at::kCPU), expanded));
}

TEST(Transfer, CountsBytes) {
  TransferMeter meter(at::kCPU);
  at::Tensor x = at::rand({256});
  at::Tensor host = Offload(x);
  EXPECT_EQ(meter.stats().bytes_out, 1024);
  EXPECT_EQ(meter.stats().bytes_back, 0);
  Reload(host, at::kCPU);
  EXPECT_EQ(meter.stats().bytes_back, 1024);
}

// Copies that the host reads go by another lane than activations do: same values, counted as well.
TEST(Transfer, CountsHaveTheirOwnOperator) {
  const auto graph = Parse(R"(
    graph @step(%x: input "x" f32[4], %n: input "n" i64[2]) {
      symbols { u0: data, hint 1, range [0, 9]; u1: data, hint 1, range [0, 9] }
      %away = gt::offload(%x) : f32[4]
      %counts = gt::offload(%n) : i64[2]
      gt::read_ints(%counts) binds [u0, u1]
      %z = aten::zeros(size = [u0, u1], dtype = f32) : f32[u0, u1]
      return result "away" %away, result "z" %z
    })");
  const auto kernel = [&graph](const char* name) {
    return FullName(KernelOf(*graph->FindValue(name)->producer()).operator_name());
  };
  EXPECT_EQ(kernel("away"), "gt::offload");
  EXPECT_EQ(kernel("counts"), "gt::offload_counts");
  EXPECT_EQ(kernel("z"), "aten::zeros");

  const std::vector<at::Tensor> inputs = {at::rand({4}), at::tensor({3, 2}, at::kLong)};
  TransferMeter meter(at::kCPU);
  EXPECT_EQ(RunReference(*graph, inputs)[1].sizes(), (at::IntArrayRef{3, 2}));
  EXPECT_EQ(meter.stats().bytes_out, 32);
  const std::vector<at::Tensor> outputs = Program(*graph).Run(inputs);
  EXPECT_TRUE(at::equal(outputs[0], inputs[0]));
  EXPECT_EQ(outputs[1].sizes(), (at::IntArrayRef{3, 2}));
  EXPECT_EQ(meter.stats().bytes_out, 64);
}

TEST(HostPool, BuffersAreUsedAgain) {
  HostPool pool;
  std::unique_ptr<HostBuffer> first = pool.Take(3'000'000, false);
  std::byte* data = first->data;
  EXPECT_EQ(pool.use().in_use, 4 << 20);
  pool.Give(std::move(first));
  EXPECT_EQ(pool.use().in_use, 0);
  std::unique_ptr<HostBuffer> again = pool.Take(3'500'000, false);
  EXPECT_EQ(again->data, data);
  EXPECT_EQ(pool.use().kept, 4 << 20);
  // Much smaller: the large buffer is not wasted on it.
  pool.Give(std::move(again));
  std::unique_ptr<HostBuffer> small = pool.Take(1000, false);
  EXPECT_NE(small->data, data);
  EXPECT_EQ(pool.use().kept, (4 << 20) + 4096);
  EXPECT_EQ(pool.use().peak, 4 << 20);
  pool.Trim();
  EXPECT_EQ(pool.use().kept, 4096);
}

TEST(HostPool, AFullMachineIsAnErrorAndFreeBuffersGoFirst) {
  HostPool pool;
  pool.Limit(8 << 20);
  pool.Give(pool.Take(6 << 20, false));
  // The free buffer is too large to be used for this, and makes way.
  std::unique_ptr<HostBuffer> held = pool.Take(3 << 20, false);
  EXPECT_EQ(pool.use().kept, 4 << 20);  // whole huge pages
  try {
    pool.Take(5 << 20, false);
    FAIL() << "took more than there is";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kHostMemoryExhausted);
    EXPECT_NE(error.message().find("5.0 MiB more"), std::string::npos) << error.message();
  }
  EXPECT_EQ(pool.Take(4 << 20, false)->bytes, size_t{4} << 20);
}

}  // namespace
}  // namespace gt::transfer_test
