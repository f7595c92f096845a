// A pass rewrites a graph. It is a name, options, a contract, `Run`, which says truthfully whether
// it changed anything, and counters that tell what it did. It is made from its options alone, all of
// which have a text form; what it asks about the job is in the context (passes/framework/context.h).
//
// What every pass keeps to, besides its own contract:
//   - Bits. Outputs of the graph are bitwise what they were, unless the contract says otherwise.
//   - Order. Random operators and collectives keep their number and order: dropping a random
//     operator would shift what the later ones draw, and dropping a collective on one rank makes the
//     others wait for it.
//   - Output aliasing. The caller owns what a step returns: it scales gradients in place and copies
//     updates over buffers. A pass therefore never makes an output share memory with another output
//     or with an input if it did not before.
//   - Metadata. A node that takes another's place carries its Meta; of two nodes that become one,
//     the surviving keeps its own.
//   - Names. Values that stay keep their names.
//   - Repeatability. The same options and an equal context on an equal graph give an equal graph,
//     however often Run was called before: bisecting and reproducers rerun passes to get the graph
//     that a pass was given.
//   - Linear time: 3 us a node is the budget.
// The manager (passes/framework/manager.h) does the rest: timing, verification, checking `changed`, dumps,
// reproducers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/config/option_struct.h"
#include "gt/ir/graph.h"
#include "gt/passes/framework/context.h"

namespace gt {

// The contract, as docs/passes.md shows it. All but the name are sentences.
struct PassInfo {
  std::string_view name;  // what --pass and compile.disable_passes call it
  std::string_view summary;
  std::string_view description;
  std::string_view reads;
  std::string_view writes;
  std::string_view never;
  // Works block by block, so the blocks must be declared (ir/modules.h).
  bool by_block = false;
};

class Counter;

class Pass {
 public:
  virtual ~Pass() = default;
  Pass(const Pass&) = delete;  // options and counters are bound to members of this object
  Pass& operator=(const Pass&) = delete;

  virtual const PassInfo& info() const = 0;
  std::string name() const { return std::string(info().name); }

  // True exactly when the graph's hash is another one now. May throw: the graph is then not used
  // any more.
  bool Run(Graph& graph, PassContext& context);
  // Outside of a job: nothing is known but the graph.
  bool Run(Graph& graph);

  std::span<Option> options() { return options_; }
  std::span<const Option> options() const { return options_; }
  std::span<const Counter* const> counters() const { return counters_; }

  // The name with every option that differs from its default, as MakePass (passes/framework/registry.h) reads
  // it.
  std::string Spec() const;

 protected:
  Pass() = default;

  // What Run does and returns. After changing the graph and before asking the context for an
  // analysis of it, call PassContext::Invalidate; Run itself does so at the end.
  virtual bool RunImpl(Graph& graph, PassContext& context) = 0;

  // Called by constructors while the struct (config/option_struct.h) still has its defaults.
  template <typename Options>
  void Declare(Options* options) {
    DeclareAll(BindOptions(options).front().options);
  }

 private:
  friend class Counter;
  void DeclareAll(std::vector<Option> options);

  std::vector<Option> options_;
  std::vector<std::string> defaults_;  // of each option, as TOML
  std::vector<Counter*> counters_;
};

using PassList = std::vector<std::unique_ptr<Pass>>;

// A number that a pass publishes, as a member of it: Counter merged_{this, "merged", "nodes
// replaced by an earlier one"}; It grows over all runs of the pass object; the manager reports the
// growth of each run.
class Counter {
 public:
  Counter(Pass* pass, std::string_view name, std::string_view help) : name_(name), help_(help) {
    pass->counters_.push_back(this);
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  Counter& operator++() { return *this += 1; }
  Counter& operator+=(int64_t count) {
    value_ += count;
    return *this;
  }
  int64_t value() const { return value_; }
  std::string_view name() const { return name_; }
  std::string_view help() const { return help_; }

 private:
  std::string_view name_, help_;
  int64_t value_ = 0;
};

}  // namespace gt
