// Says of gathered parameters whether the backward gathers them again or the forward keeps them. It
// only writes the decision down; passes/memory/rematerialize.h carries it out.
#pragma once

#include <vector>

#include "gt/passes/framework/pass.h"

namespace gt {

struct TagParameterGathersOptions {
  GT_OPTION(bool, reshard, true, Any(),
            "gather parameters again in the backward; false keeps what the forward gathered");
  GT_END_OPTIONS(TagParameterGathersOptions);
};

// The chain of a gather is what follows its wait as long as one node uses everything that the node
// before it returns and nothing else:
//   %w -> cast -> all_gather -> wait -> view -> split -> cat -> t -> mm
//         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ must_recompute with `reshard`
//                                               ^^^ must_save without: the last that is no view
// Were a node after the gather left without a tag, the backward would keep its result, which is the
// gathered parameter in another form.
class TagParameterGathers : public Pass {
 public:
  explicit TagParameterGathers(TagParameterGathersOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  void Recompute(Node& gather, const std::vector<Node*>& chain);
  void Save(const std::vector<Node*>& chain);
  void Tag(Node& node, gt::Recompute tag);

  TagParameterGathersOptions options_;
  bool changed_ = false;
  Counter gathers_{this, "gathers", "gathers of parameters in the forward"};
  Counter recomputed_{this, "recomputed", "nodes around them that the backward repeats"};
  Counter saved_{this, "saved", "nodes after them whose results are kept"};
};

}  // namespace gt
