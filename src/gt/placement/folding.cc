#include "gt/placement/folding.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "gt/ir/node_map.h"

namespace gt::placement {
namespace {

uint64_t Mixed(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9fb21c651e98df25ull;
  return state ^ (state >> 32);
}

// Which part of a dimension is taken makes no difference to where it is; chunks of a loss are alike.
bool IsSlice(const Node& node) { return node.op().name.str() == "aten::slice.Tensor"; }

// What tells nodes apart: their work, their phase, and which operands are inputs of the graph.
uint64_t TokenOf(const Graph& graph, const Node& node) {
  const uint64_t call = IsSlice(node) ? HashOfTypes(node) : HashOfCall(node);
  uint64_t token = Mixed(call, static_cast<uint64_t>(node.meta().phase));
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const Value& operand = *node.operand(i);
    if (!operand.is_input()) continue;
    // Parameters and buffers of equal layers are alike.
    const Input& input = *graph.inputs()[static_cast<size_t>(operand.index())];
    token = Mixed(token, static_cast<uint64_t>(i) << 32 | static_cast<uint64_t>(input.role));
  }
  return token;
}

// Position i of [begin, end) is like position i + period, wherever both are inside.
struct Repeat {
  size_t begin, end, period;
};

// Hashes of all stretches of one length, each from the one before it.
class WindowHashes {
 public:
  WindowHashes(const std::vector<uint64_t>& tokens, size_t window)
      : tokens_(tokens), window_(window) {
    for (size_t i = 0; i < window; ++i) {
      hash_ = hash_ * kBase + tokens[i];
      leaving_ *= kBase;
    }
  }
  uint64_t hash() const { return hash_; }
  void Advance() {
    hash_ = hash_ * kBase - leaving_ * tokens_[first_];
    if (first_ + window_ < tokens_.size()) hash_ += tokens_[first_ + window_];
    ++first_;
  }

 private:
  static constexpr uint64_t kBase = 0x9fb21c651e98df25ull;
  const std::vector<uint64_t>& tokens_;
  const size_t window_;
  size_t first_ = 0;
  uint64_t hash_ = 0, leaving_ = 1;
};

// Stretches that follow each other, found by looking for the last place where the next `window` nodes
// were the same.
std::vector<Repeat> FindRepeats(const std::vector<uint64_t>& tokens, size_t window,
                                const std::vector<bool>& taken) {
  std::vector<Repeat> repeats;
  if (tokens.size() < window) return repeats;
  std::unordered_map<uint64_t, size_t> last;
  size_t run_begin = 0, run_period = 0;
  auto close = [&](size_t stop) {
    // The run compares [run_begin, stop) with what is a period before it.
    if (run_period == 0 || stop + window - 1 < run_begin + run_period) return;
    repeats.push_back({run_begin - run_period, stop + window - 1, run_period});
  };
  WindowHashes hashes(tokens, window);
  size_t free_from = 0;  // after the last node in the window that is taken
  for (size_t i = 0; i < window - 1; ++i) {
    if (taken[i]) free_from = i + 1;
  }
  for (size_t i = 0; i + window <= tokens.size(); ++i, hashes.Advance()) {
    if (taken[i + window - 1]) free_from = i + window;
    size_t period = 0;
    if (free_from <= i) {
      auto [found, is_new] = last.try_emplace(hashes.hash(), i);
      if (!is_new) {
        period = i - found->second;
        found->second = i;
      }
    }
    if (period == run_period) continue;
    close(i);
    run_begin = i;
    run_period = period;
  }
  close(tokens.size() - window + 1);
  return repeats;
}

// Gives each position a representative: itself, or the position it is like in the first stretch.
std::vector<size_t> Representatives(const std::vector<uint64_t>& tokens) {
  std::vector<size_t> first(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) first[i] = i;
  std::vector<bool> taken(tokens.size(), false);
  // Long windows find whole layers although parts of a layer look alike; short ones find small layers.
  for (size_t window : {96, 48, 24, 12, 6}) {
    for (const Repeat& repeat : FindRepeats(tokens, window, taken)) {
      bool free = true;
      for (size_t i = repeat.begin; i < repeat.end; ++i) free = free && !taken[i];
      if (!free) continue;
      for (size_t i = repeat.begin; i < repeat.end; ++i) {
        taken[i] = true;
        if (i >= repeat.begin + repeat.period) first[i] = first[i - repeat.period];
      }
    }
  }
  return first;
}

class Folder {
 public:
  Folder(Graph& graph, bool fold) : graph_(graph), nodes_(NodesByNumber(graph)) {
    const std::vector<size_t> first = FirstOf(fold);
    FoldInputs(first, fold);
    FoldNodes(first);
    AddEdges();
    AddOutputs();
    for (int32_t i = 0; i < Size(); ++i) {
      for (int32_t result = 0; result < ClassAt(i).result_count(); ++result) AddUses(i, result);
    }
  }
  Folding Take() { return std::move(folding_); }

 private:
  std::vector<size_t> FirstOf(bool fold) const {
    std::vector<uint64_t> tokens;
    for (const Node* node : nodes_) {
      tokens.push_back(fold ? TokenOf(graph_, *node) : tokens.size());
    }
    return Representatives(tokens);
  }

