// Runs passes one after the other and keeps watch over them: it times each, checks that it told the
// truth about having changed the graph, verifies the graph after every change, dumps what was asked
// for, and turns a failure into a file that replays it.
//
//   PassManager manager(DefaultPipeline());
//   PipelineReport report = manager.Run(graph);
//
// Reproducers. What a failing pass was given is not known before it fails, and copying the graph
// before every pass would cost as much as the passes. The manager copies it once, at the start,
// and after a failure reruns the passes before the failing one on the copy: passes are
// repeatable (passes/framework/pass.h). Who can make the graph of the start again (capture the step
// again) says how, and saves the copy. If they turn out not to be, the file holds the graph of the
// start and the command runs all passes up to the failing one. If the failing pass asks the context
// for anything, the answers are in a second file, which the command names too.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/passes/framework/pass.h"

namespace gt {

// What one pass did in one run of the manager.
struct PassRun {
  std::string name;
  std::string spec;
  bool disabled = false;
  bool changed = false;
  int64_t nodes_before = 0;
  int64_t nodes_after = 0;
  double seconds = 0;         // in the pass itself
  double hash_seconds = 0;    // checking that `changed` is true
  double verify_seconds = 0;  // after a change
  std::vector<std::pair<std::string, int64_t>> counters;
};

struct PipelineReport {
  std::vector<PassRun> runs;
  bool changed = false;
  double seconds = 0;  // everything, the copy for reproducers included

  // Tables for people: time and nodes of each pass; the counters that are not zero.
  std::string Timing() const;
  std::string Statistics() const;
};

struct PassManagerOptions {
  std::vector<std::string> disabled = {};  // names of passes to leave out
  // Hashing costs about as much as a cheap pass, so that a release build may leave it out where
  // steps are compiled often.
  bool check_changed = true;
  // Verify after every pass that changed the graph. Otherwise once, after the last one; if that
  // fails, the passes are rerun on the copy of the start to find the one that broke the graph.
  bool verify_each = true;
  bool verify_last = true;  // false: the caller will
  // For every pass: NN_PIPELINE.name.before.gtir, .after.gtir, .diff, and .context with what it asked about
  // the job, if it did. Empty: no dumps. Numbers begin with `first_number`, so that those of several pipelines
  // of one step run on.
  std::string dump_folder = {};
  std::string pipeline = {};  // its name; empty: none in the files
  size_t first_number = 0;
  bool write_reproducer = true;
  // Makes the graph of the start again after a failure, where that is possible: nothing is copied then.
  std::function<std::unique_ptr<Graph>()> make_start = {};
  std::string reproducer_folder = {};  // empty: the system's folder for temporary files
  // Called after each pass that was not disabled, the graph verified.
  std::function<void(const PassRun&, const Graph&)> after_pass = {};
};

class PassManager {
 public:
  // Unknown names in `disabled` are an error that suggests the nearest name; torchtitan's names are
  // accepted. A pass that exists but is not in the list may be named: what is disabled by a config
  // stays right when the pipeline changes.
  explicit PassManager(PassList passes, PassManagerOptions options = {});

  const PassList& passes() const { return passes_; }

  // On an error the graph is left as the failing pass left it, and must not be used. The error
  // names the pass, the reproducer and the command that replays it. Its code is that of the pass's
  // own error, PassBrokeGraph if the graph no longer verifies, PassMisreported if `changed` was
  // wrong. Passes that work block by block are named in a warning if the graph declares no blocks.
  PipelineReport Run(Graph& graph, PassContext& context);
  PipelineReport Run(Graph& graph);  // outside of a job

 private:
  struct State;
  bool IsDisabled(const Pass& pass) const;
  void WarnWithoutBlocks(const Graph& graph) const;
  PassRun RunOne(Graph& graph, size_t index, State& state);
  void RunChecked(Graph& graph, Pass& pass, PassRun& run, State& state);
  void VerifyLast(Graph& graph, PipelineReport& report, State& state);
  const Graph* StartOf(State& state) const;
  [[noreturn]] void Explain(size_t index, State& state, ErrorCode code, const std::string& what);
  ContextRecord RecordAgain(size_t first, size_t last, const Graph& given, const State& state);
  std::string WriteReproducer(size_t index, const State& state, std::string* note);

  PassList passes_;
  PassManagerOptions options_;
};

}  // namespace gt
