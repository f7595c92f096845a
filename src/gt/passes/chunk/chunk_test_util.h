// Small steps, written as text, that the tests of chunking cut.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/chunk/chunk.h"
#include "gt/passes/framework/manager.h"

namespace gt::testing {

// Nodes say where they belong as <layers.0>, <layers.0 backward>, <head loss>: short for their
// metadata. Modules are taken to have experts, unless they are called dense: <layers.0 dense>.
inline std::string WithMetadata(std::string_view text) {
  std::string result;
  while (true) {
    const size_t open = text.find('<');
    result += text.substr(0, open);
    if (open == std::string_view::npos) return result;
    const size_t close = text.find('>', open);
    std::istringstream words{std::string(text.substr(open + 1, close - open - 1))};
    std::string module, word, phase;
    bool dense = false;
    words >> module;
    while (words >> word) {
      if (word == "dense") {
        dense = true;
      } else {
        phase = ", phase = " + word;
      }
    }
    result += "{module = \"" + module + "\"" + phase + (dense ? "}" : ", ep = compute}");
    text.remove_prefix(close + 1);
  }
}

// A step on %x, of s0 rows, with a parameter %w. More inputs and symbols are given with their
// separators in front.
struct StepText {
  std::string_view nodes;
  std::string_view outputs;
  std::string_view inputs = {};
  int64_t extent = 4;
  std::string_view symbols = {};
  std::string_view facts = {};
  std::string_view guards = {};

  std::string Text() const {
    auto block = [](std::string_view name, std::string_view entries) {
      return entries.empty() ? "" : fmt::format("{} {{ {} }}\n", name, entries);
    };
    return fmt::format(
        "graph @step(%x: input \"x\" f32[s0, 8], %w: param \"w\" f32[8, 8]{}) {{\n"
        "symbols {{ s0: input, hint {}, range [2, 64]{} }}\n{}{}{}\nreturn {}\n}}\n",
        inputs, extent, symbols, block("facts", facts), block("guards", guards),
        WithMetadata(nodes), outputs);
  }
};

class Chunked {
 public:
  Chunked(std::unique_ptr<Graph> graph, PassRun run) : graph_(std::move(graph)), run_(run) {}

  Graph& graph() const { return *graph_; }
  int64_t Count(std::string_view counter) const {
    for (const auto& [name, value] : run_.counters) {
      if (name == counter) return value;
    }
    ADD_FAILURE() << "no counter " << counter;
    return -1;
  }

  // Every node in order, as "results = operator(operands)", with plain names of operators.
  std::string Story() const {
    std::vector<std::string> lines;
    for (const Node* node : graph_->nodes()) lines.push_back(Line(*node));
    return Join(lines, "\n");
  }
  std::string LineOf(std::string_view value) const { return Line(NodeOf(value)); }
  int CountOf(std::string_view op) const {
    int count = 0;
    for (const Node* node : graph_->nodes()) count += node->op().name.str() == op;
    return count;
  }

  const Node& NodeOf(std::string_view value) const {
    const Value* found = graph_->FindValue(value);
    GT_CHECK(found != nullptr && !found->is_input(), "no node {} in\n{}", value, Print(*graph_));
    return *found->producer();
  }
  std::string TypeOf(std::string_view value) const {
    return Print(graph_->FindValue(value)->type(), graph_->shapes());
  }
  std::string PrintOf(std::string_view value) const {
    return Print(NodeOf(value), {.metadata = false});
  }
  std::string MetadataOf(std::string_view value) const {
    const std::string text = Print(NodeOf(value));
    return text.substr(text.find(" {") + 1);
  }
  std::string OutputsLine() const {
    std::vector<std::string> names;
    for (const auto& output : graph_->outputs()) names.push_back(output->value()->name());
    return Join(names, " ");
  }

 private:
  static std::string Line(const Node& node) {
    std::vector<std::string> results, operands;
    for (int32_t i = 0; i < node.result_count(); ++i) results.push_back(node.result(i)->name());
    for (int32_t i = 0; i < node.operand_count(); ++i) operands.push_back(node.operand(i)->name());
    std::string op = node.op().name.str();
    op = op.substr(op.find("::") + 2);
    op = op.substr(0, op.find('.'));
    return fmt::format("{}{}{}({})", Join(results, ", "), results.empty() ? "" : " = ", op,
                       Join(operands, ", "));
  }

  std::unique_ptr<Graph> graph_;
  PassRun run_;
};

// The manager verifies the result and compares hashes with what the pass says it did.
inline PassRun RunChunk(Graph& graph, const ChunkOptions& options) {
  PassList passes;
  passes.push_back(std::make_unique<Chunk>(options));
  PassManager manager(std::move(passes), {.write_reproducer = false});
  return manager.Run(graph).runs.at(0);
}

inline Chunked Cut(std::unique_ptr<Graph> graph, const ChunkOptions& options = {}) {
  Verify(*graph);
  auto same = graph->Clone();
  PassRun run = RunChunk(*graph, options);
  EXPECT_TRUE(run.changed);
  RunChunk(*same, options);
  EXPECT_EQ(Print(*same), Print(*graph)) << "an equal graph is cut otherwise";
  EXPECT_EQ(Parse(Print(*graph))->Hash(), graph->Hash());
  return {std::move(graph), std::move(run)};
}
inline Chunked Cut(const StepText& step, const ChunkOptions& options = {}) {
  return Cut(Parse(step.Text()), options);
}

}  // namespace gt::testing
