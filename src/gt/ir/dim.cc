#include "gt/ir/dim.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "gt/base/error.h"
#include "gt/ir/checked_math.h"

namespace gt {
namespace {

using Atom = Dim::Expr::Atom;
using Term = Dim::Expr::Term;
using AtomPtr = Dim::Expr::AtomPtr;
using Atoms = Dim::Expr::Atoms;

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) Fail(ErrorCode::kDivisionByZero, "{} is divided by zero in a size expression", a);
  if (b == -1) return CheckedMultiply(a, -1);
  int64_t quotient = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? quotient - 1 : quotient;
}

// std::gcd negates, which INT64_MIN does not survive. The one divisor that does not fit is replaced
// by half of it.
int64_t Gcd(int64_t a, int64_t b) {
  auto magnitude = [](int64_t x) {
    return x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  };
  const uint64_t gcd = std::gcd(magnitude(a), magnitude(b));
  return static_cast<int64_t>(gcd >> 63 == 0 ? gcd : gcd / 2);
}

uint64_t Mix(uint64_t seed, uint64_t value) {
  uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
  x ^= x >> 31;
  return x * 0xbf58476d1ce4e5b9ull;
}

int CompareDims(const Dim& a, const Dim& b);

int Sign(int64_t a, int64_t b) { return a < b ? -1 : a > b ? 1 : 0; }

int CompareAtoms(const AtomPtr& a, const AtomPtr& b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return Sign(static_cast<int>(a->kind), static_cast<int>(b->kind));
  if (a->kind == Dim::AtomKind::kSymbol) return Sign(a->symbol, b->symbol);
  if (int order = CompareDims(a->a, b->a)) return order;
  return CompareDims(a->b, b->b);
}

int CompareMonomials(const Atoms& a, const Atoms& b) {
  // Higher degree first, so that s0 * s1 is before s0.
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (int order = CompareAtoms(a[i], b[i])) return order;
  }
  return 0;
}

constexpr int64_t kMinimum = std::numeric_limits<int64_t>::min();

// Far above what a program needs (the splits of an exchange between a thousand ranks make a sum of
// a thousand terms), and low enough that every operation stays within milliseconds and no recursion
// over an expression exhausts the stack.
constexpr size_t kMaxProductTerms = 4096;
constexpr size_t kMaxDegree = 64;
constexpr uint32_t kMaxWeight = 1 << 16;
constexpr uint32_t kMaxDepth = 64;

[[noreturn]] void FailTooLarge(std::string_view what, size_t limit) {
  Fail(ErrorCode::kExpressionTooLarge, "a size expression has more than {} {}", limit, what);
}

uint32_t WeightOf(const Dim& dim);
uint32_t DepthOf(const Dim& dim);

AtomPtr MakeAtom(Dim::AtomKind kind, SymbolId symbol, Dim a, Dim b) {
  auto atom = std::make_shared<Atom>();
  atom->kind = kind;
  atom->symbol = symbol;
  uint64_t hash = Mix(static_cast<uint64_t>(kind) + 17, symbol);
  if (kind != Dim::AtomKind::kSymbol) {
    hash = Mix(Mix(hash, a.Hash()), b.Hash());
    atom->weight = 1 + WeightOf(a) + WeightOf(b);
    atom->depth = 1 + std::max(DepthOf(a), DepthOf(b));
    if (atom->depth > kMaxDepth) FailTooLarge("operations nested in each other", kMaxDepth);
  }
  atom->hash = hash;
  atom->a = std::move(a);
  atom->b = std::move(b);
  return atom;
}

}  // namespace

// The one place that may look inside a Dim and build one from parts.
struct DimBuilder {
  static const Dim::Expr* ExprOf(const Dim& dim) { return dim.expr_.get(); }

