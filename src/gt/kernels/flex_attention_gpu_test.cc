// On a GPU: masks that the flash kernels know give what blocks give, which the same masks take when they are
// written so that nobody recognizes them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/graph_object.h"

namespace gt::flex_attention_gpu_test {
namespace {

using at::Tensor;

constexpr const char* kScore =
    R"(graph @score(%s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %q: input "q" i32[], %k: input "k" i32[], %d: input "d" i32[2, 300]) {
  return result "s" %s
})";
constexpr const char* kScoreBackward =
    R"(graph @back(%g: input "g" f32[], %s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %q: input "q" i32[], %k: input "k" i32[], %d: input "d" i32[2, 300]) {
  return result "g" %g
})";

c10::IValue Function(const std::string& text) { return ToIValue(GraphRef(Parse(text).release())); }
c10::IValue Mask(const std::string& nodes) {
  return Function(
      R"(graph @mask(%b: input "b" i32[], %h: input "h" i32[], %q: input "q" i32[], %k: input "k" i32[], %d: input "d" i32[2, 300]) {
)" + nodes +
      "  return result \"m\" %m\n}");
}

const std::string kCausal = "  %m = aten::ge.Tensor(%q, %k) : bool[]\n";
const std::string kHiddenCausal =
    "  %x = aten::sub.Tensor(%q, %k) : i32[]\n  %m = aten::ge.Scalar(%x, 0) : bool[]\n";
const std::string kLookUps =
    "  %x = aten::index.Tensor(%d, [%b, %q]) : i32[]\n  %y = aten::index.Tensor(%d, [%b, %k]) : "
    "i32[]\n";
const std::string kBoth =
    "  %e = aten::eq.Tensor(%x, %y) : bool[]\n  %c = aten::ge.Tensor(%q, %k) : bool[]\n"
    "  %m = aten::logical_and(%c, %e) : bool[]\n";
const std::string kHiddenBoth =
    "  %z = aten::sub.Tensor(%x, %y) : i32[]\n  %e = aten::eq.Scalar(%z, 0) : bool[]\n"
    "  %c = aten::ge.Tensor(%q, %k) : bool[]\n  %m = aten::logical_and(%c, %e) : bool[]\n";

class FlexOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
  }

  static std::vector<Tensor> Call(const char* op, torch::jit::Stack stack) {
    c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(&stack);
    std::vector<Tensor> results;
    for (const c10::IValue& value : stack) results.push_back(value.toTensor());
    return results;
  }

  struct Inputs {
    Tensor query, key, value, grad, documents;
  };
  static Inputs Random(int64_t query_width, int64_t value_width) {
    at::manual_seed(3);
    const auto options = at::TensorOptions(c10::Device(c10::kCUDA, 0)).dtype(at::kBFloat16);
    const auto draw = [&](int64_t heads, int64_t width) {
      return at::randn({2, 300, heads, width}, options).transpose(1, 2);
    };
    const Tensor starts = at::eq(at::randint(40, {2, 300}, options.dtype(at::kInt)), 0);
    return {draw(4, query_width), draw(2, query_width), draw(2, value_width), draw(4, value_width),
            at::cumsum(starts, 1, at::kInt)};
  }

  static std::vector<Tensor> Run(const Inputs& in, const std::string& nodes) {
    const c10::IValue score = Function(kScore), mask = Mask(nodes);
    const std::vector<Tensor> captures = {in.documents};
    std::vector<Tensor> forward =
        Call("gt::flex_attention", {in.query, in.key, in.value, captures, score, mask, 0.1, true});
    std::vector<Tensor> backward =
        Call("gt::flex_attention_backward",
             {in.grad, in.query, in.key, in.value, forward[0], forward[1], captures, score,
              Function(kScoreBackward), mask, 0.1, true});
    forward.insert(forward.end(), backward.begin(), backward.end());
    return forward;
  }

  static void ExpectEqualWays(const Inputs& in, const std::string& known, const std::string& hidden,
                              bool same_kernel) {
    const std::vector<Tensor> flash = Run(in, known), blocks = Run(in, hidden);
    bool same = true;
    for (size_t i = 0; i < flash.size(); ++i) {
      EXPECT_EQ(flash[i].strides(), blocks[i].strides()) << i;
      const Tensor a = flash[i].to(at::kFloat), b = blocks[i].to(at::kFloat);
      EXPECT_LE((a - b).abs().max().item<double>(), 0.03 * b.abs().max().item<double>()) << i;
      same &= at::equal(a, b);
    }
    EXPECT_EQ(same, same_kernel);
  }
};

TEST_F(FlexOnGpu, FlashKernelsComputeWhatBlocksDo_gpu) {
  for (auto [query_width, value_width] :
       {std::pair(64, 64), std::pair(192, 128), std::pair(20, 12)}) {
    const Inputs in = Random(query_width, value_width);
    ExpectEqualWays(in, kCausal, kHiddenCausal, false);
    ExpectEqualWays(in, kLookUps + kBoth, kLookUps + kHiddenBoth, false);
  }
}

// A document that goes on after another one is nothing that the kernel can be told.
TEST_F(FlexOnGpu, DocumentsInSeveralStretchesStayWithBlocks_gpu) {
  Inputs in = Random(64, 64);
  in.documents = at::remainder(in.documents, 2).to(at::kInt);
  ExpectEqualWays(in, kLookUps + kBoth, kLookUps + kHiddenBoth, true);
}

}  // namespace
}  // namespace gt::flex_attention_gpu_test
