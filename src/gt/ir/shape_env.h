// ShapeEnv: what is known about the symbols of a graph, and the one place where questions about
// sizes are answered.
//
// A symbol is bound by an input dimension (it has a hint, the size seen when the step was captured)
// or by a node that reads data (token counts of an expert exchange). A question such as "is this
// size 1?" is answered
//   1. from what always holds: canonical form, ranges, declared facts;
//   2. else, if only input symbols are involved, from their hints, and the answer is recorded as a
//      guard that every later run must satisfy;
//   3. else it is an error: a branch on data would bake one batch's routing into the graph.
// Nothing else ever reads a hint.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gt/base/name.h"
#include "gt/base/pointer_map.h"
#include "gt/ir/dim.h"

namespace gt {

inline constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

struct Symbol {
  enum class Kind : uint8_t { kInput, kData };
  std::string name;  // s0, u3, or whatever a .gtir file calls it
  Kind kind = Kind::kInput;
  int64_t hint = 0;
  int64_t low = 0;
  int64_t high = kUnbounded;  // inclusive
  friend bool operator==(const Symbol&, const Symbol&) = default;
};

struct Interval {
  int64_t low;   // INT64_MIN: no bound
  int64_t high;  // kUnbounded: no bound
};

// A statement about an integer expression: `expression == 0` or `expression < 0`, or its negation.
// Every comparison of two Dims has exactly one such spelling, so that equal questions are
// recognized as equal.
struct Predicate {
  enum class Kind : uint8_t { kZero, kNegative };
  Kind kind;
  Dim expression;
  bool holds = true;

  static Predicate Equal(const Dim& a, const Dim& b);  // also for 16 a == 16 b and b == a
  static Predicate Less(const Dim& a, const Dim& b);

  friend bool operator==(const Predicate&, const Predicate&) = default;
  std::string ToString(const SymbolNamer& name) const;  // "s0 != 1", "s0 * 16 < s1"
};

struct Guard {
  Predicate predicate;
  Name module;  // who asked: module FQN and operator at the time of the question
  Name op;
};

class ShapeEnv {
 public:
  // What to do with a question that only a hint can answer.
  enum class Mode {
    kRecord,  // answer it and remember the guard (capturing, rewriting)
    kCheck,   // it must have been recorded before (verifying)
  };

  SymbolId AddSymbol(Symbol symbol);
  SymbolId AddInputSymbol(int64_t hint, int64_t low = 2, int64_t high = kUnbounded);
  SymbolId AddDataSymbol(int64_t hint, int64_t low = 0, int64_t high = kUnbounded);
  const std::vector<Symbol>& symbols() const { return symbols_; }
  const Symbol& symbol(SymbolId id) const { return symbols_[id]; }
  std::optional<SymbolId> Find(std::string_view name) const;
  std::string NameOf(SymbolId id) const { return symbols_[id].name; }
  std::string Print(const Dim& dim) const;

  // Declares that a == b always holds (the splits of an exchange sum to its rows). Used by every
  // later comparison.
  void AddFact(const Dim& a, const Dim& b);
  const std::vector<std::pair<Dim, Dim>>& facts() const { return facts_; }

  void AddGuard(Guard guard);
  const std::vector<Guard>& guards() const { return guards_; }

  // Questions. `Known*` answer only what always holds and leave no trace; the others follow the
  // three steps above.
  std::optional<bool> KnownEqual(const Dim& a, const Dim& b) const;
  std::optional<bool> KnownLess(const Dim& a, const Dim& b) const;
  bool Equal(const Dim& a, const Dim& b);
  bool Less(const Dim& a, const Dim& b);
  bool LessOrEqual(const Dim& a, const Dim& b) { return !Less(b, a); }
  bool IsZero(const Dim& a) { return Equal(a, 0); }
  // For shape rules: a size bound by data counts as neither 0 nor 1 (broadcasting and contiguity
  // then have one answer for every batch; kernels handle the real value at run time).
  bool IsOne(const Dim& size);
  bool IsEmptySize(const Dim& size);
  // As Equal, but a comparison that only data could decide is false instead of an error.
  bool EqualOrUnknown(const Dim& a, const Dim& b);

  Interval Bounds(const Dim& dim) const;
  int64_t Hint(const Dim& dim) const;
  // Of all symbols, as Dim::Evaluate takes them.
  SymbolValues Hints() const { return hints_; }
  // For a data symbol, whose hint only estimates of time and memory look at: answers, facts and
  // guards stay what they are. Within the symbol's range.
  void SetDataHint(SymbolId id, int64_t hint);
  bool HasDataSymbol(const Dim& dim) const;
  // The value of a dim that must be one number: a constant, or one pinned by a range of a single
  // value.
  std::optional<int64_t> KnownValue(const Dim& dim) const;

  // From now on these symbols are their hints, everywhere in facts and guards. Guards that no other
  // symbol is part of are gone: they hold (else HintBreaksGuard). What mentions the symbols outside
  // of this object is the caller's to change.
  void Concretize(const std::function<bool(SymbolId)>& chosen);

  // First guard that the values break, or nothing. values[i] belongs to symbol i. Guards never
  // mention data symbols.
  const Guard* FirstBroken(SymbolValues values) const;

  void set_mode(Mode mode) { mode_ = mode; }
  Mode mode() const { return mode_; }
  // Who is asking, for guards and messages. Interned names: setting them costs two stores.
  void SetAsker(Name module, Name op) {
    module_ = module;
    op_ = op;
  }

  SymbolNamer Namer() const {
    return [this](SymbolId id) { return symbols_[id].name; };
  }

 private:
  Dim ApplyFacts(const Dim& dim) const;
  std::optional<bool> Decide(const Predicate& predicate) const;
  std::optional<bool> DecideByBounds(const Predicate& predicate) const;
  bool Answer(Predicate predicate);

  std::vector<Symbol> symbols_;
  std::vector<int64_t> hints_;    // of symbols_
  PointerMap<SymbolId> by_name_;  // keyed by Name::id
  uint32_t next_input_ = 0, next_data_ = 0;
  std::vector<std::pair<Dim, Dim>> facts_;
  std::unordered_map<SymbolId, Dim> solved_;  // symbol -> what it equals, from the facts
  // The facts that mention a data symbol, in order: a list per symbol, linked by positions, so that
  // copying all of them copies two arrays.
  struct FactList {
    int32_t first = -1;
    int32_t last = -1;
  };
  struct FactEntry {
    uint32_t fact;
    int32_t next = -1;
  };
  std::vector<FactList> facts_about_;  // by symbol; shorter where the last ones have none
  std::vector<FactEntry> fact_entries_;
  std::vector<Guard> guards_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> guard_index_;
  Mode mode_ = Mode::kRecord;
  Name module_, op_;
};

// Sets the mode for a scope.
class ShapeEnvModeScope {
 public:
  ShapeEnvModeScope(ShapeEnv& env, ShapeEnv::Mode mode) : env_(env), before_(env.mode()) {
    env.set_mode(mode);
  }
  ~ShapeEnvModeScope() { env_.set_mode(before_); }
  ShapeEnvModeScope(const ShapeEnvModeScope&) = delete;
  ShapeEnvModeScope& operator=(const ShapeEnvModeScope&) = delete;

 private:
  ShapeEnv& env_;
  ShapeEnv::Mode before_;
};

}  // namespace gt
