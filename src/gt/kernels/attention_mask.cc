#include "gt/kernels/attention_mask.h"

#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace gt {
namespace {

enum class Position : uint8_t { kBatch, kHead, kQuery, kKey };

// A tensor's element at the batch and one of the two positions.
struct LookUp {
  int32_t capture = -1;
  Position at = Position::kBatch;
};

// What a value is in each situation that a pair can be in: the key after the query in another document, after
// it in the same, the query itself, before it in the same, before it in another.
constexpr size_t kSituations = 5;
constexpr std::array<int, kSituations> kQueryMinusKey = {-1, -1, 0, 1, 1};
constexpr std::array<bool, kSituations> kSameDocument = {false, true, true, true, false};
using Truth = std::array<bool, kSituations>;

// No std::variant: GCC 12 takes the unused bytes of one that is copied for uninitialized ones.
struct Meaning {
  enum class Kind : uint8_t { kNone, kPosition, kLookUp, kTruth };

  Meaning() = default;
  explicit Meaning(Position it) : kind(Kind::kPosition), position(it) {}
  explicit Meaning(LookUp it) : kind(Kind::kLookUp), look_up(it) {}
  explicit Meaning(Truth it) : kind(Kind::kTruth), truth(it) {}

  Kind kind = Kind::kNone;
  Position position = Position::kBatch;
  LookUp look_up;
  Truth truth = {};
};

class Table {
 public:
  // Nothing if some node means something else.
  std::optional<Truth> Of(const Graph& mask) {
    int32_t number = 0;
    for (const auto& input : mask.inputs()) {
      if (number < 4) meanings_[&input->value] = Meaning(static_cast<Position>(number));
      captures_[&input->value] = number - 4;
      ++number;
    }
    for (const Node* node : mask.nodes()) {
      if (node->result_count() == 1) meanings_[node->result()] = MeaningOfNode(*node);
    }
    if (mask.outputs().size() != 1) return std::nullopt;
    return TruthOf(*mask.outputs()[0]->value());
  }

  int32_t documents() const { return documents_; }

 private:
  Meaning MeaningOfValue(const Value& value) const {
    const auto found = meanings_.find(&value);
    return found == meanings_.end() ? Meaning() : found->second;
  }
  std::optional<Position> PositionOf(const Value& value) const {
    const Meaning meaning = MeaningOfValue(value);
    if (meaning.kind != Meaning::Kind::kPosition) return std::nullopt;
    return meaning.position;
  }
  std::optional<LookUp> LookUpOf(const Value& value) const {
    const Meaning meaning = MeaningOfValue(value);
    if (meaning.kind != Meaning::Kind::kLookUp) return std::nullopt;
    return meaning.look_up;
  }
  std::optional<Truth> TruthOf(const Value& value) const {
    const Meaning meaning = MeaningOfValue(value);
    if (meaning.kind != Meaning::Kind::kTruth) return std::nullopt;
    return meaning.truth;
  }

  Meaning MeaningOfNode(const Node& node) {
    const std::string_view name = node.op().name.str();
    if (name == "aten::index.Tensor") return LookedUp(node);
    if (name == "aten::_to_copy" || name == "aten::alias" || name == "aten::detach") {
      return MeaningOfValue(*node.operand(0));
    }
    if (node.operand_count() == 1 && (name == "aten::logical_not" || name == "aten::bitwise_not")) {
      const auto truth = TruthOf(*node.operand(0));
      return truth ? Each([&](size_t i) { return !(*truth)[i]; }) : Meaning();
    }
    if (node.operand_count() != 2) return {};
    const auto a = TruthOf(*node.operand(0)), b = TruthOf(*node.operand(1));
    if (a && b) {
      if (name == "aten::logical_and" || name == "aten::bitwise_and.Tensor") {
        return Each([&](size_t i) { return (*a)[i] && (*b)[i]; });
      }
      if (name == "aten::logical_or" || name == "aten::bitwise_or.Tensor") {
        return Each([&](size_t i) { return (*a)[i] || (*b)[i]; });
      }
      return {};
    }
    return Compared(name, *node.operand(0), *node.operand(1));
  }

  static Meaning Each(const std::function<bool(size_t)>& of) {
    Truth truth{};
    for (size_t i = 0; i < kSituations; ++i) truth[i] = of(i);
    return Meaning(truth);
  }

  Meaning LookedUp(const Node& node) const {
    const auto* list = std::get_if<OperandList>(&node.arg(1));
    const auto capture = captures_.find(node.operand(0));
    if (list == nullptr || list->indices.size() != 2 || list->indices[0] < 0 ||
        list->indices[1] < 0 || capture == captures_.end() || capture->second < 0) {
      return {};
    }
    const auto batch = PositionOf(*node.operand(list->indices[0]));
    const auto at = PositionOf(*node.operand(list->indices[1]));
    if (batch != Position::kBatch || (at != Position::kQuery && at != Position::kKey)) return {};
    return Meaning(LookUp{capture->second, *at});
  }

  Meaning Compared(std::string_view name, const Value& left, const Value& right) {
    const auto a = PositionOf(left), b = PositionOf(right);
    if (a && b) {
      const bool straight = a == Position::kQuery && b == Position::kKey;
      const bool swapped = a == Position::kKey && b == Position::kQuery;
      if (!straight && !swapped) return {};
      const int sign = straight ? 1 : -1;
      const auto by = [&](auto holds) {
        return Each([&](size_t i) { return holds(sign * kQueryMinusKey[i]); });
      };
      if (name == "aten::ge.Tensor") return by([](int d) { return d >= 0; });
      if (name == "aten::gt.Tensor") return by([](int d) { return d > 0; });
      if (name == "aten::le.Tensor") return by([](int d) { return d <= 0; });
      if (name == "aten::lt.Tensor") return by([](int d) { return d < 0; });
      if (name == "aten::eq.Tensor") return by([](int d) { return d == 0; });
      if (name == "aten::ne.Tensor") return by([](int d) { return d != 0; });
      return {};
    }
    const auto mine = LookUpOf(left), other = LookUpOf(right);
    if (!mine || !other || mine->capture != other->capture || mine->at == other->at) return {};
    if (documents_ >= 0 && documents_ != mine->capture) return {};
    documents_ = mine->capture;
    if (name == "aten::eq.Tensor") return Each([](size_t i) { return kSameDocument[i]; });
    if (name == "aten::ne.Tensor") return Each([](size_t i) { return !kSameDocument[i]; });
    return {};
  }

  std::unordered_map<const Value*, Meaning> meanings_;
  std::unordered_map<const Value*, int32_t> captures_;
  int32_t documents_ = -1;
};

}  // namespace

MaskMeaning MeaningOf(const Graph* mask) {
  if (mask == nullptr) return {MaskKind::kAll};
  Table table;
  const std::optional<Truth> truth = table.Of(*mask);
  if (!truth) return {};
  if (*truth == Truth{true, true, true, true, true}) return {MaskKind::kAll};
  if (*truth == Truth{false, false, true, true, true}) return {MaskKind::kCausal};
  if (*truth == Truth{false, true, true, true, false}) {
    return {MaskKind::kDocument, table.documents()};
  }
  if (*truth == Truth{false, false, true, true, false}) {
    return {MaskKind::kCausalDocument, table.documents()};
  }
  return {};
}

}  // namespace gt
