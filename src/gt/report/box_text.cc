#include "gt/report/box_text.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "gt/base/text.h"
#include "gt/report/graph_boxes.h"

namespace gt {
namespace boxes {

std::string Fitted(std::string text, size_t longest) {
  if (text.size() <= longest) return text;
  size_t end = longest - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

std::string_view ShortName(const Operator& op) {
  std::string_view name = op.name.str();
  if (size_t colons = name.rfind("::"); colons != name.npos) name.remove_prefix(colons + 2);
  name = name.substr(0, name.find('.'));
  name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  return name;
}

std::string TypeText(const TensorType& type, const ShapeEnv& shapes) {
  std::vector<std::string> sizes;
  for (const Dim& size : type.sizes) sizes.push_back(size.ToString(shapes.Namer()));
  return fmt::format("{}[{}]", DTypeName(type.dtype), Join(sizes, ", "));
}

std::string PlacementOf(const Value& value) {
  if (value.is_input() || value.index() > 0) return "";
  return value.producer()->meta().placement.str();
}

std::string NodeText(const Node& node, const ShapeEnv& shapes) {
  std::string text;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    text += (i > 0 ? ", " : "") + ValueText(*node.result(i), shapes);
  }
  return fmt::format("{}{}{}", text, text.empty() ? "" : " = ", node.op().name.str());
}

std::string OperatorsText(const std::vector<const Node*>& nodes) {
  constexpr size_t kMost = 3;
  struct Count {
    const Operator* op;
    size_t count;
    int Rank() const { return op->is_view() ? 2 : op->flops == nullptr; }
  };
  std::vector<Count> counts;
  std::unordered_map<std::string_view, size_t> known;
  for (const Node* node : nodes) {
    auto [found, is_new] = known.try_emplace(ShortName(node->op()), counts.size());
    if (is_new) counts.push_back({&node->op(), 0});
    ++counts[found->second].count;
  }
  std::stable_sort(counts.begin(), counts.end(), [](const Count& a, const Count& b) {
    return std::pair(a.Rank(), b.count) < std::pair(b.Rank(), a.count);
  });
  std::vector<std::string> parts;
  for (const Count& count : counts) {
    if (parts.size() == kMost) {
      parts.emplace_back("...");
      break;
    }
    parts.push_back(count.count == 1 ? std::string(ShortName(*count.op))
                                     : fmt::format("{} x{}", ShortName(*count.op), count.count));
  }
  return Join(parts, ", ");
}

std::string_view Below(std::string_view root, std::string_view name) {
  if (root.empty()) return name;
  if (!name.starts_with(root)) return name;
  if (name.size() == root.size()) return {};
  return name[root.size()] == '.' ? name.substr(root.size() + 1) : name;
}

}  // namespace boxes

std::string ValueText(const Value& value, const ShapeEnv& shapes) {
  std::string text = fmt::format("%{} {}", value.name(), boxes::TypeText(value.type(), shapes));
  if (const std::string placement = boxes::PlacementOf(value); !placement.empty()) {
    text += " " + placement;
  }
  return text;
}

}  // namespace gt
