#include "gt/trace/symbolic.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gt/base/error.h"
#include "gt/torch_bridge/scope.h"

namespace gt {
namespace {

using c10::SymNode;

class DimNode;
class BoolNode;

Dim DimOf(const SymNode& node);

// How an undecided question is to be answered (libtorch's four ways to look at a symbolic bool).
enum class Ask {
  kGuard,      // branch on it: hint and guard, or an error when it depends on data
  kOblivious,  // sizes bound by data are neither 0 nor 1
  kOrFalse,    // false when only data could tell
  kOrTrue,
  kStatic,  // only what always holds, otherwise false
};

// A comparison or a combination of comparisons, answered when somebody asks. Kept as an expression
// so that `a || b` needs no answer for b when a holds.
class BoolNode : public c10::SymNodeImpl {
 public:
  enum class Kind { kConstant, kEqual, kLess, kAnd, kOr, kNot };

  BoolNode(ShapeEnv& shapes, bool value) : shapes_(shapes), kind_(Kind::kConstant), value_(value) {}
  BoolNode(ShapeEnv& shapes, Kind kind, Dim a, Dim b)
      : shapes_(shapes), kind_(kind), a_(std::move(a)), b_(std::move(b)) {}
  BoolNode(ShapeEnv& shapes, Kind kind, c10::intrusive_ptr<BoolNode> left,
           c10::intrusive_ptr<BoolNode> right)
      : shapes_(shapes), kind_(kind), left_(std::move(left)), right_(std::move(right)) {}

  bool Evaluate(Ask ask) {
    switch (kind_) {
      case Kind::kConstant:
        return value_;
      case Kind::kEqual:
      case Kind::kLess:
        return Compare(ask);
      case Kind::kAnd:
        return left_->Evaluate(ask) && right_->Evaluate(ask);
      case Kind::kOr:
        return left_->Evaluate(ask) || right_->Evaluate(ask);
      case Kind::kNot: {
        // "False when unknown" must stay false under a negation.
        Ask inner = ask == Ask::kOrFalse ? Ask::kOrTrue : ask == Ask::kOrTrue ? Ask::kOrFalse : ask;
        if (ask == Ask::kStatic) {
          auto known = Known();
          return known && *known;
        }
        return !left_->Evaluate(inner);
      }
    }
    return false;
  }

  bool is_int() override { return false; }
  bool is_bool() override { return true; }
  bool is_float() override { return false; }
  SymNode sym_and(const SymNode& other) override { return Combine(Kind::kAnd, other); }
  SymNode sym_or(const SymNode& other) override { return Combine(Kind::kOr, other); }
  SymNode sym_not() override {
    return c10::make_intrusive<BoolNode>(shapes_, Kind::kNot, Self(), nullptr);
  }
  SymNode clone() override { return Self(); }
  SymNode wrap_bool(bool value) override { return c10::make_intrusive<BoolNode>(shapes_, value); }
  SymNode wrap_int(int64_t value) override;
  bool guard_bool(const char*, int64_t) override { return Evaluate(Ask::kGuard); }
  bool guard_size_oblivious(const char*, int64_t) override { return Evaluate(Ask::kOblivious); }
  bool guard_or_false(const char*, int64_t) override { return Evaluate(Ask::kOrFalse); }
  bool guard_or_true(const char*, int64_t) override { return Evaluate(Ask::kOrTrue); }
  bool statically_known_true(const char*, int64_t) override { return Evaluate(Ask::kStatic); }
  // An assertion of a kernel's argument check. What only data can tell is checked by the kernel
  // itself when it runs.
  bool expect_true(const char*, int64_t) override { return Evaluate(Ask::kOrTrue); }
  bool bool_() override { return Evaluate(Ask::kGuard); }
  bool has_hint() override { return true; }
  std::optional<bool> constant_bool() override { return Known(); }
  std::string str() override { return "symbolic bool"; }

