#include "gt/ir/shape_env.h"

#include <algorithm>
#include <utility>

#include "gt/base/error.h"

namespace gt {
namespace {

constexpr int64_t kNoLow = std::numeric_limits<int64_t>::min();

// Interval arithmetic where the extreme values stand for "no bound"; an overflow widens to no
// bound.
int64_t SaturatedAdd(int64_t a, int64_t b) {
  if (a == kNoLow || b == kNoLow) return kNoLow;
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) return a < 0 ? kNoLow : kUnbounded;
  return result;
}

int64_t SaturatedMultiply(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  bool negative = (a < 0) != (b < 0);
  if (a == kNoLow || b == kNoLow || a == kUnbounded || b == kUnbounded) {
    return negative ? kNoLow : kUnbounded;
  }
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) return negative ? kNoLow : kUnbounded;
  return result;
}

Interval Multiply(Interval a, Interval b) {
  int64_t corners[] = {SaturatedMultiply(a.low, b.low), SaturatedMultiply(a.low, b.high),
                       SaturatedMultiply(a.high, b.low), SaturatedMultiply(a.high, b.high)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

int64_t FloorDivBound(int64_t a, int64_t b) {
  if (a == kNoLow || a == kUnbounded) return a;
  if (b == kUnbounded) return a < 0 ? -1 : 0;
  int64_t quotient = a / b;
  return a % b != 0 && a < 0 ? quotient - 1 : quotient;
}

Interval FloorDivide(Interval a, Interval b) {
  if (b.low <= 0) return {kNoLow, kUnbounded};
  int64_t low = std::min(FloorDivBound(a.low, b.low), FloorDivBound(a.low, b.high));
  int64_t high = std::max(FloorDivBound(a.high, b.low), FloorDivBound(a.high, b.high));
  return {low, high};
}

uint64_t HashOf(const Predicate& predicate) {
  return predicate.expression.Hash() * 2 + static_cast<uint64_t>(predicate.kind);
}

}  // namespace

Predicate Predicate::Equal(const Dim& a, const Dim& b) {
  Dim difference = a - b;
  if (difference.LeadsNegative()) difference = -difference;
  int64_t gcd = difference.CoefficientGcd();
  if (gcd > 1 && difference.ConstantTerm() % gcd == 0) difference = FloorDiv(difference, gcd);
  return {Kind::kZero, std::move(difference), true};
}

Predicate Predicate::Less(const Dim& a, const Dim& b) { return {Kind::kNegative, a - b, true}; }

std::string Predicate::ToString(const SymbolNamer& name) const {
  auto [left, right] = expression.SplitBySign();
  if (kind == Kind::kZero) {
    return fmt::format("{} {} {}", left.ToString(name), holds ? "==" : "!=", right.ToString(name));
  }
  return fmt::format("{} {} {}", left.ToString(name), holds ? "<" : ">=", right.ToString(name));
}

SymbolId ShapeEnv::AddSymbol(Symbol symbol) {
  auto id = static_cast<SymbolId>(symbols_.size());
  if (!by_name_.Insert(Name(symbol.name).id(), id).second) {
    Fail(ErrorCode::kDuplicateSymbol, "symbol {} is declared twice", symbol.name);
  }
  hints_.push_back(symbol.hint);
  symbols_.push_back(std::move(symbol));
  return id;
}

SymbolId ShapeEnv::AddInputSymbol(int64_t hint, int64_t low, int64_t high) {
  std::string name;
  do name = fmt::format("s{}", next_input_++);
  while (Find(name));
  return AddSymbol({std::move(name), Symbol::Kind::kInput, hint, low, high});
}

SymbolId ShapeEnv::AddDataSymbol(int64_t hint, int64_t low, int64_t high) {
  std::string name;
  do name = fmt::format("u{}", next_data_++);
  while (Find(name));
  return AddSymbol({std::move(name), Symbol::Kind::kData, hint, low, high});
}

std::optional<SymbolId> ShapeEnv::Find(std::string_view name) const {
  const std::optional<Name> known = Name::Find(name);
  const SymbolId* found = known ? by_name_.Find(known->id()) : nullptr;
  return found == nullptr ? std::nullopt : std::optional<SymbolId>(*found);
}

std::string ShapeEnv::Print(const Dim& dim) const { return dim.ToString(Namer()); }

void ShapeEnv::AddFact(const Dim& a, const Dim& b) {
  if (a == b) return;
  auto index = static_cast<uint32_t>(facts_.size());
  facts_.emplace_back(a, b);
  (a - b).ForEachSymbol([&](SymbolId id) {
    if (symbols_[id].kind != Symbol::Kind::kData) return;
    if (id >= facts_about_.size()) facts_about_.resize(id + 1);
    FactList& list = facts_about_[id];
    const auto entry = static_cast<int32_t>(fact_entries_.size());
    fact_entries_.push_back({.fact = index});
    (list.first < 0 ? list.first : fact_entries_[static_cast<size_t>(list.last)].next) = entry;
    list.last = entry;
  });
  // Solve for the youngest symbol: older ones are what the program speaks about. A fact about input
  // symbols alone is not solved (their identity matters to passes); it still decides comparisons
  // through the solved data symbols.
  Dim difference = ApplyFacts(a - b);
  std::vector<SymbolId> ids;
  difference.ForEachSymbol([&](SymbolId id) { ids.push_back(id); });
  std::sort(ids.rbegin(), ids.rend());
  for (SymbolId id : ids) {
    if (symbols_[id].kind != Symbol::Kind::kData) continue;
    if (std::optional<Dim> value = difference.SolveFor(id)) {
      solved_[id] = *value;
      // A symbol that no other fact mentions is in no other solution.
      const FactList facts = id < facts_about_.size() ? facts_about_[id] : FactList();
      if (facts.first >= 0 && facts.first == facts.last) return;
      for (auto& [other, expression] : solved_) {
        if (expression.Contains(id)) {
          expression =
              expression.Substitute([&](SymbolId s) { return s == id ? *value : Dim::Symbol(s); });
        }
      }
      return;
    }
  }
}

void ShapeEnv::AddGuard(Guard guard) {
  std::vector<uint32_t>& bucket = guard_index_[HashOf(guard.predicate)];
  for (uint32_t index : bucket) {
    if (guards_[index].predicate == guard.predicate) return;
  }
  bucket.push_back(static_cast<uint32_t>(guards_.size()));
  guards_.push_back(std::move(guard));
}

Dim ShapeEnv::ApplyFacts(const Dim& dim) const {
  if (solved_.empty() || dim.is_const()) return dim;
  bool touched = false;
  dim.ForEachSymbol([&](SymbolId id) { touched |= solved_.contains(id); });
  if (!touched) return dim;
  return dim.Substitute([&](SymbolId id) {
    auto found = solved_.find(id);
    return found == solved_.end() ? Dim::Symbol(id) : found->second;
  });
}

// What bounds say about the expression itself, and about the expression plus or minus a fact (which
// adds zero): the splits u0 and u1 of s0 rows leave s0 - u0 undecided by itself, but it is u1,
// which is not negative.
std::optional<bool> ShapeEnv::Decide(const Predicate& predicate) const {
  if (std::optional<bool> known = DecideByBounds(predicate)) return known;
  if (facts_about_.empty()) return std::nullopt;
  std::optional<bool> answer;
  predicate.expression.ForEachSymbol([&](SymbolId id) {
    if (answer || id >= facts_about_.size()) return;
    for (int32_t entry = facts_about_[id].first; entry >= 0;) {
      const auto& [fact, next] = fact_entries_[static_cast<size_t>(entry)];
      entry = next;
      Dim zero = facts_[fact].first - facts_[fact].second;
      for (const Dim& other : {predicate.expression + zero, predicate.expression - zero}) {
        if (!answer) answer = DecideByBounds({predicate.kind, other, true});
      }
    }
  });
  return answer;
}

std::optional<bool> ShapeEnv::DecideByBounds(const Predicate& predicate) const {
  const Dim& expression = predicate.expression;
  if (predicate.kind == Predicate::Kind::kZero) {
    if (auto value = expression.as_const()) return *value == 0;
    int64_t gcd = expression.CoefficientGcd();
    if (gcd > 1 && expression.ConstantTerm() % gcd != 0) return false;
    Interval bounds = Bounds(expression);
    if (bounds.low > 0 || bounds.high < 0) return false;
    if (bounds.low == 0 && bounds.high == 0) return true;
    return std::nullopt;
  }
  if (auto value = expression.as_const()) return *value < 0;
  Interval bounds = Bounds(expression);
  if (bounds.high < 0) return true;
  if (bounds.low >= 0) return false;
  return std::nullopt;
}

std::optional<bool> ShapeEnv::KnownEqual(const Dim& a, const Dim& b) const {
  if (a == b) return true;
  return Decide(Predicate::Equal(ApplyFacts(a), ApplyFacts(b)));
}

std::optional<bool> ShapeEnv::KnownLess(const Dim& a, const Dim& b) const {
  return Decide(Predicate::Less(ApplyFacts(a), ApplyFacts(b)));
}

bool ShapeEnv::Answer(Predicate predicate) {
  if (std::optional<bool> known = Decide(predicate)) return *known;
  if (HasDataSymbol(predicate.expression)) {
    Fail(ErrorCode::kDataDependentBranch,
         "{} in module '{}' asks whether {}, which depends on data read during the step; a branch "
         "on it would fix one "
         "batch's answer into the graph. Declare what is known about these sizes where they are "
         "read, or compute the "
         "choice with tensor operations",
         op_.empty() ? "the program" : op_.str(), module_.str(), predicate.ToString(Namer()));
  }
  int64_t value = predicate.expression.Evaluate(Hints());
  predicate.holds = predicate.kind == Predicate::Kind::kZero ? value == 0 : value < 0;
  bool answer = predicate.holds;
  auto bucket = guard_index_.find(HashOf(predicate));
  if (bucket != guard_index_.end()) {
    for (uint32_t index : bucket->second) {
      if (guards_[index].predicate == predicate) return answer;
    }
  }
  if (mode_ == Mode::kCheck) {
    Fail(ErrorCode::kMissingGuard,
         "{} in module '{}' relies on {}, but the graph has no such guard: a run with other sizes "
         "could take it the "
         "other way unnoticed",
         op_.empty() ? "a size" : op_.str(), module_.str(), predicate.ToString(Namer()));
  }
  AddGuard({std::move(predicate), module_, op_});
  return answer;
}

bool ShapeEnv::Equal(const Dim& a, const Dim& b) {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return false;
  return Answer(Predicate::Equal(ApplyFacts(a), ApplyFacts(b)));
}

bool ShapeEnv::Less(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return *a.as_const() < *b.as_const();
  return Answer(Predicate::Less(ApplyFacts(a), ApplyFacts(b)));
}

bool ShapeEnv::IsOne(const Dim& size) { return EqualOrUnknown(size, 1); }

bool ShapeEnv::IsEmptySize(const Dim& size) { return EqualOrUnknown(size, 0); }

bool ShapeEnv::EqualOrUnknown(const Dim& a, const Dim& b) {
  if (a == b) return true;
  if (a.is_const() && b.is_const()) return false;
  Predicate predicate = Predicate::Equal(ApplyFacts(a), ApplyFacts(b));
  if (HasDataSymbol(predicate.expression)) return Decide(predicate).value_or(false);
  return Answer(std::move(predicate));
}

Interval ShapeEnv::Bounds(const Dim& dim) const {
  return dim.Fold(Dim::Visitor<Interval>{
      [](int64_t value) {
        return Interval{value, value};
      },
      [this](SymbolId id) {
        return Interval{symbols_[id].low, symbols_[id].high};
      },
      [](Dim::AtomKind kind, Interval a, Interval b) {
        switch (kind) {
          case Dim::AtomKind::kFloorDiv:
            return FloorDivide(a, b);
          case Dim::AtomKind::kMin:
            return Interval{std::min(a.low, b.low), std::min(a.high, b.high)};
          default:
            return Interval{std::max(a.low, b.low), std::max(a.high, b.high)};
        }
      },
      [](Interval a, Interval b) {
        return Interval{SaturatedAdd(a.low, b.low), SaturatedAdd(a.high, b.high)};
      },
      Multiply,
  });
}

int64_t ShapeEnv::Hint(const Dim& dim) const {
  if (auto value = dim.as_const()) return *value;
  return dim.Evaluate(Hints());
}

void ShapeEnv::SetDataHint(SymbolId id, int64_t hint) {
  Symbol& symbol = symbols_[id];
  GT_CHECK(symbol.kind == Symbol::Kind::kData, "{} is bound by an input: guards rely on its hint",
           symbol.name);
  GT_CHECK(symbol.low <= hint && hint <= symbol.high, "{} = {} is outside of {} to {}", symbol.name,
           hint, symbol.low, symbol.high);
  symbol.hint = hints_[id] = hint;
}

bool ShapeEnv::HasDataSymbol(const Dim& dim) const {
  bool found = false;
  dim.ForEachSymbol([&](SymbolId id) { found |= symbols_[id].kind == Symbol::Kind::kData; });
  return found;
}

std::optional<int64_t> ShapeEnv::KnownValue(const Dim& dim) const {
  if (auto value = dim.as_const()) return value;
  Interval bounds = Bounds(ApplyFacts(dim));
  return bounds.low == bounds.high ? std::optional<int64_t>(bounds.low) : std::nullopt;
}

void ShapeEnv::Concretize(const std::function<bool(SymbolId)>& chosen) {
  // First of all, so that a graph whose guards do not hold is left as it was.
  if (const Guard* broken = FirstBroken(Hints())) {
    Fail(ErrorCode::kHintBreaksGuard,
         "the guard {} (of {} in module '{}') does not hold for the sizes that the graph was "
         "captured with",
         broken->predicate.ToString(Namer()), broken->op.str(), broken->module.str());
  }
  auto mentions = [&](const Dim& dim) {
    bool found = false;
    dim.ForEachSymbol([&](SymbolId id) { found = found || chosen(id); });
    return found;
  };
  auto concrete = [&](const Dim& dim) {
    if (!mentions(dim)) return dim;  // sums over all ranks have thousands of terms
    return dim.Substitute(
        [&](SymbolId id) { return chosen(id) ? Dim(hints_[id]) : Dim::Symbol(id); });
  };
  for (SymbolId id = 0; id < symbols_.size(); ++id) {
    if (chosen(id)) symbols_[id].low = symbols_[id].high = hints_[id];
  }
  // Facts are solved anew: a number may be what was missing to solve one for a data symbol.
  auto facts = std::exchange(facts_, {});
  solved_.clear();
  facts_about_.clear();
  fact_entries_.clear();
  for (const auto& [a, b] : facts) {
    Dim left = concrete(a), right = concrete(b);
    const bool same = left == a && right == b;
    if (!same && DecideByBounds(Predicate::Equal(left, right)) == false) {
      Fail(ErrorCode::kHintBreaksGuard,
           "the fact {} == {} does not hold for the sizes that the graph was captured with",
           Print(a), Print(b));
    }
    AddFact(left, right);
  }
  auto guards = std::exchange(guards_, {});
  guard_index_.clear();
  for (Guard& guard : guards) {
    Predicate& predicate = guard.predicate;
    if (mentions(predicate.expression)) {
      Dim expression = concrete(predicate.expression);
      if (expression.is_const()) continue;
      // A question has one spelling, also one with numbers in it: 8 * s1 == 16 is s1 == 2.
      const bool holds = predicate.holds;
      predicate = predicate.kind == Predicate::Kind::kZero ? Predicate::Equal(expression, 0)
                                                           : Predicate::Less(expression, 0);
      predicate.holds = holds;
    }
    AddGuard(std::move(guard));
  }
}

const Guard* ShapeEnv::FirstBroken(SymbolValues values) const {
  for (const Guard& guard : guards_) {
    int64_t value = guard.predicate.expression.Evaluate(values);
    bool holds = guard.predicate.kind == Predicate::Kind::kZero ? value == 0 : value < 0;
    if (holds != guard.predicate.holds) return &guard;
  }
  return nullptr;
}

}  // namespace gt
