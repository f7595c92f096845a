#include "gt/torch_bridge/tensor_fill.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

#include "gt/base/workers.h"
#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

// Pieces that give `tensor`, a part of a larger one, the numbers of `values`.
std::vector<FillPiece> PiecesOf(const at::Tensor& tensor, const TensorBox& box,
                                const at::Tensor& values, int64_t most) {
  std::vector<FillPiece> pieces;
  for (const TensorBox& piece : SplitBox(box, most)) {
    pieces.push_back({ViewOfBox(tensor, box, piece), [=](const at::Tensor& out) {
                        EXPECT_TRUE(out.is_contiguous());
                        EXPECT_TRUE(out.is_cpu());
                        EXPECT_EQ(out.scalar_type(), tensor.scalar_type());
                        at::Tensor target = out;
                        target.copy_(
                            ViewOfBox(values, TensorBox::All(values.sizes().vec()), piece));
                      }});
  }
  return pieces;
}

void ExpectFilled(at::Device device) {
  at::Tensor values = at::rand({5, 31, 7});
  TensorBox box = {{5, 31, 7}, {1, 4, 0}, {4, 20, 7}};
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    at::Tensor tensor = at::zeros(box.sizes, at::device(device).dtype(dtype)),
               scalar = at::zeros({}, tensor.options());
    std::vector<FillPiece> pieces = PiecesOf(tensor, box, values, 50);
    pieces.push_back({scalar, [](const at::Tensor& out) { out.fill_(3); }});
    pieces.push_back({tensor.narrow(0, 0, 0), [](const at::Tensor&) { FAIL() << "it is empty"; }});
    FillTensors(std::move(pieces));
    at::Tensor expected = ViewOfBox(values, TensorBox::All({5, 31, 7}), box).to(dtype);
    EXPECT_TRUE(expected.equal(tensor.cpu()));
    EXPECT_EQ(scalar.item<int64_t>(), 3);
  }
}

TEST(TensorFill, EveryPieceGetsItsValues) {
  for (int64_t threads : {1, 4}) {
    LimitWorkers(threads);
    ExpectFilled(at::kCPU);
  }
  LimitWorkers(0);
}

TEST(TensorFill, EveryPieceGetsItsValues_gpu) {
  for (int64_t threads : {1, 4}) {
    LimitWorkers(threads);
    ExpectFilled(ChooseDevice(DeviceChoice::kCuda));
  }
  LimitWorkers(0);
}

// Files are unmapped and copies freed as soon as they are no longer needed, not at the end.
TEST(TensorFill, APieceThatIsDoneHoldsOnToNothing) {
  LimitWorkers(1);
  at::Tensor tensor = at::zeros({2});
  auto held = std::make_shared<int>(0);
  std::weak_ptr<int> watched = held;
  std::vector<FillPiece> pieces;
  pieces.push_back({tensor.narrow(0, 0, 1), [held](const at::Tensor& out) { out.fill_(1); }});
  pieces.push_back({tensor.narrow(0, 1, 1), [watched](const at::Tensor& out) {
                      EXPECT_TRUE(watched.expired());
                      out.fill_(2);
                    }});
  held.reset();
  FillTensors(std::move(pieces));
  LimitWorkers(0);
  EXPECT_TRUE(tensor.equal(at::tensor({1.0f, 2.0f})));
}

TEST(TensorFill, FailuresReachTheCaller) {
  at::Tensor tensor = at::zeros({100});
  std::vector<FillPiece> pieces;
  for (int64_t i = 0; i < 100; ++i) {
    pieces.push_back({tensor.narrow(0, i, 1), [i](const at::Tensor&) {
                        if (i == 50) throw std::runtime_error("piece 50");
                      }});
  }
  EXPECT_THROW(FillTensors(std::move(pieces)), std::runtime_error);
}

}  // namespace
}  // namespace gt
