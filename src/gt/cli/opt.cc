#include "gt/cli/opt.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/cli/graph_files.h"
#include "gt/config/command_line.h"
#include "gt/exec/bisect_results.h"
#include "gt/ir/diff.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"

namespace gt {
namespace {

struct OptFlags {
  StringList pass;
  std::string pipeline;
  std::string context;
  bool bisect = false;
  StringList disable_passes;
  bool list = false;
  bool verify_only = false;
  bool no_metadata = false;
  bool timing = false;
  bool stats = false;
  bool diff = false;
  std::string dump_folder;
  std::string output = "-";
  std::string input;
};

void ListPasses() {
  for (const PassEntry& entry : AllPasses()) {
    std::unique_ptr<Pass> pass = entry.make();
    fmt::print("{:<20} {}\n", pass->name(), pass->info().summary);
    for (const Option& option : pass->options()) {
      fmt::print("  {:<18} {}\n", option.path(),
                 Wrapped(fmt::format("{} ({}, default {})", option.help(), option.Expected(),
                                     option.default_text()),
                         100, 21));
    }
  }
}

std::string PassesOf(const OptFlags& flags) {
  if (!flags.pipeline.empty() && !flags.pass.empty()) {
    Fail(ErrorCode::kUnexpectedArgument,
         "--pass and --pipeline both say which passes run; give one");
  }
  return flags.pipeline.empty() ? Join(flags.pass, ",") : flags.pipeline;
}

ContextRecord ReadContext(const std::string& path) {
  if (path.empty()) return {};
  try {
    return ContextRecord::FromJson(ReadWholeFile(path), path);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kBadOptionValue, "cannot read {} (--context): {}", path, problem.what());
  }
}

// The passes that are left when the disabled ones are taken out.
PassList Enabled(PassList passes, const StringList& disabled) {
  for (const std::string& name : disabled) {
    const std::string known = ResolvePassName(name);
    std::erase_if(passes, [&](const auto& pass) { return pass->info().name == known; });
  }
  return passes;
}

int Bisect(const PassList& passes, const Graph& graph, PassContext& context,
           const std::string& input) {
  const auto found = FirstChangingResults(passes, graph, context);
  if (!found) {
    fmt::print("no pass changes the results: {}\n", PrintPipeline(passes));
    return 0;
  }
  const auto before = std::span(passes).first(static_cast<size_t>(found->index));
  Fail(ErrorCode::kPassBrokeGraph,
       "pass {} changes the results: {}\n  the {} before it keep them: {}\n  what it does to the "
       "graph: gt opt --pipeline={} {} | gt opt --pipeline={} --diff -",
       found->spec, found->difference, found->index,
       before.empty() ? "none" : PrintPipeline(before), ShellWord(PrintPipeline(before)),
       ShellWord(input), ShellWord(found->spec));
}

// -o FILE is what every compiler calls it; the flags proper have two dashes.
std::vector<std::string> WithLongNames(std::vector<std::string> args) {
  for (std::string& arg : args) {
    if (arg == "--") break;
    if (arg == "-o") arg = "--output";
  }
  return args;
}

}  // namespace

int RunOpt(std::vector<std::string> args) {
  OptFlags flags;
  CommandLine line("gt opt", "runs passes on a graph and prints the result");
  line.Flag("pass", &flags.pass, "passes to run in order, as name,name{option=value}")
      .Flag("pipeline", &flags.pipeline,
            "the same as one text, as a job prints its pipeline; instead of --pass")
      .Flag("context", &flags.context,
            "file that was written with a reproducer: what the job told its passes")
      .Flag(
          "bisect", &flags.bisect,
          "run the graph on random inputs after each pass, and name the first that changes results")
      .Flag("disable_passes", &flags.disable_passes, "passes to leave out, by name")
      .Flag("list", &flags.list, "print all passes and their options, and nothing else")
      .Flag("verify-only", &flags.verify_only, "check the graph and print nothing")
      .Flag("no-metadata", &flags.no_metadata, "print without metadata: easier to read")
      .Flag("timing", &flags.timing, "print the time of each pass to stderr")
      .Flag("stats", &flags.stats, "print what each pass counted to stderr")
      .Flag("diff", &flags.diff, "print what changed instead of the graph")
      .Flag("dump_folder", &flags.dump_folder, "write the graph before and after each pass there")
      .Flag("output", &flags.output, "file to write, also -o; - is stdout")
      .OptionalPositional("FILE", &flags.input, "graph to read, as .gtir; - is stdin");
  if (!line.Parse(WithLongNames(std::move(args)))) {
    fmt::print("{}", line.Help());
    return 0;
  }
  if (flags.list) {
    ListPasses();
    return 0;
  }
  if (flags.input.empty()) {
    Fail(ErrorCode::kMissingArgument,
         "gt opt needs the graph to read: a .gtir file, or - for stdin");
  }

  // Bad passes are reported before a large graph is read.
  PassManagerOptions options;
  options.disabled = flags.disable_passes;
  options.dump_folder = flags.dump_folder;
  PassManager manager(ParsePipeline(PassesOf(flags)), std::move(options));
  PassContext context(ReadContext(flags.context));
  std::unique_ptr<Graph> graph = ReadGraph(flags.input);
  Verify(*graph);
  if (flags.verify_only) return 0;
  if (flags.bisect) {
    return Bisect(Enabled(ParsePipeline(PassesOf(flags)), flags.disable_passes), *graph, context,
                  flags.input);
  }

  std::unique_ptr<Graph> before = flags.diff ? graph->Clone() : nullptr;
  PipelineReport report = manager.Run(*graph, context);
  if (flags.timing) fmt::print(stderr, "{}", report.Timing());
  if (flags.stats) fmt::print(stderr, "{}", report.Statistics());
  WriteText(flags.output, before ? Print(Diff(*before, *graph))
                                 : Print(*graph, {.metadata = !flags.no_metadata}));
  return 0;
}

}  // namespace gt
