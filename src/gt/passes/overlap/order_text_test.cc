// Orders that travel between ranks.
#include "gt/passes/overlap/order_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/passes/overlap/overlap_test_util.h"

namespace gt::order_text_test {
namespace {

using testing::RandomTimedStep;

ErrorCode CodeOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

// A parameter of which a rank has `rows` rows of two, gathered, used, and its gradient reduced: ranks
// with fewer rows have a node more before the gather and one more after the reduction.
std::unique_ptr<Graph> Step(int64_t rows) {
  const bool padded = rows < 2;
  const std::string own = std::to_string(rows);
  std::string text = "graph @step(%w: param \"w\" f32[" + own +
                     ", 4], %x: input \"x\" bf16[8, 4]) {\n"
                     "  %cast = aten::_to_copy(%w, dtype = bf16) : bf16[" +
                     own + ", 4]\n";
  if (padded) {
    text += "  %pad = aten::constant_pad_nd(%cast, pad = [0, 0, 0, 1]) : bf16[2, 4]\n";
  }
  text += "  %g = _c10d_functional::all_gather_into_tensor(" +
          std::string(padded ? "%pad" : "%cast") +
          ", group_size = 4, group_name = \"fsdp\") : bf16[8, 4]\n"
          "  %a = aten::neg(%x) : bf16[8, 4]\n"
          "  %gw = _c10d_functional::wait_tensor(%g) : bf16[8, 4]\n"
          "  %y = aten::mul.Tensor(%a, %gw) : bf16[8, 4]\n"
          "  %d = aten::_to_copy(%y, dtype = f32) : f32[8, 4]\n"
          "  %r = _c10d_functional::reduce_scatter_tensor(%d, reduce_op = \"sum\", group_size = 4, "
          "group_name = \"fsdp\") : f32[2, 4]\n"
          "  %z = aten::neg(%y) : bf16[8, 4]\n"
          "  %rw = _c10d_functional::wait_tensor(%r) : f32[2, 4]\n";
  if (padded) {
    text +=
        "  %n = aten::slice.Tensor(%rw, dim = 0, start = 0, end = 1) : f32[1, 4]\n"
        "  %c = aten::clone(%n) : f32[1, 4]\n  return gradient \"w\" %c, result \"z\" %z\n}\n";
  } else {
    text += "  %c = aten::clone(%rw) : f32[2, 4]\n  return gradient \"w\" %c, result \"z\" %z\n}\n";
  }
  return Parse(text);
}

std::string Names(const Dependencies& dependencies, const std::vector<int32_t>& order) {
  std::string names;
  for (int32_t number : order) {
    names += (names.empty() ? "" : " ") + dependencies.node(number)->result()->name();
  }
  return names;
}

// Kernels, collectives and waits come back in the order they had, and everything comes back legal.
TEST(OrderText, ComesBackAsItWas) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    auto step = RandomTimedStep(seed, 4, 2, 12, false);
    Dependencies ties(step->graph());
    // Any order that the dependencies allow: nodes that are ready, drawn at random.
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<int32_t> missing(static_cast<size_t>(ties.count())), ready, order;
    for (int32_t i = 0; i < ties.count(); ++i) {
      missing[static_cast<size_t>(i)] = static_cast<int32_t>(ties.NeededBy(i).size());
      if (missing[static_cast<size_t>(i)] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      std::swap(ready[random() % ready.size()], ready.back());
      order.push_back(ready.back());
      ready.pop_back();
      for (int32_t user : ties.UsersOf(order.back())) {
        if (--missing[static_cast<size_t>(user)] == 0) ready.push_back(user);
      }
    }
    const CommonOrder common(step->graph(), ties);
    const std::vector<int32_t> back = common.FromText(common.ToText(order));
    EXPECT_EQ(back, common.Placed(order)) << seed;
    EXPECT_EQ(common.ToText(back), common.ToText(order)) << seed;
    auto copy = step->graph().Clone();
    Dependencies of_copy(*copy);
    ApplyOrder(*copy, of_copy, back);  // fails if it is not legal
  }
}

// Runs of neighbours are written as such, and an order is a fraction of a line for each layer.
TEST(OrderText, IsShort) {
  auto step = RandomTimedStep(3, 6, 2, 14, false);
  Dependencies ties(step->graph());
  std::vector<int32_t> order(static_cast<size_t>(ties.count()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.end() - 1, order.end());
  const std::string text = CommonOrder(step->graph(), ties).ToText(order);
  const std::vector<std::string> lines = Split(text, '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_LE(Split(lines[1], ' ').size(), 4u) << lines[1];
}

// A rank with a shorter shard has nodes of its own, which find their place around the gather and the
// reduction.
TEST(OrderText, RanksPlaceTheirOwnNodes) {
  auto full = Step(2), shorter = Step(1);
  Dependencies ties(*full), other(*shorter);
  std::vector<int32_t> order(static_cast<size_t>(ties.count()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[6], order[7]);  // %z before the reduction
  const std::string text = CommonOrder(*full, ties).ToText(order);
  EXPECT_EQ(Names(ties, CommonOrder(*full, ties).FromText(text)), "cast g a gw y d z r rw c");
  EXPECT_EQ(Names(other, CommonOrder(*shorter, other).FromText(text)),
            "cast pad g a gw y d z r rw n c");
}

// One rank computes what another does not (a mask for its stretch of the sequence). Its own nodes go
// where they are needed, and collectives keep the order of the first rank.
TEST(OrderText, RanksMayComputeDifferently) {
  auto graph = [](bool masked) {
    return Parse(
        std::string("graph @step(%x: input \"x\" f32[4]) {\n"
                    "  %a = aten::neg(%x) : f32[4] {module = \"a\"}\n") +
        (masked ? "  %m = aten::exp(%a) : f32[4] {module = \"a\"}\n"
                  "  %b = aten::neg(%m) : f32[4] {module = \"b\"}\n"
                : "  %b = aten::neg(%a) : f32[4] {module = \"b\"}\n") +
        "  %r = _c10d_functional::all_reduce(%a, reduce_op = \"sum\", group_name = \"g\") : "
        "f32[4]\n"
        "  %w = _c10d_functional::wait_tensor(%r) : f32[4]\n"
        "  %s = _c10d_functional::all_reduce(%b, reduce_op = \"sum\", group_name = \"g\") : "
        "f32[4]\n"
        "  %v = _c10d_functional::wait_tensor(%s) : f32[4]\n"
        "  return result \"w\" %w, result \"v\" %v\n}\n");
  };
  auto first = graph(false), second = graph(true);
  Dependencies ties(*first), other(*second);
  // a r b s w v
  const std::string text = CommonOrder(*first, ties).ToText(std::vector<int32_t>{0, 2, 1, 4, 3, 5});
  EXPECT_EQ(Names(other, CommonOrder(*second, other).FromText(text)), "a r m b s w v");
  // The other way round, a node that is not there is left out.
  const std::string back =
      CommonOrder(*second, other).ToText(std::vector<int32_t>{0, 1, 3, 2, 5, 4, 6});
  EXPECT_EQ(Names(ties, CommonOrder(*first, ties).FromText(back)), "a r b s w v");
}

// A node that one rank has more than another shifts the numbers of those of its kind. What would come before a
// wait that it needs is placed where it can be.
TEST(OrderText, RanksMayHaveMoreOfAKind) {
  auto graph = [](bool more) {
    return Parse(std::string("graph @step(%x: input \"x\" f32[4]) {\n") +
                 (more ? "  %e = aten::exp(%x) : f32[4] {module = \"a\"}\n" : "") +
                 "  %r = _c10d_functional::all_reduce(%x, reduce_op = \"sum\", group_name = "
                 "\"g\") : f32[4]\n"
                 "  %w = _c10d_functional::wait_tensor(%r) : f32[4]\n"
                 "  %y = aten::exp(%w) : f32[4] {module = \"a\"}\n"
                 "  %z = aten::neg(%y) : f32[4]\n" +
                 (more ? "  return result \"e\" %e, result \"z\" %z\n}\n"
                       : "  return result \"z\" %z\n}\n"));
  };
  auto first = graph(true), second = graph(false);
  Dependencies ties(*first), other(*second);
  const std::string text = CommonOrder(*first, ties).ToText(std::vector<int32_t>{1, 0, 2, 3, 4});
  EXPECT_EQ(Names(other, CommonOrder(*second, other).FromText(text)), "r w y z");
  const std::string back = CommonOrder(*second, other).ToText(std::vector<int32_t>{0, 1, 2, 3});
  EXPECT_EQ(Names(ties, CommonOrder(*first, ties).FromText(back)), "r w e y z");
}

TEST(OrderText, OfAnotherStepIsRefused) {
  auto step = RandomTimedStep(1, 4, 2, 12, false), stranger = RandomTimedStep(2, 6, 2, 12, false);
  Dependencies ties(step->graph()), strange(stranger->graph());
  std::vector<int32_t> order(static_cast<size_t>(ties.count()));
  std::iota(order.begin(), order.end(), 0);
  const CommonOrder common(step->graph(), ties);
  const std::string text = common.ToText(order);
  EXPECT_EQ(CodeOf([&] { CommonOrder(stranger->graph(), strange).FromText(text); }),
            ErrorCode::kRanksDisagree);
  EXPECT_EQ(CodeOf([&] { common.FromText(""); }), ErrorCode::kRanksDisagree);
  const std::vector<std::string> lines = Split(text, '\n');
  for (const char* bad : {"0-3 2", "x", "0-99999999", "0", "-1", "5-"}) {
    EXPECT_EQ(CodeOf([&] { common.FromText(lines[0] + "\n" + bad + "\n" + lines[2]); }),
              ErrorCode::kIllegalOrder)
        << bad;
  }
}

}  // namespace
}  // namespace gt::order_text_test
