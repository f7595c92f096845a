#include "gt/ir/shape_env.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"

namespace gt::shape_env_test {
namespace {

template <typename Work>
ErrorCode CodeOf(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

class ShapeEnvTest : public ::testing::Test {
 protected:
  ShapeEnv env;
  const Dim s = Dim::Symbol(env.AddInputSymbol(/*hint=*/8, 2, 64));
  const Dim t = Dim::Symbol(env.AddInputSymbol(/*hint=*/16));
  const Dim u = Dim::Symbol(env.AddDataSymbol(/*hint=*/3));
  const Dim v = Dim::Symbol(env.AddDataSymbol(/*hint=*/5));
};

TEST_F(ShapeEnvTest, NamesSymbols) {
  EXPECT_EQ(env.NameOf(0), "s0");
  EXPECT_EQ(env.NameOf(1), "s1");
  EXPECT_EQ(env.NameOf(2), "u0");
  EXPECT_EQ(env.Find("u1"), SymbolId{3});
  EXPECT_FALSE(env.Find("u2"));
  EXPECT_EQ(CodeOf([&] { env.AddSymbol({"s0"}); }), ErrorCode::kDuplicateSymbol);
  env.AddSymbol({"s2"});
  EXPECT_EQ(env.NameOf(env.AddInputSymbol(4)), "s3");
}

// What always holds leaves no trace.
TEST_F(ShapeEnvTest, AnswersFromStructureAndRanges) {
  EXPECT_EQ(env.KnownEqual(s + t, t + s), true);
  EXPECT_EQ(env.KnownEqual(s, 1), false);
  EXPECT_EQ(env.KnownEqual(s, 65), false);
  EXPECT_EQ(env.KnownEqual(s, 8), std::nullopt);
  EXPECT_EQ(env.KnownEqual(s * Dim(2), t * Dim(2) + Dim(1)), false);
  EXPECT_EQ(env.KnownLess(s, 65), true);
  EXPECT_EQ(env.KnownLess(s, t), std::nullopt);
  EXPECT_EQ(env.KnownLess(u, 0), false);
  EXPECT_FALSE(env.Equal(s, 1));
  EXPECT_TRUE(env.Less(s, 100));
  EXPECT_FALSE(env.IsZero(t));
  EXPECT_TRUE(env.guards().empty());
}

TEST_F(ShapeEnvTest, AnswersFromHintsAndRemembers) {
  env.SetAsker(Name("layers.0"), Name("aten::view"));
  EXPECT_TRUE(env.Equal(s, 8));
  EXPECT_TRUE(env.Equal(Dim(16), s * Dim(2)));  // the same question
  EXPECT_FALSE(env.Equal(s, 9));
  EXPECT_TRUE(env.Less(s, t));
  EXPECT_FALSE(env.LessOrEqual(t, s));  // and again
  ASSERT_EQ(env.guards().size(), 3u);
  EXPECT_EQ(env.guards()[0].predicate.ToString(env.Namer()), "s0 == 8");
  EXPECT_EQ(env.guards()[1].predicate.ToString(env.Namer()), "s0 != 9");
  EXPECT_EQ(env.guards()[2].predicate.ToString(env.Namer()), "s0 < s1");
  EXPECT_EQ(env.guards()[0].module.str(), "layers.0");
  EXPECT_EQ(env.guards()[0].op.str(), "aten::view");

  EXPECT_EQ(env.FirstBroken(std::vector<int64_t>{8, 16, 0, 0}), nullptr);
  EXPECT_EQ(env.FirstBroken(std::vector<int64_t>{7, 16, 0, 0}), &env.guards()[0]);
  EXPECT_EQ(env.FirstBroken(std::vector<int64_t>{8, 8, 0, 0}), &env.guards()[2]);
}

TEST_F(ShapeEnvTest, CheckingAcceptsOnlyWhatWasRecorded) {
  EXPECT_TRUE(env.Equal(s, 8));
  {
    ShapeEnvModeScope check(env, ShapeEnv::Mode::kCheck);
    EXPECT_TRUE(env.Equal(s, 8));
    EXPECT_FALSE(env.Equal(s, 1));
    EXPECT_EQ(CodeOf([&] { env.Equal(s, 9); }), ErrorCode::kMissingGuard);
  }
  EXPECT_EQ(env.mode(), ShapeEnv::Mode::kRecord);
  EXPECT_EQ(env.guards().size(), 1u);
}

// A question about data would fix one batch's routing into the graph.
TEST_F(ShapeEnvTest, DataIsNeverGuessed) {
  EXPECT_EQ(CodeOf([&] { env.Equal(u, 3); }), ErrorCode::kDataDependentBranch);
  EXPECT_EQ(CodeOf([&] { env.Less(u, v); }), ErrorCode::kDataDependentBranch);
  EXPECT_FALSE(env.IsOne(u));
  EXPECT_FALSE(env.IsEmptySize(u));
  EXPECT_FALSE(env.EqualOrUnknown(u, v));
  EXPECT_TRUE(env.HasDataSymbol(s + u));
  EXPECT_FALSE(env.HasDataSymbol(s + t));
  EXPECT_TRUE(env.guards().empty());
}

TEST_F(ShapeEnvTest, FactsDecide) {
  env.AddFact(u + v, s);
  EXPECT_EQ(env.KnownEqual(u + v, s), true);
  EXPECT_TRUE(env.Equal((u + v) * t, s * t));
  EXPECT_FALSE(env.Equal(u + v, s + Dim(1)));
  // Facts build on each other, in whatever order they are added.
  const Dim w = Dim::Symbol(env.AddDataSymbol(2)), x = Dim::Symbol(env.AddDataSymbol(2));
  env.AddFact(x, w * Dim(2));
  env.AddFact(w, u);
  EXPECT_TRUE(env.Equal(x, u * Dim(2)));
  EXPECT_EQ(env.facts().size(), 3u);
  EXPECT_TRUE(env.guards().empty());
}

TEST_F(ShapeEnvTest, Bounds) {
  const auto check = [&](const Dim& dim, int64_t low, int64_t high) {
    const Interval bounds = env.Bounds(dim);
    EXPECT_EQ(bounds.low, low) << env.Print(dim);
    EXPECT_EQ(bounds.high, high) << env.Print(dim);
  };
  check(s * Dim(2) + Dim(1), 5, 129);
  check(Dim(10) - s, -54, 8);
  check(t, 2, kUnbounded);
  check(FloorDiv(s, 4), 0, 16);
  check(Min(s, Dim(10)), 2, 10);
  check(Max(u, Dim(1)), 1, kUnbounded);
  check(s * t, 4, kUnbounded);
  EXPECT_EQ(env.Hint(s * t + u), 131);
  EXPECT_FALSE(env.KnownValue(s));
  const Dim pinned = Dim::Symbol(env.AddInputSymbol(7, 7, 7));
  EXPECT_EQ(env.KnownValue(pinned * Dim(2)), 14);
}

TEST_F(ShapeEnvTest, EqualQuestionsHaveOneSpelling) {
  EXPECT_EQ(Predicate::Equal(s * Dim(4), t * Dim(4)), Predicate::Equal(t, s));
  EXPECT_EQ(Predicate::Equal(s, 3).ToString(env.Namer()), "s0 == 3");
  EXPECT_EQ(Predicate::Less(s, t + Dim(2)).ToString(env.Namer()), "s0 < s1 + 2");
}

// The chosen symbols are their hints from then on; what is left of guards has the spelling that the
// same questions about the numbers have.
TEST_F(ShapeEnvTest, ConcretizeReplacesSymbolsByTheirHints) {
  env.AddFact(u + v, s * t);
  env.SetAsker(Name("layers.0"), Name("aten::view"));
  EXPECT_TRUE(env.Less(s, 9));
  EXPECT_FALSE(env.Equal(s * t, 24));
  EXPECT_TRUE(env.Less(t, 100));
  env.Concretize([](SymbolId id) { return id == 0; });

  EXPECT_EQ(env.symbol(0), (Symbol{"s0", Symbol::Kind::kInput, 8, 8, 8}));
  EXPECT_EQ(env.symbol(1).high, kUnbounded);
  ASSERT_EQ(env.guards().size(), 2u);
  EXPECT_EQ(env.guards()[0].predicate.ToString(env.Namer()), "s1 != 3");
  EXPECT_EQ(env.guards()[0].module.str(), "layers.0");
  EXPECT_EQ(env.guards()[1].predicate.ToString(env.Namer()), "s1 < 100");
  ShapeEnvModeScope check(env, ShapeEnv::Mode::kCheck);
  EXPECT_FALSE(env.Equal(t * Dim(8), 24));
  EXPECT_TRUE(env.Less(t, 100));
  EXPECT_EQ(env.KnownEqual(u + v, t * Dim(8)), true);
}

// A fact that could not be solved for a data symbol before can be when it has numbers in it.
TEST_F(ShapeEnvTest, ConcretizeSolvesFactsAnew) {
  const Dim one = Dim::Symbol(env.AddInputSymbol(/*hint=*/1, 1));
  env.AddFact(one * u, s);
  EXPECT_EQ(env.KnownEqual(u, 8), std::nullopt);
  env.Concretize([&](SymbolId id) { return env.symbol(id).kind == Symbol::Kind::kInput; });
  EXPECT_EQ(env.KnownEqual(u, 8), true);
  EXPECT_TRUE(env.guards().empty());
}

// And then leaves everything as it was.
TEST_F(ShapeEnvTest, ConcretizeFailsOnGuardsThatDoNotHold) {
  env.AddGuard({Predicate::Less(s, t), {}, {}});
  env.AddGuard({Predicate::Equal(s, t), Name("layers.0"), Name("aten::add")});
  EXPECT_EQ(CodeOf([&] { env.Concretize([](SymbolId) { return true; }); }),
            ErrorCode::kHintBreaksGuard);
  EXPECT_EQ(env.guards().size(), 2u);
  EXPECT_EQ(env.symbol(0).high, 64);
}

TEST(ShapeEnvFacts, PartsOfASumAreNotLargerThanTheSum) {
  ShapeEnv env;
  const Dim rows = Dim::Symbol(env.AddInputSymbol(8));
  const Dim a = Dim::Symbol(env.AddDataSymbol(3)), b = Dim::Symbol(env.AddDataSymbol(3)),
            c = Dim::Symbol(env.AddDataSymbol(2));
  EXPECT_FALSE(env.KnownLess(rows, a));
  env.AddFact(a + b + c, rows);
  EXPECT_EQ(env.KnownLess(rows, a), false);
  EXPECT_EQ(env.KnownLess(rows, a + b), false);
  EXPECT_EQ(env.KnownEqual(rows - a - b, c), true);
  EXPECT_FALSE(env.KnownLess(a, b));
}

}  // namespace
}  // namespace gt::shape_env_test
