#include "gt/passes/framework/manager.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>

#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/ir/diff.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/registry.h"
#include "gt/storage/file_writer.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the time until it goes out of scope.
class Timer {
 public:
  explicit Timer(double* seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~Timer() { *seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double* seconds_;
  Clock::time_point start_;
};

std::vector<int64_t> CounterValues(const Pass& pass) {
  std::vector<int64_t> values;
  for (const Counter* counter : pass.counters()) values.push_back(counter->value());
  return values;
}

void WriteDump(const std::filesystem::path& path, std::string_view text) {
  if (path.has_parent_path()) CreateFolders(path.parent_path());
  WriteFile(path, text);
}

std::string ReplayCommand(const std::string& specs, const std::string& context,
                          const std::string& path) {
  const std::string flag = context.empty() ? "" : fmt::format(" --context={}", ShellWord(context));
  return fmt::format("gt opt --pass={}{} {}", ShellWord(specs), flag, ShellWord(path));
}

// Written while an error is being handled, possibly by several ranks at the same time: the name
// must be free.
std::filesystem::path FreshPath(const std::string& folder, const std::string& pass) {
  static std::atomic<int> count{0};
  std::filesystem::path base = folder;
  if (folder.empty()) base = std::filesystem::temp_directory_path();
  std::filesystem::path path;
  do path = base / fmt::format("gt_{}_{}_{}.gtir", pass, getpid(), ++count);
  while (std::filesystem::exists(path));
  return path;
}

std::string CounterText(const PassRun& run) {
  std::string text;
  for (const auto& [name, value] : run.counters) {
    if (value != 0) text += fmt::format(", {} {}", name, value);
  }
  return text;
}

}  // namespace

// What is remembered over one run of the manager.
struct PassManager::State {
  PassContext& context;
  size_t position = 0;                     // of the context, at the start
  std::unique_ptr<Graph> start = nullptr;  // null: not wanted, or to be made again
  std::optional<uint64_t> hash = {};       // of the graph that the next pass is given
};

PassManager::PassManager(PassList passes, PassManagerOptions options)
    : passes_(std::move(passes)), options_(std::move(options)) {
  for (std::string& name : options_.disabled) {
    // Passes made for this list alone (tests, tools) may be named too.
    const bool is_here = std::any_of(passes_.begin(), passes_.end(),
                                     [&](const auto& pass) { return pass->info().name == name; });
    if (!is_here) name = ResolvePassName(name);
  }
}

bool PassManager::IsDisabled(const Pass& pass) const {
  const auto& disabled = options_.disabled;
  return std::find(disabled.begin(), disabled.end(), pass.info().name) != disabled.end();
}

void PassManager::WarnWithoutBlocks(const Graph& graph) const {
  if (!graph.modules().With(ModuleRole::kBlock).empty()) return;
  const bool has_modules = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                       [](Node* node) { return !node->meta().module.empty(); });
  std::vector<std::string> names;
  for (const auto& pass : passes_) {
    if (pass->info().by_block && !IsDisabled(*pass)) names.push_back(pass->name());
  }
  if (names.empty() || !has_modules) return;
  log::Warn(
      "no module of graph @{} declares that it is a block, so {} will do little for it; call "
      "set_role(ModuleRole::kBlock) in the model's blocks (nn/module.h), or write "
      "modules {{ block: \"h.0\", \"h.1\" }} into the .gtir file",
      graph.name(), Join(names, ", "));
}

PipelineReport PassManager::Run(Graph& graph) {
  PassContext context;
  return Run(graph, context);
}

PipelineReport PassManager::Run(Graph& graph, PassContext& context) {
  PipelineReport report;
  Timer timer(&report.seconds);
  State state{.context = context, .position = context.position()};
  context.Invalidate();
  if (options_.write_reproducer && !options_.make_start) state.start = graph.Clone();
  WarnWithoutBlocks(graph);
  for (size_t i = 0; i < passes_.size(); ++i) {
    report.runs.push_back(RunOne(graph, i, state));
    report.changed |= report.runs.back().changed;
  }
  const bool unverified = !options_.verify_each && report.changed;
  if (unverified && options_.verify_last) VerifyLast(graph, report, state);
  return report;
}

// The graph that the first pass was given; null: no reproducer is wanted.
const Graph* PassManager::StartOf(State& state) const {
  if (state.start == nullptr && options_.write_reproducer && options_.make_start) {
    state.start = options_.make_start();
  }
  return state.start.get();
}

