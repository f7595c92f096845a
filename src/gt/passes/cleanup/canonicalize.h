// Gives each computation one form: views that change nothing are removed, chains of views become
// one, copies nobody needs are removed.
#pragma once

#include <optional>

#include "gt/passes/framework/pass.h"

namespace gt {

struct CanonicalizeOptions {
  GT_OPTION(bool, remove_copies, true, Any(), "remove copies that change nothing");
  GT_END_OPTIONS(CanonicalizeOptions);
};

class Canonicalize : public Pass {
 public:
  explicit Canonicalize(CanonicalizeOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  bool RunOn(Graph& graph);
  bool DropIdentityView(Node& node);
  bool NormalizeReshape(Node& node);

  CanonicalizeOptions options_;
  Counter identities_{this, "identities", "views removed because they change nothing"};
  Counter pairs_{this, "pairs", "views removed because they undo the views before them"};
  Counter shortened_{this, "shortened", "views that now look past the views before them"};
  Counter renamed_{this, "renamed", "reshapes and unsafe views that became plain views"};
  Counter respelled_{this, "respelled", "views whose sizes are now spelled out"};
  Counter copies_{this, "copies", "copies removed"};
  Counter copies_kept_{this, "copies_kept", "copies that change nothing but must stay"};
};

}  // namespace gt
