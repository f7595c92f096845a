#include "gt/ir/dim.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gt/base/error.h"

namespace gt::dim_test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

const Dim a = Dim::Symbol(0), b = Dim::Symbol(1), c = Dim::Symbol(2);

std::string Text(const Dim& dim) {
  return dim.ToString([](SymbolId id) { return std::string(1, static_cast<char>('a' + id)); });
}

template <typename Work>
ErrorCode CodeOf(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(DimTest, EqualExpressionsHaveOneForm) {
  EXPECT_EQ(a + b, b + a);
  EXPECT_EQ(a * b, b * a);
  EXPECT_EQ((a + b) * c, a * c + b * c);
  EXPECT_EQ((a + Dim(1)) * (a - Dim(1)), a * a - Dim(1));
  EXPECT_EQ(a + a, a * Dim(2));
  EXPECT_EQ(a - a, Dim(0));
  EXPECT_TRUE((a - a).is_const());
  EXPECT_EQ(Min(a, b), Min(b, a));
  EXPECT_EQ(Max(a, a + Dim(1)), a + Dim(1));
  EXPECT_EQ(Min(a, a + Dim(1)), a);
  EXPECT_NE(a, b);
  EXPECT_NE(a, Dim(0));
  EXPECT_EQ((a + b).Hash(), (b + a).Hash());
}

TEST(DimTest, Prints) {
  EXPECT_EQ(Text(Dim(-3)), "-3");
  EXPECT_EQ(Text(a), "a");
  EXPECT_EQ(Text(Dim(2) + a * Dim(3)), "a * 3 + 2");
  EXPECT_EQ(Text(b - a - Dim(1)), "-a + b - 1");
  EXPECT_EQ(Text(a * b + a), "a * b + a");
  EXPECT_EQ(Text(FloorDiv(a, Dim(2)) * Dim(-4)), "-floordiv(a, 2) * 4");
  EXPECT_EQ(Text(Dim(kMin)), "-9223372036854775808");
  EXPECT_EQ(Text(a + Dim(kMin)), "a - 9223372036854775808");
  EXPECT_EQ(Text(a * Dim(kMin)), "-a * 9223372036854775808");
}

TEST(DimTest, FloorDivisionCancelsWhatItCan) {
  EXPECT_EQ(FloorDiv(a * Dim(6), Dim(3)), a * Dim(2));
  EXPECT_EQ(FloorDiv(a * Dim(6) + Dim(7), Dim(3)), a * Dim(2) + Dim(2));
  EXPECT_EQ(FloorDiv(a * Dim(2), Dim(6)), FloorDiv(a, Dim(3)));
  EXPECT_EQ(FloorDiv(a * b, b), a);
  EXPECT_EQ(FloorDiv(a * b + c, b), a + FloorDiv(c, b));
  EXPECT_EQ(FloorDiv((a + b) * Dim(4), a + b), Dim(4));
  EXPECT_EQ(FloorDiv((a + b) * c, a + b), c);
  EXPECT_EQ(FloorDiv(Dim(0), a), Dim(0));
  EXPECT_EQ(FloorDiv(a, Dim(1)), a);
  EXPECT_EQ(FloorDiv(a, Dim(-1)), -a);
  EXPECT_EQ(FloorDiv(Dim(-7), Dim(2)), Dim(-4));
  EXPECT_EQ(FloorDiv(Dim(7), Dim(-2)), Dim(-4));
  EXPECT_EQ(Mod(Dim(-7), Dim(2)), Dim(1));
  EXPECT_EQ(CeilDiv(Dim(7), Dim(2)), Dim(4));
  EXPECT_EQ(CodeOf([] { FloorDiv(a, Dim(0)); }), ErrorCode::kDivisionByZero);
}

TEST(DimTest, TakesApart) {
  EXPECT_EQ(a.as_symbol(), SymbolId{0});
  EXPECT_FALSE((a + Dim(1)).as_symbol());
  EXPECT_FALSE((a * Dim(2)).as_symbol());
  EXPECT_FALSE(FloorDiv(a, Dim(2)).as_symbol());
  EXPECT_TRUE((a * b + c).Contains(1));
  EXPECT_TRUE(FloorDiv(c, b + Dim(1)).Contains(1));
  EXPECT_FALSE((a + c).Contains(1));
  EXPECT_EQ((a * Dim(4) + b * Dim(6) + Dim(3)).CoefficientGcd(), 2);
  EXPECT_EQ((a + Dim(3)).ConstantTerm(), 3);
  EXPECT_TRUE((b - a).LeadsNegative());

  const auto [left, right] = (a - b * Dim(2) - Dim(4)).SplitBySign();
  EXPECT_EQ(left, a);
  EXPECT_EQ(right, b * Dim(2) + Dim(4));

  EXPECT_EQ((a - b * Dim(2)).SolveFor(0), b * Dim(2));
  EXPECT_EQ((c - a).SolveFor(0), c);
  EXPECT_FALSE((a * Dim(2) - b).SolveFor(0));
  EXPECT_FALSE((a * b - c).SolveFor(0));
  EXPECT_FALSE((a + FloorDiv(a, Dim(2))).SolveFor(0));

  const auto replaced = (a * b + FloorDiv(a, Dim(2))).Substitute([](SymbolId id) {
    return id == 0 ? c * Dim(2) : Dim::Symbol(id);
  });
  EXPECT_EQ(replaced, b * c * Dim(2) + c);
}

TEST(DimTest, OverflowIsAnError) {
  EXPECT_EQ(CodeOf([] { Dim(kMax) + Dim(1); }), ErrorCode::kSizeOverflow);
  EXPECT_EQ(CodeOf([] { Dim(kMax) * Dim(2); }), ErrorCode::kSizeOverflow);
  EXPECT_EQ(CodeOf([] { a* Dim(kMax) + a; }), ErrorCode::kSizeOverflow);
  EXPECT_EQ(CodeOf([] { -(a * Dim(kMin)); }), ErrorCode::kSizeOverflow);
  EXPECT_EQ(CodeOf([] { (a * a).Evaluate(std::vector<int64_t>{kMax}); }), ErrorCode::kSizeOverflow);
  EXPECT_EQ(CodeOf([] {
              FloorDiv(a, b).Evaluate(std::vector<int64_t>{1, 0});
            }),
            ErrorCode::kDivisionByZero);
  // The extreme coefficient neither traps nor wraps.
  EXPECT_EQ(FloorDiv(a * Dim(kMin), Dim(2)), a * Dim(kMin / 2));
  EXPECT_EQ(FloorDiv(a + Dim(kMin), Dim(3)).Evaluate(std::vector<int64_t>{0}),
            FloorDiv(Dim(kMin), Dim(3)).as_const());
  EXPECT_EQ(CodeOf([] { FloorDiv(a * Dim(kMin), Dim(-1)); }), ErrorCode::kSizeOverflow);
  EXPECT_FALSE(FloorDiv(a * b * Dim(kMin), -b).is_const());
}

TEST(DimTest, GrowthIsLimited) {
  EXPECT_EQ(CodeOf([] {
              Dim dim = a;
              for (int i = 0; i < 100; ++i) dim = dim * a;
            }),
            ErrorCode::kExpressionTooLarge);
  EXPECT_EQ(CodeOf([] {
              Dim dim = 1;
              for (int i = 0; i < 60; ++i) dim = dim * (a + b + c + Dim(1));
            }),
            ErrorCode::kExpressionTooLarge);
  EXPECT_EQ(CodeOf([] {
              Dim dim = a;
              for (int i = 0; i < 100; ++i) dim = Min(FloorDiv(dim, Dim(3)), b);
            }),
            ErrorCode::kExpressionTooLarge);
  EXPECT_EQ(CodeOf([] {
              Dim dim = a;
              for (int i = 0; i < 60; ++i) dim = FloorDiv(dim * dim + b, Dim(3));
            }),
            ErrorCode::kExpressionTooLarge);
  // What programs make stays far below: the splits of an exchange between a thousand ranks.
  Dim sum;
  for (SymbolId id = 0; id < 1000; ++id) sum += Dim::Symbol(id);
  EXPECT_EQ(FloorDiv(sum * a * Dim(64), a), sum * Dim(64));
}

// An expression next to a function that computes the same number directly.
struct Checked {
  Dim dim;
  std::function<std::optional<int64_t>(const std::vector<int64_t>&)> value;
};

int64_t FloorOf(int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0); }