  static Dim FromTerms(std::vector<Term> terms, int64_t constant) {
    if (terms.empty()) return Dim(constant);
    auto expr = std::make_shared<Dim::Expr>();
    uint64_t hash = Mix(0x51ed27, static_cast<uint64_t>(constant));
    size_t weight = 0;
    for (const Term& term : terms) {
      hash = Mix(hash, static_cast<uint64_t>(term.coefficient));
      for (const AtomPtr& atom : term.atoms) {
        hash = Mix(hash, atom->hash);
        weight += atom->weight;
        expr->depth = std::max(expr->depth, atom->depth);
      }
    }
    if (weight > kMaxWeight) FailTooLarge("symbols and operations", kMaxWeight);
    expr->weight = static_cast<uint32_t>(weight);
    expr->constant = constant;
    expr->terms = std::move(terms);
    expr->hash = hash;
    return Dim(std::shared_ptr<const Dim::Expr>(std::move(expr)));
  }

  static Dim FromAtom(AtomPtr atom) {
    std::vector<Term> terms(1);
    terms[0].coefficient = 1;
    terms[0].atoms.push_back(std::move(atom));
    return FromTerms(std::move(terms), 0);
  }

  static std::span<const Term> TermsOf(const Dim& dim) {
    return dim.expr_ ? std::span<const Term>(dim.expr_->terms) : std::span<const Term>();
  }
  static int64_t ConstantOf(const Dim& dim) { return dim.expr_ ? dim.expr_->constant : dim.value_; }

  // a + scale * b, both sorted: one merge.
  static Dim AddScaled(const Dim& a, const Dim& b, int64_t scale) {
    int64_t constant = CheckedAdd(ConstantOf(a), CheckedMultiply(ConstantOf(b), scale));
    std::span<const Term> left = TermsOf(a), right = TermsOf(b);
    std::vector<Term> terms;
    terms.reserve(left.size() + right.size());
    size_t i = 0, j = 0;
    while (i < left.size() || j < right.size()) {
      int order = i == left.size()    ? 1
                  : j == right.size() ? -1
                                      : CompareMonomials(left[i].atoms, right[j].atoms);
      if (order < 0) {
        terms.push_back(left[i++]);
      } else if (order > 0) {
        terms.push_back({CheckedMultiply(right[j].coefficient, scale), right[j].atoms});
        ++j;
      } else {
        int64_t sum = CheckedAdd(left[i].coefficient, CheckedMultiply(right[j].coefficient, scale));
        if (sum != 0) terms.push_back({sum, left[i].atoms});
        ++i, ++j;
      }
    }
    return FromTerms(std::move(terms), constant);
  }

  static Dim Scale(const Dim& a, int64_t factor) {
    if (factor == 0) return Dim(0);
    if (factor == 1) return a;
    std::vector<Term> terms(TermsOf(a).begin(), TermsOf(a).end());
    for (Term& term : terms) term.coefficient = CheckedMultiply(term.coefficient, factor);
    return FromTerms(std::move(terms), CheckedMultiply(ConstantOf(a), factor));
  }

  // Sorts terms and merges equal monomials.
  static Dim Normalize(std::vector<Term> terms, int64_t constant) {
    std::sort(terms.begin(), terms.end(),
              [](const Term& a, const Term& b) { return CompareMonomials(a.atoms, b.atoms) < 0; });
    std::vector<Term> merged;
    for (Term& term : terms) {
      if (!merged.empty() && CompareMonomials(merged.back().atoms, term.atoms) == 0) {
        merged.back().coefficient = CheckedAdd(merged.back().coefficient, term.coefficient);
      } else {
        merged.push_back(std::move(term));
      }
    }
    std::erase_if(merged, [](const Term& term) { return term.coefficient == 0; });
    return FromTerms(std::move(merged), constant);
  }

