#include "gt/torch_bridge/scope.h"

#include <ATen/SequenceNumber.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "gt/base/error.h"
#include "gt/ir/graph.h"

namespace gt {
namespace {

struct ThreadState {
  Scope scope;
  ScopeTimeline* timeline = nullptr;
  const char* operation = "the program";
};

ThreadState& State() {
  thread_local ThreadState state;
  return state;
}

}  // namespace

Name SourceName(const std::source_location& where) {
  std::string_view file = where.file_name();
  if (size_t slash = file.rfind('/'); slash != std::string_view::npos)
    file.remove_prefix(slash + 1);
  return Name(fmt::format("{}:{}", file, where.line()));
}

const Scope& CurrentScope() { return State().scope; }

Scope ScopeOf(const Node& node) {
  const Meta& meta = node.meta();
  return {meta.module, meta.source, meta.phase, meta.ep_role, meta.exchange, meta.chunk};
}

ScopeGuard::ScopeGuard(Scope scope) : before_(State().scope) {
  ThreadState& state = State();
  state.scope = std::move(scope);
  if (state.timeline != nullptr) state.timeline->Record(state.scope);
}

ScopeGuard::~ScopeGuard() {
  ThreadState& state = State();
  state.scope = std::move(before_);
  if (state.timeline != nullptr) state.timeline->Record(state.scope);
}

namespace {

Scope Annotated(Scope scope, const Annotation& annotation, const std::source_location& where) {
  if (annotation.phase) scope.phase = *annotation.phase;
  if (annotation.ep_role) scope.ep_role = *annotation.ep_role;
  if (annotation.exchange) scope.exchange = *annotation.exchange;
  if (annotation.chunk) scope.chunk = annotation.chunk;
  scope.source = SourceName(where);
  return scope;
}

}  // namespace

AnnotationGuard::AnnotationGuard(const Annotation& annotation, std::source_location where)
    : ScopeGuard(Annotated(CurrentScope(), annotation, where)) {}

ScopeTimeline::ScopeTimeline() : first_(at::sequence_number::peek()) {
  GT_CHECK(State().timeline == nullptr, "two captures run on one thread at the same time");
  State().timeline = this;
  Record(State().scope);
}

ScopeTimeline::~ScopeTimeline() { State().timeline = nullptr; }

void ScopeTimeline::Record(const Scope& scope) {
  uint64_t from = at::sequence_number::peek();
  if (!entries_.empty() && entries_.back().from == from) {
    entries_.back().scope = scope;  // no operation ran since: the earlier scope named nothing
  } else {
    entries_.push_back({from, scope});
  }
}

const Scope* ScopeTimeline::Find(uint64_t sequence) const {
  auto after = std::upper_bound(entries_.begin(), entries_.end(), sequence,
                                [](uint64_t s, const Entry& entry) { return s < entry.from; });
  return after == entries_.begin() ? nullptr : &std::prev(after)->scope;
}

const char* CurrentOperation() { return State().operation; }

void SetCurrentOperation(const char* name) { State().operation = name; }

}  // namespace gt
