// A pass: -(-x) is x, bit for bit, for every number but NaN, whose sign nobody may rely on.
//
//   double_negation FILE.gtir    prints the graph after the pass
#include <fmt/format.h>

#include "gt/analysis/aliasing.h"
#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/passes/cleanup/dead_code_elimination.h"
#include "gt/passes/framework/manager.h"

namespace {

class DoubleNegation : public gt::Pass {
 public:
  const gt::PassInfo& info() const override {
    static constexpr gt::PassInfo kInfo = {
        .name = "double_negation",
        .summary = "Drops pairs of negations.",
        .description = "The negation of a negation is replaced by what was negated first.",
        .reads = "Operators and operands.",
        .writes = "Uses of the second negation. The nodes themselves are left for dce.",
        .never = "Makes an output share memory with an input.",
    };
    return kInfo;
  }

  bool RunImpl(gt::Graph& graph, gt::PassContext& context) override {
    const auto& escaping = context.Get<gt::EscapingStorage>(graph);
    bool changed = false;
    for (gt::Node* node : graph.nodes()) {
      gt::Value* result = node->result();
      if (!IsNegation(*node) || !result->has_uses()) continue;
      const gt::Node* first = node->operand(0)->producer();
      if (first == nullptr || !IsNegation(*first)) continue;
      // The caller owns what a step returns, so it must stay a tensor of its own.
      if (escaping.Contains(*result)) continue;
      result->ReplaceAllUses(first->operand(0));
      ++dropped_;
      changed = true;
    }
    return changed;
  }

 private:
  static bool IsNegation(const gt::Node& node) { return node.op().name.str() == "aten::neg"; }

  gt::Counter dropped_{this, "dropped", "pairs of negations"};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: double_negation FILE.gtir\n");
    return 2;
  }
  try {
    std::unique_ptr<gt::Graph> graph = gt::ParseFile(argv[1]);
    gt::PassList passes;
    passes.push_back(std::make_unique<DoubleNegation>());
    passes.push_back(std::make_unique<gt::DeadCodeElimination>());
    const gt::PipelineReport report = gt::PassManager(std::move(passes)).Run(*graph);
    fmt::print("{}{}", gt::Print(*graph), report.Statistics());
    return report.changed ? 0 : 1;
  } catch (const gt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