  static Dim Multiply(const Dim& a, const Dim& b) {
    if (a.is_const()) return Scale(b, ConstantOf(a));
    if (b.is_const()) return Scale(a, ConstantOf(b));
    if (TermsOf(a).size() * TermsOf(b).size() > kMaxProductTerms) {
      FailTooLarge("terms in a product", kMaxProductTerms);
    }
    std::vector<Term> terms;
    auto append = [&terms](int64_t coefficient, const Atoms& x, const Atoms& y) {
      if (coefficient == 0) return;
      if (x.size() + y.size() > kMaxDegree) FailTooLarge("factors in a product", kMaxDegree);
      Term term{coefficient, {}};
      std::merge(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(term.atoms),
                 [](const AtomPtr& p, const AtomPtr& q) { return CompareAtoms(p, q) < 0; });
      terms.push_back(std::move(term));
    };
    for (const Term& x : TermsOf(a)) {
      for (const Term& y : TermsOf(b)) {
        append(CheckedMultiply(x.coefficient, y.coefficient), x.atoms, y.atoms);
      }
      append(CheckedMultiply(x.coefficient, ConstantOf(b)), x.atoms, {});
    }
    for (const Term& y : TermsOf(b)) {
      append(CheckedMultiply(y.coefficient, ConstantOf(a)), y.atoms, {});
    }
    return Normalize(std::move(terms), CheckedMultiply(ConstantOf(a), ConstantOf(b)));
  }

  // Divides every term that the single-term divisor divides exactly; returns quotient and what is
  // left over. A divisor without atoms must be positive.
  static std::pair<Dim, Dim> DivideTerms(const Dim& a, int64_t coefficient, const Atoms& atoms) {
    std::vector<Term> quotient, rest;
    for (const Term& term : TermsOf(a)) {
      Atoms left;
      // INT64_MIN / -1 traps.
      bool divides = (coefficient == -1 ? term.coefficient != kMinimum
                                        : term.coefficient % coefficient == 0) &&
                     RemoveAtoms(term.atoms, atoms, left);
      if (divides) {
        quotient.push_back({term.coefficient / coefficient, std::move(left)});
      } else {
        rest.push_back(term);
      }
    }
    int64_t whole = 0, remainder = ConstantOf(a);
    if (atoms.empty()) {
      whole = FloorDivide(remainder, coefficient);
      remainder %= coefficient;
      if (remainder < 0) remainder += coefficient;
    }
    // A term without atoms left is a constant of the quotient.
    for (size_t i = 0; i < quotient.size();) {
      if (quotient[i].atoms.empty()) {
        whole = CheckedAdd(whole, quotient[i].coefficient);
        quotient.erase(quotient.begin() + static_cast<int64_t>(i));
      } else {
        ++i;
      }
    }
    return {Normalize(std::move(quotient), whole), FromTerms(std::move(rest), remainder)};
  }

  static bool RemoveAtoms(const Atoms& from, const Atoms& what, Atoms& left) {
    size_t j = 0;
    for (const AtomPtr& atom : from) {
      if (j < what.size() && CompareAtoms(atom, what[j]) == 0) {
        ++j;
      } else {
        left.push_back(atom);
      }
    }
    return j == what.size();
  }
};

namespace {

uint32_t WeightOf(const Dim& dim) {
  const Dim::Expr* expr = DimBuilder::ExprOf(dim);
  return expr == nullptr ? 0 : expr->weight;
}

uint32_t DepthOf(const Dim& dim) {
  const Dim::Expr* expr = DimBuilder::ExprOf(dim);
  return expr == nullptr ? 0 : expr->depth;
}

int CompareDims(const Dim& a, const Dim& b) {
  auto left = DimBuilder::TermsOf(a), right = DimBuilder::TermsOf(b);
  if (left.size() != right.size()) return left.size() < right.size() ? -1 : 1;
  for (size_t i = 0; i < left.size(); ++i) {
    if (int order = CompareMonomials(left[i].atoms, right[i].atoms)) return order;
    if (int order = Sign(left[i].coefficient, right[i].coefficient)) return order;
  }
  return Sign(DimBuilder::ConstantOf(a), DimBuilder::ConstantOf(b));
}

// min and max: equal up to a constant means one of the two is known to be smaller.
std::optional<bool> KnownLess(const Dim& a, const Dim& b) {
  Dim difference = a - b;
  if (!difference.is_const()) return std::nullopt;
  return *difference.as_const() < 0;
}

Dim MinOrMax(Dim::AtomKind kind, const Dim& a, const Dim& b) {
  if (std::optional<bool> less = KnownLess(a, b)) {
    return (kind == Dim::AtomKind::kMin) == *less ? a : b;
  }
  bool swap = CompareDims(a, b) > 0;  // min and max commute: one spelling
  return DimBuilder::FromAtom(MakeAtom(kind, 0, swap ? b : a, swap ? a : b));
}

}  // namespace

