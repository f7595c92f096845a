// Dim: an integer expression over symbols, kept in canonical form, so that two Dims are equal
// exactly when they print the same. Sizes, strides, offsets and integer arguments of operators are
// Dims; a graph therefore has no size-plumbing nodes.
//
// Canonical form: constant + sum of coefficient * product of atoms, atoms and terms in one fixed
// order, no zero coefficients. An atom is a symbol or one of floordiv, min, max of Dims that could
// not be simplified further. A constant needs no allocation; everything else is an immutable shared
// expression, cheap to copy and safe to share across threads. Division is floor division and every
// operation checks for overflow: sizes of a 405B model times a batch come close enough to 2^63 that
// a silent wrap must not be possible. Expressions are also limited in size (kExpressionTooLarge):
// multiplying sums, or substituting facts into each other, could otherwise grow one without bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gt {

// Index into a graph's symbol table.
using SymbolId = uint32_t;

class Dim;

// Names of symbols, for printing; and values of symbols, for evaluating.
using SymbolNamer = std::function<std::string(SymbolId)>;
using SymbolValues = std::span<const int64_t>;

class Dim {
 public:
  struct Expr;  // defined in dim.cc
  enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMin, kMax };

  Dim() = default;
  Dim(int64_t value) : value_(value) {}  // NOLINT: integers are Dims
  static Dim Symbol(SymbolId id);

  bool is_const() const { return expr_ == nullptr; }
  std::optional<int64_t> as_const() const {
    return is_const() ? std::optional<int64_t>(value_) : std::nullopt;
  }
  bool Is(int64_t value) const { return is_const() && value_ == value; }
  // Made of numbers, symbols, sums and products alone: no division, minimum or maximum. Cheap.
  bool is_polynomial() const;
  // Set when the Dim is exactly one symbol.
  std::optional<SymbolId> as_symbol() const;
  // Set when the Dim is a positive number times one symbol.
  struct Multiple {
    int64_t factor;
    SymbolId symbol;
  };
  std::optional<Multiple> as_multiple() const;

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  Dim operator-() const { return Dim(0) - *this; }
  Dim& operator+=(const Dim& b) { return *this = *this + b; }
  Dim& operator*=(const Dim& b) { return *this = *this * b; }

  friend bool operator==(const Dim& a, const Dim& b);
  friend bool operator!=(const Dim& a, const Dim& b) { return !(a == b); }
  uint64_t Hash() const;

  // Visits each symbol once per occurrence.
  void ForEachSymbol(const std::function<void(SymbolId)>& visit) const;
  bool Contains(SymbolId id) const;

  // The same expression with each symbol replaced by what `replace` gives for it.
  Dim Substitute(const std::function<Dim(SymbolId)>& replace) const;
  // The number this is when symbol i has values[i]. Throws on division by zero and on overflow.
  int64_t Evaluate(SymbolValues values) const;

  // Splits a sum into the left and right sides of an equality so that both sides print without
  // minus signs: s0 - 4 gives (s0, 4).
  std::pair<Dim, Dim> SplitBySign() const;
  // Greatest common divisor of the coefficients of all non-constant terms (0 for a constant), and
  // the constant term.
  int64_t CoefficientGcd() const;
  int64_t ConstantTerm() const;
  // True if the first non-constant coefficient is negative: used to give `d == 0` one spelling.
  bool LeadsNegative() const;
  // If the expression is `c * s + rest` with c = 1 or -1, where s is this symbol and appears
  // nowhere else: the Dim that s equals when the expression is zero.
  std::optional<Dim> SolveFor(SymbolId id) const;

  std::string ToString(const SymbolNamer& name) const;

  // Structural walk for code that needs the parts (bounds, compiled evaluators, printers).
  template <typename R>
  struct Visitor {
    std::function<R(int64_t)> constant;
    std::function<R(SymbolId)> symbol;
    std::function<R(AtomKind, R, R)> binary;  // floordiv, min, max
    std::function<R(R, R)> add;
    std::function<R(R, R)> multiply;
  };
  template <typename R>
  R Fold(const Visitor<R>& visitor) const;

 private:
  friend Dim FloorDiv(const Dim& a, const Dim& b);
  friend Dim Min(const Dim& a, const Dim& b);
  friend Dim Max(const Dim& a, const Dim& b);
  friend struct DimBuilder;

  explicit Dim(std::shared_ptr<const Expr> expr) : expr_(std::move(expr)) {}

  int64_t value_ = 0;
  std::shared_ptr<const Expr> expr_;
};