  // A parameter belongs to the class of the first one that a node of the same class uses in its place.
  void FoldInputs(const std::vector<size_t>& first, bool fold) {
    std::map<std::pair<size_t, int32_t>, int32_t> users;  // node and operand to the first input
    std::vector<int32_t> like(graph_.inputs().size(), -1);
    for (const Node* node : nodes_) {
      for (int32_t i = 0; fold && i < node->operand_count(); ++i) {
        const Value& operand = *node->operand(i);
        if (!operand.is_input()) continue;
        const size_t representative = first[static_cast<size_t>(node->number())];
        auto [user, is_new] = users.try_emplace({representative, i}, operand.index());
        int32_t& own = like[static_cast<size_t>(operand.index())];
        if (own < 0) own = is_new ? operand.index() : like[static_cast<size_t>(user->second)];
      }
    }
    folding_.class_of_input.resize(like.size());
    std::map<int32_t, int32_t> known;
    for (size_t i = 0; i < like.size(); ++i) {
      const int32_t key = like[i] < 0 ? static_cast<int32_t>(i) : like[i];
      auto [found, is_new] = known.try_emplace(key, Size());
      if (is_new) folding_.classes.push_back({.input = graph_.inputs()[i].get()});
      folding_.class_of_input[i] = found->second;
      folding_.classes[static_cast<size_t>(found->second)].members.push_back(
          static_cast<int32_t>(i));
    }
  }

  void FoldNodes(const std::vector<size_t>& first) {
    folding_.class_of_node.resize(first.size());
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i] == i) {
        folding_.class_of_node[i] = Size();
        folding_.classes.push_back({.node = nodes_[static_cast<int32_t>(i)]});
      } else {
        folding_.class_of_node[i] = folding_.class_of_node[first[i]];
      }
      folding_.classes[static_cast<size_t>(folding_.class_of_node[i])].members.push_back(
          static_cast<int32_t>(i));
    }
  }

  int32_t ClassOf(const Value& value) const {
    return value.is_input()
               ? folding_.class_of_input[static_cast<size_t>(value.index())]
               : folding_.class_of_node[static_cast<size_t>(value.producer()->number())];
  }
  static int32_t ResultOf(const Value& value) { return value.is_input() ? 0 : value.index(); }

  void AddEdges() {
    std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, int32_t> counts;
    for (const Node* node : nodes_) {
      const int32_t to = folding_.class_of_node[static_cast<size_t>(node->number())];
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        const Value& operand = *node->operand(i);
        ++counts[{to, i, ClassOf(operand), ResultOf(operand)}];
      }
    }
    for (const auto& [key, count] : counts) {
      const auto& [to, operand, from, result] = key;
      folding_.edges.push_back({from, result, to, operand, count});
    }
  }

  void AddOutputs() {
    std::unordered_map<std::string, int32_t> inputs;
    for (const auto& input : graph_.inputs()) {
      inputs[input->name] = folding_.class_of_input[static_cast<size_t>(input->value.index())];
    }
    std::map<std::tuple<int32_t, int32_t, OutputRole, int32_t>, int32_t> known;
    for (const auto& output : graph_.outputs()) {
      const Value& value = *output->value();
      const bool owned =
          output->role == OutputRole::kGradient || output->role == OutputRole::kBufferUpdate;
      auto owner = owned ? inputs.find(output->name) : inputs.end();
      const int32_t input = owner == inputs.end() ? -1 : owner->second;
      const int32_t from = ClassOf(value), result = ResultOf(value);
      auto [found, is_new] = known.try_emplace({from, result, output->role, input},
                                               static_cast<int32_t>(folding_.outputs.size()));
      if (is_new) folding_.outputs.push_back({from, result, output->role, input, 0, output.get()});
      ++folding_.outputs[static_cast<size_t>(found->second)].count;
      output_of_.push_back(found->second);
    }
  }

  // Where a value is used: class and operand, or the output as a negative number. Ascending.
  using Places = std::vector<std::pair<int32_t, int32_t>>;

  Places PlacesOf(const Value& value) const {
    Places places;
    for (const Use& use : value.uses()) {
      if (use.node() == nullptr) {
        places.emplace_back(-1 - output_of_[static_cast<size_t>(use.index())], 0);
      } else {
        places.emplace_back(folding_.class_of_node[static_cast<size_t>(use.node()->number())],
                            use.index());
      }
    }
    std::sort(places.begin(), places.end());
    return places;
  }

  void AddUses(int32_t class_index, int32_t result) {
    std::map<Places, size_t> known;
    for (int32_t member : ClassAt(class_index).members) {
      const Value& value = ClassAt(class_index).input != nullptr
                               ? graph_.inputs()[static_cast<size_t>(member)]->value
                               : *nodes_[member]->result(result);
      const Places places = PlacesOf(value);
      auto [found, is_new] = known.try_emplace(places, folding_.uses.size());
      if (is_new) {
        folding_.uses.push_back(
            {.from = class_index, .result = result, .places = static_cast<int32_t>(places.size())});
      }
      folding_.uses[found->second].members.push_back(member);
    }
    for (const auto& [places, index] : known) FillUses(places, folding_.uses[index]);
  }

  void FillUses(const Places& places, FoldedUses& alike) const {
    const auto members = static_cast<int32_t>(alike.members.size());
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [to, operand] = places[i];
      const bool again = i > 0 && places[i] == places[i - 1];
      if (to < 0) {
        if (!again) alike.outputs.push_back(folding_.outputs[static_cast<size_t>(-1 - to)]);
        alike.outputs.back().count = members + (again ? alike.outputs.back().count : 0);
      } else {
        if (!again) alike.uses.push_back({alike.from, alike.result, to, operand, 0});
        alike.uses.back().count += members;
      }
    }
  }

  const FoldedClass& ClassAt(int32_t i) const { return folding_.classes[static_cast<size_t>(i)]; }
  int32_t Size() const { return static_cast<int32_t>(folding_.classes.size()); }

  Graph& graph_;
  NodeMap<Node*> nodes_;
  Folding folding_;
  std::vector<int32_t> output_of_;  // by position in the graph
};

}  // namespace

Folding Fold(Graph& graph, bool fold) { return Folder(graph, fold).Take(); }

}  // namespace gt::placement