Dim Dim::Symbol(SymbolId id) {
  return DimBuilder::FromAtom(MakeAtom(AtomKind::kSymbol, id, Dim(), Dim()));
}

std::optional<SymbolId> Dim::as_symbol() const {
  std::optional<Multiple> multiple = as_multiple();
  return multiple && multiple->factor == 1 ? std::optional(multiple->symbol) : std::nullopt;
}

std::optional<Dim::Multiple> Dim::as_multiple() const {
  if (is_const() || expr_->constant != 0 || expr_->terms.size() != 1) return std::nullopt;
  const Expr::Term& term = expr_->terms[0];
  if (term.coefficient < 1 || term.atoms.size() != 1) return std::nullopt;
  if (term.atoms[0]->kind != AtomKind::kSymbol) return std::nullopt;
  return Multiple{term.coefficient, term.atoms[0]->symbol};
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return CheckedAdd(a.value_, b.value_);
  if (b.Is(0)) return a;
  if (a.Is(0)) return b;
  return DimBuilder::AddScaled(a, b, 1);
}

// Halves of equal length: every term is copied as often as the number can be halved.
Dim Sum(std::span<const Dim> dims) {
  if (dims.empty()) return 0;
  if (dims.size() == 1) return dims[0];
  const size_t half = dims.size() / 2;
  return Sum(dims.first(half)) + Sum(dims.subspan(half));
}

Dim operator-(const Dim& a, const Dim& b) {
  if (b.Is(0)) return a;
  return DimBuilder::AddScaled(a, b, -1);
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return CheckedMultiply(a.value_, b.value_);
  return DimBuilder::Multiply(a, b);
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.expr_ == b.expr_) return a.expr_ || a.value_ == b.value_;
  if (!a.expr_ || !b.expr_ || a.expr_->hash != b.expr_->hash) return false;
  return CompareDims(a, b) == 0;
}

uint64_t Dim::Hash() const {
  return expr_ ? expr_->hash : Mix(0x7e11, static_cast<uint64_t>(value_));
}

void Dim::ForEachSymbol(const std::function<void(SymbolId)>& visit) const {
  if (is_const()) return;
  for (const Expr::Term& term : expr_->terms) {
    for (const auto& atom : term.atoms) {
      if (atom->kind == AtomKind::kSymbol) {
        visit(atom->symbol);
      } else {
        atom->a.ForEachSymbol(visit);
        atom->b.ForEachSymbol(visit);
      }
    }
  }
}

bool Dim::Contains(SymbolId id) const {
  bool found = false;
  ForEachSymbol([&](SymbolId symbol) { found |= symbol == id; });
  return found;
}

namespace {

Dim ApplyAtom(Dim::AtomKind kind, const Dim& a, const Dim& b) {
  switch (kind) {
    case Dim::AtomKind::kFloorDiv:
      return FloorDiv(a, b);
    case Dim::AtomKind::kMin:
      return Min(a, b);
    case Dim::AtomKind::kMax:
      return Max(a, b);
    case Dim::AtomKind::kSymbol:
      break;
  }
  GT_CHECK(false, "a symbol is not an operation");
}

}  // namespace

Dim Dim::Substitute(const std::function<Dim(SymbolId)>& replace) const {
  if (is_const()) return *this;
  std::vector<Dim> terms = {Dim(expr_->constant)};
  for (const Expr::Term& term : expr_->terms) {
    Dim product = term.coefficient;
    for (const auto& atom : term.atoms) {
      product *=
          atom->kind == AtomKind::kSymbol
              ? replace(atom->symbol)
              : ApplyAtom(atom->kind, atom->a.Substitute(replace), atom->b.Substitute(replace));
    }
    terms.push_back(std::move(product));
  }
  return Sum(terms);
}

