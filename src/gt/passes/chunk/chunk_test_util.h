// Small steps, written as text, that the tests of chunking cut.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <string_view>

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

// The manager verifies the result and compares hashes with what the pass says it did.
inline PassRun RunChunk(Graph& graph, const ChunkOptions& options) {
  PassList passes;
  passes.push_back(std::make_unique<Chunk>(options));
  PassManager manager(std::move(passes), {.write_reproducer = false});
  return manager.Run(graph).runs.at(0);
}

// The step after chunking.
inline std::unique_ptr<Graph> Cut(std::unique_ptr<Graph> graph, const ChunkOptions& options = {}) {
  Verify(*graph);
  EXPECT_TRUE(RunChunk(*graph, options).changed);
  return graph;
}
inline std::unique_ptr<Graph> Cut(const StepText& step, const ChunkOptions& options = {}) {
  return Cut(Parse(step.Text()), options);
}

}  // namespace gt::testing
