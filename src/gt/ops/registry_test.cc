#include "gt/ops/registry.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "gt/base/error.h"
#include "gt/ops/operators_page.h"

namespace gt::registry_test {
namespace {

TEST(Registry, FindsByTextAndByName) {
  const Operator* add = FindOperator("aten::add.Tensor");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(FindOperator(Name("aten::add.Tensor")), add);
  EXPECT_EQ(add->schema.args.size(), 3u);
  EXPECT_EQ(FindOperator("aten::add"), nullptr);
  EXPECT_EQ(FindOperator("aten::no_such_operator"), nullptr);
  EXPECT_EQ(FindOperator(""), nullptr);
}

TEST(Registry, ListsEveryOperatorOnce) {
  for (const Operator* op : AllOperators()) EXPECT_EQ(FindOperator(op->name), op);
}

constexpr OperatorFacts kPlain = {.work = Work::kPointwise, .order = DimOrder::kKept};
constexpr OperatorFacts kShown = {
    .work = Work::kView, .order = DimOrder::kKept, .view = ViewKind::kGeometry};

TEST(Registry, ViewsFollowFromTheSchema) {
  OperatorTable table;
  EXPECT_FALSE(table.Add("t::plain(Tensor self) -> Tensor", nullptr, kPlain).is_view());
  const Operator& view =
      table.Add("t::view(Tensor other, Tensor(a) self, int n) -> Tensor(a)", nullptr, kShown);
  EXPECT_TRUE(view.is_view());
  EXPECT_EQ(view.view_arg(), 1);
  EXPECT_EQ(view.aliasing, Aliasing::kAlways);
}

TEST(Registry, ViewsWhoseSchemaSaysOtherwiseAreRejected) {
  OperatorTable table;
  EXPECT_THROW(table.Add("t::a(Tensor(a) self) -> Tensor(a)", nullptr, kPlain), Error);
  EXPECT_THROW(table.Add("t::b(Tensor self) -> Tensor", nullptr, kShown), Error);
}

TEST(Registry, RandomAndCheckingOperatorsAreMarked) {
  EXPECT_TRUE(FindOperator("aten::native_dropout")->random);
  EXPECT_FALSE(FindOperator("aten::native_dropout_backward")->random);
  EXPECT_TRUE(FindOperator("aten::_assert_async.msg")->side_effect);
}

// No default would be right: a new operator says what it does.
TEST(OperatorFacts, EveryOperatorDeclaresWorkAndOrder) {
  for (const Operator* op : AllOperators()) {
    EXPECT_NE(op->work, Work::kUndecided) << op->name.str();
    EXPECT_NE(op->order, DimOrder::kUndecided) << op->name.str();
  }
}

TEST(OperatorFacts, WorkAgreesWithTheOthers) {
  for (const Operator* op : AllOperators()) {
    const std::string& name = op->name.str();
    EXPECT_EQ(op->work == Work::kView, op->is_view()) << name;
    EXPECT_EQ(op->view != ViewKind::kNone, op->is_view() || op->aliasing == Aliasing::kMayAlias)
        << name;
    EXPECT_EQ(op->work == Work::kCollective, op->collective != Collective::kNone) << name;
    EXPECT_EQ(op->work == Work::kTransfer, op->transfer != Transfer::kNone) << name;
    EXPECT_EQ(op->work == Work::kHost, op->reads_data || op->generator_state) << name;
    if (op->generator_state) {
      EXPECT_TRUE(op->random) << name;
    }
    const bool multiplies = op->work == Work::kProduct || op->work == Work::kGroupedProduct ||
                            op->work == Work::kAttention;
    if (multiplies) {
      EXPECT_NE(op->flops, nullptr) << name;
    }
  }
}

// What the host has to do with cannot be replayed as kernels alone.
TEST(OperatorFacts, TheHostTakesPartInWhatIsNoKernel) {
  for (const Operator* op : AllOperators()) {
    const bool no_kernel =
        op->work == Work::kCollective || op->work == Work::kTransfer || op->work == Work::kHost;
    if (no_kernel) {
      EXPECT_EQ(op->host, HostPart::kAlways) << op->name.str();
    }
  }
}

TEST(OperatorFacts, WaitsHandTheirArgumentThrough) {
  for (const Operator* op : AllOperators()) {
    const bool waits = op->collective == Collective::kWait || op->transfer == Transfer::kWait;
    EXPECT_EQ(op->aliasing == Aliasing::kAlways, waits || op->is_view()) << op->name.str();
  }
}

TEST(OperatorFacts, CollectivesHaveAGroup) {
  for (const Operator* op : AllOperators()) {
    const bool communicates =
        op->collective != Collective::kNone && op->collective != Collective::kWait;
    EXPECT_EQ(op->group_arg >= 0, communicates) << op->name.str();
  }
}

// Those that change dimension 0.
TEST(OperatorFacts, CollectivesAreOrderedAcrossRanks) {
  for (const Operator* op : AllOperators()) {
    const bool moves = op->collective == Collective::kAllGather ||
                       op->collective == Collective::kReduceScatter ||
                       op->collective == Collective::kAllToAll;
    EXPECT_EQ(op->order == DimOrder::kAcrossRanks, moves) << op->name.str();
  }
}

TEST(OperatorFacts, CopiesOfViewsAreOrderedAsTheView) {
  constexpr std::string_view kCopy = "_copy";
  int checked = 0;
  for (const Operator* op : AllOperators()) {
    std::string name = op->name.str();
    const size_t at = name.find(kCopy);
    if (at == std::string::npos) continue;
    const Operator* view = FindOperator(name.erase(at, kCopy.size()));
    if (view == nullptr || !view->is_view()) continue;
    EXPECT_EQ(op->order, view->order) << op->name.str();
    ++checked;
  }
  EXPECT_GE(checked, 20);
}

TEST(OperatorDocs, AreUpToDate) {
  std::ifstream file(GT_SOURCE_DIR "/docs/operators.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), OperatorsMarkdown())
      << "update it with: gt docs operators > docs/operators.md";
}

TEST(Registry, MayBeUsedFromSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<const Operator*> found(4);
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&found, i] { found[i] = FindOperator("aten::mul.Tensor"); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Operator* op : found) EXPECT_EQ(op, found[0]);
}

}  // namespace
}  // namespace gt::registry_test