int64_t Dim::Evaluate(SymbolValues values) const {
  if (is_const()) return value_;
  int64_t sum = expr_->constant;
  for (const Expr::Term& term : expr_->terms) {
    int64_t product = term.coefficient;
    for (const auto& atom : term.atoms) {
      int64_t factor = 0;
      switch (atom->kind) {
        case AtomKind::kSymbol:
          GT_CHECK(atom->symbol < values.size(), "symbol {} has no value", atom->symbol);
          factor = values[atom->symbol];
          break;
        case AtomKind::kFloorDiv:
          factor = FloorDivide(atom->a.Evaluate(values), atom->b.Evaluate(values));
          break;
        case AtomKind::kMin:
          factor = std::min(atom->a.Evaluate(values), atom->b.Evaluate(values));
          break;
        case AtomKind::kMax:
          factor = std::max(atom->a.Evaluate(values), atom->b.Evaluate(values));
          break;
      }
      product = CheckedMultiply(product, factor);
    }
    sum = CheckedAdd(sum, product);
  }
  return sum;
}

std::pair<Dim, Dim> Dim::SplitBySign() const {
  std::vector<Term> positive, negative;
  for (const Term& term : DimBuilder::TermsOf(*this)) {
    if (term.coefficient > 0) {
      positive.push_back(term);
    } else {
      negative.push_back({CheckedMultiply(term.coefficient, -1), term.atoms});
    }
  }
  int64_t constant = DimBuilder::ConstantOf(*this);
  return {
      DimBuilder::FromTerms(std::move(positive), constant > 0 ? constant : 0),
      DimBuilder::FromTerms(std::move(negative), constant < 0 ? CheckedMultiply(constant, -1) : 0)};
}

int64_t Dim::CoefficientGcd() const {
  int64_t gcd = 0;
  for (const Term& term : DimBuilder::TermsOf(*this)) gcd = Gcd(gcd, term.coefficient);
  return gcd;
}

int64_t Dim::ConstantTerm() const { return DimBuilder::ConstantOf(*this); }

bool Dim::LeadsNegative() const {
  auto terms = DimBuilder::TermsOf(*this);
  return terms.empty() ? value_ < 0 : terms[0].coefficient < 0;
}

std::optional<Dim> Dim::SolveFor(SymbolId id) const {
  int64_t coefficient = 0;
  int appearances = 0;
  ForEachSymbol([&](SymbolId symbol) { appearances += symbol == id; });
  if (appearances != 1) return std::nullopt;
  for (const Term& term : DimBuilder::TermsOf(*this)) {
    if (term.atoms.size() == 1 && term.atoms[0]->kind == AtomKind::kSymbol &&
        term.atoms[0]->symbol == id) {
      coefficient = term.coefficient;
    }
  }
  if (coefficient != 1 && coefficient != -1) return std::nullopt;
  Dim rest = *this - Symbol(id) * Dim(coefficient);
  return coefficient == 1 ? -rest : rest;
}