 private:
  c10::intrusive_ptr<BoolNode> Self() { return c10::intrusive_ptr<BoolNode>::reclaim_copy(this); }
  SymNode Combine(Kind kind, const SymNode& other) {
    auto* right = dynamic_cast<BoolNode*>(other.get());
    c10::intrusive_ptr<BoolNode> operand =
        right != nullptr ? right->Self()
                         : c10::make_intrusive<BoolNode>(shapes_, other->guard_bool("", 0));
    return c10::make_intrusive<BoolNode>(shapes_, kind, Self(), std::move(operand));
  }
  std::optional<bool> Known() {
    switch (kind_) {
      case Kind::kConstant:
        return value_;
      case Kind::kEqual:
        return shapes_.KnownEqual(a_, b_);
      case Kind::kLess:
        return shapes_.KnownLess(a_, b_);
      case Kind::kNot: {
        auto inner = left_->Known();
        return inner ? std::optional<bool>(!*inner) : std::nullopt;
      }
      case Kind::kAnd:
      case Kind::kOr: {
        bool deciding = kind_ == Kind::kOr;
        auto left = left_->Known(), right = right_->Known();
        if ((left && *left == deciding) || (right && *right == deciding)) return deciding;
        if (left && right) return !deciding;
        return std::nullopt;
      }
    }
    return std::nullopt;
  }
  bool Compare(Ask ask) {
    if (auto known = Known()) return *known;
    bool data = shapes_.HasDataSymbol(a_) || shapes_.HasDataSymbol(b_);
    if (ask == Ask::kStatic) return false;
    if (data && ask == Ask::kOrTrue) return true;
    if (data && (ask == Ask::kOrFalse || ask == Ask::kOblivious)) return false;
    return kind_ == Kind::kEqual ? shapes_.Equal(a_, b_) : shapes_.Less(a_, b_);
  }

  ShapeEnv& shapes_;
  Kind kind_;
  bool value_ = false;
  Dim a_, b_;
  c10::intrusive_ptr<BoolNode> left_, right_;
};

class DimNode : public c10::SymNodeImpl {
 public:
  DimNode(ShapeEnv& shapes, Dim dim) : shapes_(shapes), dim_(std::move(dim)) {}
  const Dim& dim() const { return dim_; }
  ShapeEnv& shapes() const { return shapes_; }

  bool is_int() override { return true; }
  bool is_bool() override { return false; }
  bool is_float() override { return false; }

  SymNode add(const SymNode& other) override { return Make(dim_ + DimOf(other)); }
  SymNode sub(const SymNode& other) override { return Make(dim_ - DimOf(other)); }
  SymNode mul(const SymNode& other) override { return Make(dim_ * DimOf(other)); }
  SymNode floordiv(const SymNode& other) override { return Make(FloorDiv(dim_, DimOf(other))); }
  SymNode int_floordiv(const SymNode& other) override { return floordiv(other); }
  SymNode mod(const SymNode& other) override { return Make(Mod(dim_, DimOf(other))); }
  SymNode neg() override { return Make(-dim_); }
  SymNode sym_min(const SymNode& other) override { return Make(Min(dim_, DimOf(other))); }
  SymNode sym_max(const SymNode& other) override { return Make(Bounded(dim_, DimOf(other))); }

  SymNode eq(const SymNode& o) override { return Compare(BoolNode::Kind::kEqual, dim_, DimOf(o)); }
  SymNode ne(const SymNode& o) override { return eq(o)->sym_not(); }
  SymNode lt(const SymNode& o) override { return Compare(BoolNode::Kind::kLess, dim_, DimOf(o)); }
  SymNode gt(const SymNode& o) override { return Compare(BoolNode::Kind::kLess, DimOf(o), dim_); }
  SymNode le(const SymNode& o) override { return gt(o)->sym_not(); }
  SymNode ge(const SymNode& o) override { return lt(o)->sym_not(); }

  SymNode is_contiguous(c10::ArrayRef<SymNode> sizes, c10::ArrayRef<SymNode> strides) override {
    return Bool(IsContiguous(Dims(sizes), Dims(strides), shapes_));
  }
  SymNode is_non_overlapping_and_dense(c10::ArrayRef<SymNode> sizes,
                                       c10::ArrayRef<SymNode> strides) override {
    return Bool(IsDense(Dims(sizes), Dims(strides), shapes_));
  }
  // Image layouts do not occur in language models; a tensor that is not row-major is simply
  // strided.
  SymNode is_channels_last_contiguous_2d(c10::ArrayRef<SymNode>, c10::ArrayRef<SymNode>) override {
    return Bool(false);
  }
  SymNode is_channels_last_contiguous_3d(c10::ArrayRef<SymNode>, c10::ArrayRef<SymNode>) override {
    return Bool(false);
  }
  SymNode is_channels_last_strides_2d(c10::ArrayRef<SymNode>, c10::ArrayRef<SymNode>) override {
    return Bool(false);
  }
  SymNode is_channels_last_strides_3d(c10::ArrayRef<SymNode>, c10::ArrayRef<SymNode>) override {
    return Bool(false);
  }