void PassManager::VerifyLast(Graph& graph, PipelineReport& report, State& state) {
  std::string problem;
  {
    Timer timer(&report.runs.back().verify_seconds);
    try {
      Verify(graph);
      return;
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  state.hash = std::nullopt;  // of the last graph: reproducers are of an earlier one
  state.context.Replay(state.position);
  const Graph* start = StartOf(state);
  std::unique_ptr<Graph> again = start == nullptr ? nullptr : start->Clone();
  for (size_t i = 0; again != nullptr && i < passes_.size(); ++i) {
    if (IsDisabled(*passes_[i])) continue;
    passes_[i]->Run(*again, state.context);
    try {
      Verify(*again);
    } catch (const Error& error) {
      Explain(i, state, ErrorCode::kPassBrokeGraph,
              fmt::format("the graph it left does not verify: {}", error.what()));
    }
  }
  Fail(ErrorCode::kPassBrokeGraph, "the graph that the passes left does not verify: {}", problem);
}

PassRun PassManager::RunOne(Graph& graph, size_t index, State& state) {
  Pass& pass = *passes_[index];
  PassRun run;
  run.name = pass.name();
  run.spec = pass.Spec();
  run.nodes_before = run.nodes_after = graph.node_count();
  run.disabled = IsDisabled(pass);
  if (run.disabled) {
    log::Debug("pass {}: disabled", run.name);
    return run;
  }

  auto dump_path = [&](std::string_view what) {
    return std::filesystem::path(options_.dump_folder) /
           fmt::format("{:02}_{}{}{}.{}", options_.first_number + index, options_.pipeline,
                       options_.pipeline.empty() ? "" : ".", run.name, what);
  };
  std::unique_ptr<Graph> before;
  if (!options_.dump_folder.empty()) {
    before = graph.Clone();
    WriteDump(dump_path("before.gtir"), Print(graph));
    state.context.StartRecording();
  }

  std::vector<int64_t> counted = CounterValues(pass);
  try {
    RunChecked(graph, pass, run, state);
  } catch (const Error& error) {
    Explain(index, state, error.code(), error.message());
  } catch (const std::exception& error) {
    Explain(index, state, ErrorCode::kPassFailed, error.what());
  }
  run.nodes_after = graph.node_count();
  for (size_t i = 0; i < counted.size(); ++i) {
    const Counter& counter = *pass.counters()[i];
    run.counters.emplace_back(counter.name(), counter.value() - counted[i]);
  }

  if (before != nullptr) {
    const ContextRecord asked = state.context.TakeRecording();
    if (!asked.empty()) WriteDump(dump_path("context"), asked.ToJson());
    WriteDump(dump_path("after.gtir"), Print(graph));
    WriteDump(dump_path("diff"), Print(Diff(*before, graph)));
  }
  // Who asks for dumps wants to be told.
  log::Level level = options_.dump_folder.empty() ? log::Level::kDebug : log::Level::kInfo;
  log::At(level, "pass {}: {}, {} -> {} nodes, {:.3f} ms{}", run.spec,
          run.changed ? "changed" : "no change", run.nodes_before, run.nodes_after,
          run.seconds * 1e3, CounterText(run));
  if (options_.after_pass) options_.after_pass(run, graph);
  return run;
}

void PassManager::RunChecked(Graph& graph, Pass& pass, PassRun& run, State& state) {
  if (options_.check_changed && !state.hash) {
    Timer timer(&run.hash_seconds);
    state.hash = graph.Hash();
  }
  {
    Timer timer(&run.seconds);
    run.changed = pass.Run(graph, state.context);
  }
  std::optional<uint64_t> hash;
  if (options_.check_changed) {
    Timer timer(&run.hash_seconds);
    hash = graph.Hash();
    if ((*hash != *state.hash) != run.changed) {
      Fail(ErrorCode::kPassMisreported, "it says that it {} the graph, but the graph is {}",
           run.changed ? "changed" : "did not change",
           run.changed ? "the same as before" : "another one now");
    }
  }
  if (run.changed && options_.verify_each) {
    Timer timer(&run.verify_seconds);
    try {
      Verify(graph);
    } catch (const Error& error) {
      Fail(ErrorCode::kPassBrokeGraph, "the graph it left does not verify: {}", error.what());
    }
  }
  state.hash =
      hash;  // until here that of the graph the pass was given: reproducers compare with it
}

void PassManager::Explain(size_t index, State& state, ErrorCode code, const std::string& what) {
  std::string message = fmt::format("pass {} failed: {}", passes_[index]->Spec(), what);
  // Whatever goes wrong from here on is worth less than the error itself.
  try {
    if (StartOf(state) != nullptr) {
      std::string note;
      std::string command = WriteReproducer(index, state, &note);
      message += fmt::format("{}\n  replay it with: {}", note, command);
    }
  } catch (const std::exception& error) {
    message += fmt::format("\n  no reproducer could be written: {}", error.what());
  }
  throw Error(code, std::move(message));
}

std::string PassManager::WriteReproducer(size_t index, const State& state, std::string* note) {
  std::unique_ptr<Graph> given = state.start->Clone();
  state.context.Replay(state.position);
  std::string specs = passes_[index]->Spec();
  size_t first = index;  // of the passes that are replayed
  bool again = true;
  try {
    for (size_t i = 0; i < index; ++i) {
      if (!IsDisabled(*passes_[i])) passes_[i]->Run(*given, state.context);
    }
    again = !state.hash || given->Hash() == *state.hash;
  } catch (const std::exception&) {
    again = false;
  }
  if (!again) {
    given = state.start->Clone();
    std::vector<std::string> all;
    for (size_t i = 0; i <= index; ++i) {
      if (!IsDisabled(*passes_[i])) all.push_back(passes_[i]->Spec());
    }
    specs = Join(all, ",");
    first = 0;
    state.context.Replay(state.position);
    *note =
        "\n  (the passes before it did not give the same graph again; the reproducer runs them "
        "too)";
  }
  try {
    Verify(*given);
  } catch (const Error& error) {
    *note += fmt::format("\n  the graph was broken before this pass: {}", error.what());
  }
  std::filesystem::path path = FreshPath(options_.reproducer_folder, passes_[index]->name());
  std::filesystem::path context_path;
  ContextRecord asked = RecordAgain(first, index, *given, state);
  if (!asked.empty()) {
    context_path = std::filesystem::path(path).replace_extension(".context");
    WriteDump(context_path, asked.ToJson());
  }
  std::string command = ReplayCommand(specs, context_path.string(), path.string());
  WriteDump(path, fmt::format("// {}\n{}", command, Print(*given)));
  return command;
}

// What passes ask the context when they are rerun. The last one is expected to fail.
ContextRecord PassManager::RecordAgain(size_t first, size_t last, const Graph& given,
                                       const State& state) {
  state.context.Invalidate();
  state.context.StartRecording();
  try {
    std::unique_ptr<Graph> graph = given.Clone();
    for (size_t i = first; i <= last; ++i) {
      if (!IsDisabled(*passes_[i])) passes_[i]->Run(*graph, state.context);
    }
  } catch (const std::exception&) {
    // As it did before.
  }
  return state.context.TakeRecording();
}

std::string PipelineReport::Timing() const {
  std::string text = fmt::format("{:<28} {:>9} {:>9} {:>9} {:>16} {:>8}\n", "pass", "ms", "hash ms",
                                 "verify ms", "nodes", "us/node");
  for (const PassRun& run : runs) {
    if (run.disabled) {
      text += fmt::format("{:<28} disabled\n", run.name);
      continue;
    }
    double nodes = static_cast<double>(std::max<int64_t>(run.nodes_before, 1));
    text += fmt::format("{:<28} {:>9.3f} {:>9.3f} {:>9.3f} {:>16} {:>8.3f}\n", run.name,
                        run.seconds * 1e3, run.hash_seconds * 1e3, run.verify_seconds * 1e3,
                        fmt::format("{} -> {}", run.nodes_before, run.nodes_after),
                        run.seconds * 1e6 / nodes);
  }
  return text + fmt::format("{:<28} {:>9.3f}\n", "total", seconds * 1e3);
}

std::string PipelineReport::Statistics() const {
  std::string text;
  for (const PassRun& run : runs) {
    for (const auto& [name, value] : run.counters) {
      if (value != 0) text += fmt::format("{:<40} {:>10}\n", run.name + "." + name, value);
    }
  }
  return text;
}

}  // namespace gt
