// What rules promise beyond libtorch's numbers, which conformance/ checks: few guards, the right
// ones, and clear errors.
#include "gt/ops/rules.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"

namespace gt::rules_test {
namespace {

class RulesTest : public ::testing::Test {
 protected:
  Dim Input(int64_t hint, int64_t low = 2) { return Dim::Symbol(env_.AddInputSymbol(hint, low)); }
  Dim Data(int64_t hint) { return Dim::Symbol(env_.AddDataSymbol(hint)); }
  TensorType Make(Shape sizes, DType dtype = DType::kFloat32, Device device = {}) {
    return ContiguousType(dtype, device, std::move(sizes), env_);
  }
  static TensorType Permuted(TensorType type, std::vector<size_t> order) {
    TensorType result = type;
    for (size_t i = 0; i < order.size(); ++i) {
      result.sizes[i] = type.sizes[order[i]];
      result.strides[i] = type.strides[order[i]];
    }
    return result;
  }

  // Runs an operator's rule. Operands take the places of the first arguments; the rest are as
  // given, then defaults.
  std::vector<TensorType> Infer(std::string_view name, std::vector<TensorType> operands,
                                std::vector<Argument> rest = {}) {
    const Operator* op = FindOperator(name);
    GT_CHECK(op != nullptr, "no operator {}", name);
    std::vector<Argument> args;
    std::vector<const TensorType*> pointers;
    for (TensorType& operand : operands) {
      args.push_back(OperandRef{static_cast<int32_t>(args.size())});
      pointers.push_back(&operand);
    }
    for (Argument& argument : rest) args.push_back(std::move(argument));
    while (args.size() < op->schema.args.size()) {
      args.push_back(op->schema.args[args.size()].default_value.value_or(std::monostate()));
    }
    RuleContext context(*op, args, pointers, env_);
    op->rule(context);
    return std::move(context.results());
  }

  std::string Guards() {
    std::string text;
    for (const Guard& guard : env_.guards()) {
      text += (text.empty() ? "" : "; ") + guard.predicate.ToString(env_.Namer());
    }
    return text;
  }

  ShapeEnv env_;
};

// The shapes of a transformer block: no guard is needed, so that one capture serves every batch and
// sequence length.
TEST_F(RulesTest, PointwiseOnBatchAndSequenceLeavesNoGuard) {
  Dim batch = Input(8), length = Input(2048);
  TensorType x = Make({batch, length, 256});
  TensorType heads = Permuted(Make({batch, length, 16, 64}), {0, 2, 1, 3});
  EXPECT_EQ(Infer("aten::add.Tensor", {x, x})[0], x);
  EXPECT_EQ(Infer("aten::mul.Tensor", {x, Make({256})})[0], x);
  EXPECT_EQ(Infer("aten::mul.Tensor", {x}, {2.0})[0], x);
  EXPECT_EQ(Infer("aten::neg", {heads})[0], heads);
  EXPECT_EQ(Infer("aten::mul.Tensor", {heads, Make({1, 1, length, 64})})[0], heads);
  EXPECT_EQ(Infer("aten::clone", {heads})[0], heads);
  EXPECT_EQ(Guards(), "");
}

TEST_F(RulesTest, PointwiseOnTokenCountsLeavesNoGuardAndAsksNothing) {
  Dim tokens = Data(100);
  TensorType x = Make({tokens, 256});
  EXPECT_EQ(Infer("aten::add.Tensor", {x, x})[0], x);
  EXPECT_EQ(Infer("aten::mul.Tensor", {x, Make({tokens, 1})})[0], x);
  EXPECT_EQ(Infer("aten::mul.Tensor", {Make({256}), x})[0], x);
  EXPECT_EQ(Infer("aten::sum.dim_IntList", {x}, {Shape{0}})[0], Make({256}));
  EXPECT_EQ(Infer("aten::silu", {Permuted(x, {1, 0})})[0], Permuted(x, {1, 0}));
  EXPECT_EQ(Guards(), "");
}

// Two sizes that only happen to be equal make a graph that is wrong elsewhere unless that is
// written down.
TEST_F(RulesTest, SizesThatMustBeEqualLeaveOneGuard) {
  Dim a = Input(8), b = Input(8);
  EXPECT_EQ(Infer("aten::add.Tensor", {Make({a, 4}), Make({b, 4})})[0].rank(), 2);
  EXPECT_EQ(Guards(), "s0 == s1");
}

TEST_F(RulesTest, SizesThatMayBeOneLeaveTheQuestionAsAGuard) {
  Dim a = Input(8, 0);
  EXPECT_EQ(Infer("aten::add.Tensor", {Make({a, 4}), Make({1, 4})})[0].sizes, (Shape{a, 4}));
  EXPECT_EQ(Guards(), "s0 != 1");
}

// A causal mask kept as a buffer and sliced to the sequence: being dense at full length must not
// pin the length to it.
TEST_F(RulesTest, SlicesThatAreDenseAtTheHintDoNotPinTheSize) {
  Dim length = Input(2048);
  TensorType mask = Make({length, length}, DType::kBool);
  mask.strides[0] = 2048;
  EXPECT_EQ(Infer("aten::logical_not", {mask})[0].strides, (Shape{length, 1}));
  EXPECT_EQ(Infer("aten::clone", {mask})[0].strides, (Shape{length, 1}));
  EXPECT_EQ(Guards(), "");
}

TEST_F(RulesTest, OrderOfStridesIsSettledByOnePlainGuard) {
  Dim a = Input(8, 1), b = Input(16, 1);
  TensorType x = Permuted(Make({a, b, 4}), {1, 0, 2});
  TensorType doubled = Infer("aten::mul.Tensor", {x}, {2.0})[0];
  EXPECT_EQ(doubled.strides, x.strides);
  EXPECT_EQ(Guards(), "1 < s1");
}

// On the CPU TensorIterator converts operands before it looks at layouts, which makes them dense;
// on CUDA it does not.
TEST_F(RulesTest, ConversionShowsInTheLayoutOnTheCpuOnly) {
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    Device device{kind, 0};
    TensorType bytes = Make({1, 5}, DType::kUInt8, device);
    bytes.strides = {1, 0};
    TensorType halves = Make({1, 5}, DType::kFloat16, device);
    halves.strides = {1, 1};
    TensorType sum = Infer("aten::add.Tensor", {bytes, halves})[0];
    EXPECT_EQ(sum.device, device);
    EXPECT_EQ(sum.dtype, DType::kFloat16);
    EXPECT_EQ(sum.strides, kind == DeviceKind::kCpu ? (Shape{5, 1}) : (Shape{1, 1}));
  }
}

TEST_F(RulesTest, NumbersPromoteByCategoryOnly) {
  EXPECT_EQ(Infer("aten::mul.Tensor", {Make({2}, DType::kBFloat16)}, {2.0})[0].dtype,
            DType::kBFloat16);
  EXPECT_EQ(Infer("aten::mul.Tensor", {Make({2}, DType::kInt32)}, {Dim(2)})[0].dtype,
            DType::kInt32);
  EXPECT_EQ(Infer("aten::mul.Tensor", {Make({2}, DType::kInt32)}, {2.0})[0].dtype, DType::kFloat32);
  EXPECT_EQ(
      Infer("aten::mul.Tensor", {Make({2}, DType::kBFloat16), Make({}, DType::kFloat64)})[0].dtype,
      DType::kBFloat16);
  EXPECT_EQ(
      Infer("aten::mul.Tensor", {Make({2}, DType::kBFloat16), Make({2}, DType::kFloat16)})[0].dtype,
      DType::kFloat32);
}

TEST_F(RulesTest, RejectionsNameOperatorAndReason) {
  try {
    Infer("aten::add.Tensor", {Make({3, 4}), Make({2, 4})});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadOperands);
    EXPECT_EQ(error.message(), "aten::add.Tensor: sizes 3 and 2 do not broadcast");
  }
  EXPECT_THROW(Infer("aten::sum.dim_IntList", {Make({3})}, {Shape{1}}), Error);
  EXPECT_THROW(Infer("aten::mean", {Make({3}, DType::kInt64)}), Error);
  EXPECT_THROW(Infer("aten::arange", {}, {Dim(-1)}), Error);
  EXPECT_THROW(Infer("aten::topk", {Make({3})}, {Dim(4)}), Error);
}

