// Replaces the symbols of input sizes by the numbers that the graph was captured with.
#pragma once

#include <vector>

#include "gt/passes/framework/pass.h"

namespace gt {

struct ConcretizeOptions {
  GT_OPTION(StringList, symbols, {}, Any(),
            "input symbols that become numbers, by name; none: every one of the graph");
  GT_END_OPTIONS(ConcretizeOptions);
};

class Concretize : public Pass {
 public:
  explicit Concretize(ConcretizeOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  ConcretizeOptions options_;
  Counter symbols_{this, "symbols", "symbols whose range became one number"};
  Counter types_{this, "types", "values whose sizes or strides changed, nested graphs included"};
  Counter guards_{this, "guards", "guards that mentioned the symbols, and hold"};
};

// Fails with SymbolLeft, naming the place, if a type, argument, view offset, nested graph, fact or
// guard mentions one of the symbols; gone[i] says whether symbol i is one.
void CheckNoSymbolLeft(const Graph& graph, const std::vector<bool>& gone);

}  // namespace gt