  SymNode clone() override { return Make(dim_); }
  SymNode wrap_int(int64_t value) override { return Make(Dim(value)); }
  SymNode wrap_bool(bool value) override { return Bool(value); }
  int64_t guard_int(const char*, int64_t) override { return Concrete(); }
  int64_t int_() override { return Concrete(); }
  // Sizes are never negative and an index check that only data could fail is the kernel's to make.
  bool has_hint() override { return true; }
  std::optional<int64_t> maybe_as_int() override { return dim_.as_const(); }
  std::optional<int64_t> constant_int() override { return dim_.as_const(); }
  bool is_symbolic() override { return !dim_.is_const(); }
  std::string str() override { return shapes_.Print(dim_); }

 private:
  SymNode Make(Dim dim) { return c10::make_intrusive<DimNode>(shapes_, std::move(dim)); }
  SymNode Bool(bool value) { return c10::make_intrusive<BoolNode>(shapes_, value); }
  SymNode Compare(BoolNode::Kind kind, Dim a, Dim b) {
    return c10::make_intrusive<BoolNode>(shapes_, kind, std::move(a), std::move(b));
  }
  // max(size, 1) is in every stride computation; where the range decides it, it must not stay
  // in the expression.
  Dim Bounded(const Dim& a, const Dim& b) {
    if (auto less = shapes_.KnownLess(a, b)) return *less ? b : a;
    if (auto less = shapes_.KnownLess(b, a)) return *less ? a : b;
    return Max(a, b);
  }
  static std::vector<Dim> Dims(c10::ArrayRef<SymNode> nodes) {
    std::vector<Dim> dims;
    dims.reserve(nodes.size());
    for (const SymNode& node : nodes) dims.push_back(DimOf(node));
    return dims;
  }
  int64_t Concrete() {
    if (auto value = shapes_.KnownValue(dim_)) return *value;
    Fail(ErrorCode::kConcreteSize,
         "{} in module '{}' needs the plain number behind the symbolic size {}; taking it would "
         "fix the graph to one "
         "size. Use the symbolic form (sym_size, view_symint, ...), or do not mark this dimension "
         "as symbolic",
         CurrentOperation(), CurrentScope().module.str(), shapes_.Print(dim_));
  }

  ShapeEnv& shapes_;
  Dim dim_;
};

SymNode BoolNode::wrap_int(int64_t value) {
  return c10::make_intrusive<DimNode>(shapes_, Dim(value));
}

Dim DimOf(const SymNode& node) {
  if (auto* ours = dynamic_cast<DimNode*>(node.get())) return ours->dim();
  if (auto value = node->constant_int()) return *value;
  Fail(ErrorCode::kForeignSymbol,
       "a symbolic integer of another tracer ({}) was mixed into this one", node->str());
}

}  // namespace

c10::SymInt ToSymInt(const Dim& dim, ShapeEnv& shapes) {
  if (auto value = dim.as_const()) return c10::SymInt(*value);
  return c10::SymInt(SymNode(c10::make_intrusive<DimNode>(shapes, dim)));
}

Dim ToDim(const c10::SymInt& value) {
  if (auto plain = value.maybe_as_int()) return *plain;
  return DimOf(value.toSymNode());
}

bool IsContiguous(std::span<const Dim> sizes, std::span<const Dim> strides, ShapeEnv& shapes) {
  for (const Dim& size : sizes) {
    if (shapes.IsEmptySize(size)) return true;
  }
  Dim expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (shapes.IsOne(sizes[i])) continue;
    if (!shapes.EqualOrUnknown(strides[i], expected)) return false;
    expected = expected * sizes[i];
  }
  return true;
}

bool IsDense(std::span<const Dim> sizes, std::span<const Dim> strides, ShapeEnv& shapes) {
  if (IsContiguous(sizes, strides, shapes)) return true;
  // Walk from the innermost dimension outwards: each step looks for the dimension whose stride is
  // what is expected next.
  std::vector<size_t> left;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!shapes.IsOne(sizes[i])) left.push_back(i);
  }
  Dim expected = 1;
  while (!left.empty()) {
    auto next = std::find_if(left.begin(), left.end(),
                             [&](size_t i) { return shapes.EqualOrUnknown(strides[i], expected); });
    if (next == left.end()) return false;
    expected = expected * sizes[*next];
    left.erase(next);
  }
  return true;
}

}  // namespace gt