Dim FloorDiv(const Dim& a, const Dim& b) {
  if (b.Is(1)) return a;
  if (a.is_const() && b.is_const()) return FloorDivide(*a.as_const(), *b.as_const());
  if (b.Is(0)) FloorDivide(0, 0);
  if (a.Is(0)) return 0;
  if (a == b)
    return 1;  // a size expression that divides is never zero: dividing by it would fail otherwise
  auto divisor = DimBuilder::TermsOf(b);
  Dim numerator = a, whole = 0;
  if (b.is_const()) {
    int64_t by = *b.as_const();
    if (by < 0) return FloorDiv(-a, -b);  // what follows needs a remainder that is not negative
    std::tie(whole, numerator) = DimBuilder::DivideTerms(a, by, {});
    // A remainder known to be in [0, by) adds nothing; what is left may still share a factor with
    // the divisor.
    if (numerator.is_const()) return whole + FloorDiv(numerator, b);
    int64_t gcd = Gcd(numerator.CoefficientGcd(), by);
    if (gcd > 1) {
      // floor((g*x + c) / (g*m)) = floor((x + floor(c/g)) / m)
      auto [reduced, rest] = DimBuilder::DivideTerms(numerator, gcd, {});
      if (by / gcd == 1) return whole + reduced;
      return whole +
             DimBuilder::FromAtom(MakeAtom(Dim::AtomKind::kFloorDiv, 0, reduced, Dim(by / gcd)));
    }
  } else if (divisor.size() == 1 && b.ConstantTerm() == 0) {
    std::tie(whole, numerator) =
        DimBuilder::DivideTerms(a, divisor[0].coefficient, divisor[0].atoms);
    if (numerator.Is(0)) return whole;
  } else {
    // A sum as divisor: exact multiples by a constant are the case that occurs.
    int64_t b_gcd = Gcd(b.CoefficientGcd(), b.ConstantTerm());
    int64_t a_gcd = Gcd(a.CoefficientGcd(), a.ConstantTerm());
    if (b_gcd != 0 && a_gcd % b_gcd == 0) {
      int64_t ratio = a_gcd / b_gcd;
      for (int64_t sign : {ratio, -ratio}) {
        if (sign != 0 && a == b * Dim(sign)) return sign;
      }
    }
    // x * (sum) / (sum): try to divide through by the first term of the divisor.
    auto terms = DimBuilder::TermsOf(a);
    if (!terms.empty()) {
      auto [guess, rest] = DimBuilder::DivideTerms(a, divisor[0].coefficient, divisor[0].atoms);
      const bool small = DimBuilder::TermsOf(guess).size() * divisor.size() <= kMaxProductTerms;
      if (small && !guess.Is(0) && guess * b == a) return guess;
    }
  }
  if (numerator.is_const() && b.is_const()) return whole + FloorDiv(numerator, b);
  return whole + DimBuilder::FromAtom(MakeAtom(Dim::AtomKind::kFloorDiv, 0, numerator, b));
}

Dim Mod(const Dim& a, const Dim& b) { return a - b * FloorDiv(a, b); }

Dim CeilDiv(const Dim& a, const Dim& b) { return FloorDiv(a + b - Dim(1), b); }

Dim Min(const Dim& a, const Dim& b) { return MinOrMax(Dim::AtomKind::kMin, a, b); }

Dim Max(const Dim& a, const Dim& b) { return MinOrMax(Dim::AtomKind::kMax, a, b); }

Dim Product(std::span<const Dim> dims) {
  Dim product = 1;
  for (const Dim& dim : dims) product *= dim;
  return product;
}

std::string Dim::ToString(const SymbolNamer& name) const {
  if (is_const()) return std::to_string(value_);
  std::string text;
  auto append_constant = [&text](int64_t value) {
    // Written so that INT64_MIN survives.
    text += value < 0 ? fmt::format(" - {}", std::to_string(value).substr(1))
                      : fmt::format(" + {}", value);
  };
  for (const Expr::Term& term : expr_->terms) {
    bool negative = term.coefficient < 0;
    if (!text.empty()) {
      text += negative ? " - " : " + ";
    } else if (negative) {
      text += "-";
    }
    std::string magnitude = std::to_string(term.coefficient).substr(negative ? 1 : 0);
    bool first = true;
    for (const auto& atom : term.atoms) {
      if (!first) text += " * ";
      first = false;
      switch (atom->kind) {
        case AtomKind::kSymbol:
          text += name(atom->symbol);
          break;
        case AtomKind::kFloorDiv:
          text += fmt::format("floordiv({}, {})", atom->a.ToString(name), atom->b.ToString(name));
          break;
        case AtomKind::kMin:
          text += fmt::format("min({}, {})", atom->a.ToString(name), atom->b.ToString(name));
          break;
        case AtomKind::kMax:
          text += fmt::format("max({}, {})", atom->a.ToString(name), atom->b.ToString(name));
          break;
      }
    }
    if (magnitude != "1") text += " * " + magnitude;
  }
  if (expr_->constant != 0) append_constant(expr_->constant);
  return text;
}

}  // namespace gt