Dim FloorDiv(const Dim& a, const Dim& b);
Dim Mod(const Dim& a, const Dim& b);  // a - b * FloorDiv(a, b)
Dim CeilDiv(const Dim& a, const Dim& b);
Dim Min(const Dim& a, const Dim& b);
Dim Max(const Dim& a, const Dim& b);
Dim Product(std::span<const Dim> dims);
Dim Sum(std::span<const Dim> dims);  // adding one by one would cost the square of their number

struct Dim::Expr {
  struct Atom {
    AtomKind kind;
    SymbolId symbol = 0;
    Dim a, b;
    uint64_t hash = 0;
    uint32_t weight = 1;  // atoms it is made of, itself included
    uint32_t depth = 1;   // how deeply they are nested
  };
  using AtomPtr = std::shared_ptr<const Atom>;
  // The factors of a term: nearly always one, which needs no allocation.
  class Atoms {
   public:
    using value_type = AtomPtr;  // for std::back_inserter
    Atoms() = default;
    Atoms(const Atoms& other) : one_(other.one_), many_(CopyOf(other)) {}
    Atoms(Atoms&&) = default;
    Atoms& operator=(const Atoms& other) { return *this = Atoms(other); }
    Atoms& operator=(Atoms&&) = default;

    size_t size() const { return many_ ? many_->size() : one_ ? 1 : 0; }
    bool empty() const { return size() == 0; }
    const AtomPtr* begin() const { return many_ ? many_->data() : &one_; }
    const AtomPtr* end() const { return begin() + size(); }
    const AtomPtr& operator[](size_t i) const { return begin()[i]; }
    void push_back(AtomPtr atom) {
      if (empty()) {
        one_ = std::move(atom);
        return;
      }
      if (!many_) many_ = std::make_unique<std::vector<AtomPtr>>(1, std::move(one_));
      many_->push_back(std::move(atom));
    }

   private:
    static std::unique_ptr<std::vector<AtomPtr>> CopyOf(const Atoms& other) {
      return other.many_ ? std::make_unique<std::vector<AtomPtr>>(*other.many_) : nullptr;
    }
    AtomPtr one_;
    std::unique_ptr<std::vector<AtomPtr>> many_;  // all of them if there are several, else null
  };
  // coefficient * atoms[0] * atoms[1] * ...; atoms sorted, repeated for powers.
  struct Term {
    int64_t coefficient = 0;
    Atoms atoms;
  };
  int64_t constant = 0;
  std::vector<Term> terms;
  uint64_t hash = 0;
  uint32_t weight = 0;  // of all atoms, counted as often as they print
  uint32_t depth = 0;
};

inline bool Dim::is_polynomial() const {
  if (is_const()) return true;
  for (const Expr::Term& term : expr_->terms) {
    for (const auto& atom : term.atoms) {
      if (atom->kind != AtomKind::kSymbol) return false;
    }
  }
  return true;
}

template <typename R>
R Dim::Fold(const Visitor<R>& visitor) const {
  if (is_const()) return visitor.constant(value_);
  std::optional<R> sum;
  for (const Expr::Term& term : expr_->terms) {
    std::optional<R> product;
    if (term.coefficient != 1) product = visitor.constant(term.coefficient);
    for (const auto& atom : term.atoms) {
      R factor = atom->kind == AtomKind::kSymbol
                     ? visitor.symbol(atom->symbol)
                     : visitor.binary(atom->kind, atom->a.Fold(visitor), atom->b.Fold(visitor));
      product = product ? visitor.multiply(std::move(*product), std::move(factor)) : factor;
    }
    sum = sum ? visitor.add(std::move(*sum), std::move(*product)) : std::move(*product);
  }
  if (expr_->constant != 0) sum = visitor.add(std::move(*sum), visitor.constant(expr_->constant));
  return std::move(*sum);
}

}  // namespace gt

template <>
struct std::hash<gt::Dim> {
  std::size_t operator()(const gt::Dim& dim) const { return dim.Hash(); }
};