Checked RandomChecked(std::mt19937_64& random, int depth) {
  const auto pick = [&](uint64_t n) { return random() % n; };
  if (depth == 0 || pick(4) == 0) {
    if (pick(2) == 0) {
      const auto constant = static_cast<int64_t>(pick(13)) - 4;
      return {constant, [constant](const auto&) { return constant; }};
    }
    const auto id = static_cast<SymbolId>(pick(3));
    return {Dim::Symbol(id), [id](const auto& values) { return values[id]; }};
  }
  const Checked x = RandomChecked(random, depth - 1), y = RandomChecked(random, depth - 1);
  const auto combine = [&](Dim dim, auto apply) {
    return Checked{std::move(dim),
                   [=](const std::vector<int64_t>& values) -> std::optional<int64_t> {
                     const auto p = x.value(values), q = y.value(values);
                     return p && q ? apply(*p, *q) : std::nullopt;
                   }};
  };
  using Result = std::optional<int64_t>;
  switch (pick(6)) {
    case 0:
      return combine(x.dim + y.dim, [](int64_t p, int64_t q) -> Result { return p + q; });
    case 1:
      return combine(x.dim - y.dim, [](int64_t p, int64_t q) -> Result { return p - q; });
    case 2:
      return combine(x.dim * y.dim, [](int64_t p, int64_t q) -> Result { return p * q; });
    case 3:
      return combine(Min(x.dim, y.dim),
                     [](int64_t p, int64_t q) -> Result { return std::min(p, q); });
    case 4:
      return combine(Max(x.dim, y.dim),
                     [](int64_t p, int64_t q) -> Result { return std::max(p, q); });
    default:
      if (y.dim.Is(0)) return x;
      return combine(FloorDiv(x.dim, y.dim), [](int64_t p, int64_t q) -> Result {
        return q == 0 ? Result() : FloorOf(p, q);
      });
  }
}

// Whatever simplification does, the number stays the same.
TEST(DimTest, CanonicalFormKeepsTheValue) {
  std::mt19937_64 random(1);
  int compared = 0;
  for (int round = 0; round < 3000; ++round) {
    const Checked checked = RandomChecked(random, 4);
    for (int i = 0; i < 5; ++i) {
      std::vector<int64_t> values;
      for (int j = 0; j < 3; ++j) values.push_back(1 + static_cast<int64_t>(random() % 9));
      const auto expected = checked.value(values);
      if (!expected)
        continue;  // divides by zero somewhere; simplification may have removed the division
      EXPECT_EQ(checked.dim.Evaluate(values), *expected) << Text(checked.dim);
      ++compared;
    }
  }
  EXPECT_GT(compared, 10000);
}

}  // namespace
}  // namespace gt::dim_test