// A branch on a size that only the batch knows is an error that says so.
TEST_F(RulesTest, BroadcastingTokenCountsThatMayDifferIsAnError) {
  TensorType x = Make({Data(5), 4}), y = Make({Data(5), 4});
  try {
    Infer("aten::add.Tensor", {x, y});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataDependentBranch);
  }
}

TEST_F(RulesTest, DeclaredFactsMakeTokenCountsEqual) {
  Dim sent = Data(5), a = Data(2), b = Data(3);
  env_.AddFact(a + b, sent);
  EXPECT_EQ(Infer("aten::add.Tensor", {Make({sent, 4}), Make({a + b, 4})})[0].rank(), 2);
  EXPECT_EQ(Guards(), "");
}

TEST_F(RulesTest, SizesOfFactoriesStayExpressions) {
  Dim length = Input(7);
  EXPECT_EQ(Infer("aten::arange", {}, {length})[0].sizes, (Shape{length}));
  EXPECT_EQ(Infer("aten::arange.start_step", {}, {Dim(0), length, Dim(2)})[0].sizes,
            (Shape{CeilDiv(length, 2)}));
  EXPECT_EQ(Infer("aten::zeros", {}, {Shape{length, length * Dim(2)}})[0].sizes,
            (Shape{length, length * Dim(2)}));
  EXPECT_EQ(Guards(), "");
}

TEST_F(RulesTest, FlopsCountWhatKernelsCompute) {
  TensorType x = Make({Input(8), 16});
  auto flops = [&](std::string_view name, std::vector<const TensorType*> operands,
                   std::vector<Argument> args, const TensorType& result) {
    const TensorType* results[] = {&result};
    return FindOperator(name)->flops(CostContext{args, operands, results});
  };
  EXPECT_EQ(flops("aten::_softmax", {&x}, {OperandRef{0}, Dim(-1), false}, x), x.numel() * Dim(5));
  EXPECT_EQ(flops("aten::sum", {&x}, {OperandRef{0}, std::monostate()}, Make({})), x.numel());
  EXPECT_EQ(flops("aten::add.Tensor", {&x, &x}, {OperandRef{0}, OperandRef{1}, Dim(2)}, x),
            x.numel() * Dim(2));
  EXPECT_EQ(flops("aten::clone", {&x}, {OperandRef{0}, std::monostate()}, x), Dim(0));
}

}  // namespace
}  // namespace gt::rules_test
