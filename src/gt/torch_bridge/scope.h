// Where the program is: which module runs, which phase of the step, which annotated region. Modules
// and annotations open scopes; the recorder copies the innermost one onto every node. Scopes cost
// two stores when nothing is being captured, so eager runs keep them open as well (profiles and
// messages want module names too).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "gt/base/name.h"
#include "gt/ir/meta.h"

namespace gt {

class Node;

struct Scope {
  Name module;
  Name source;
  Phase phase = Phase::kForward;
  EpRole ep_role = EpRole::kNone;
  TokenExchange exchange = TokenExchange::kNone;
  std::shared_ptr<const ChunkMeta> chunk = nullptr;  // null: not in a chunked region
};

// "llama3.cc:120"
Name SourceName(const std::source_location& where);

const Scope& CurrentScope();
// Where a node was recorded.
Scope ScopeOf(const Node& node);

// Replaces the current scope until it is destroyed.
class ScopeGuard {
 public:
  explicit ScopeGuard(Scope scope);
  ~ScopeGuard();
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Scope before_;
};

// Facts about a region of a module's code, such as "this dispatches tokens": what is set here
// overrides the scope around it.
struct Annotation {
  std::optional<Phase> phase = {};
  std::optional<EpRole> ep_role = {};
  std::optional<TokenExchange> exchange = {};
  std::shared_ptr<const ChunkMeta> chunk = nullptr;  // null: as around it
};
class AnnotationGuard : public ScopeGuard {
 public:
  explicit AnnotationGuard(const Annotation& annotation,
                           std::source_location where = std::source_location::current());
};

// Which scope was open when autograd gave out a sequence number. The backward of an operation
// carries the number of its forward, so this is how a backward node learns its module, whatever
// kind of autograd function made it.
class ScopeTimeline {
 public:
  // Records from now on, on this thread; at most one timeline records at a time.
  ScopeTimeline();
  ~ScopeTimeline();
  ScopeTimeline(const ScopeTimeline&) = delete;
  ScopeTimeline& operator=(const ScopeTimeline&) = delete;

  // The scope of an autograd sequence number, or null when it was given out before recording began.
  const Scope* Find(uint64_t sequence) const;
  uint64_t first_sequence() const { return first_; }

 private:
  friend class ScopeGuard;
  void Record(const Scope& scope);
  struct Entry {
    uint64_t from;
    Scope scope;
  };
  uint64_t first_;
  std::vector<Entry> entries_;  // ascending in `from`
};

// The operation that the program called last (a composite such as aten::linear rather than the mm
// inside it), for messages.
const char* CurrentOperation();
void SetCurrentOperation(const char* name);

}  // namespace gt
