// gt draw: a part of a graph as a picture: of a stored one, or of the configured job's step.
#include <memory>
#include <string>

#include "gt/base/error.h"
#include "gt/cli/commands.h"
#include "gt/cli/configured_step.h"
#include "gt/cli/graph_files.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/report/graph_picture.h"

namespace gt::cli {
int RunDraw(Arguments args) {
  PictureOptions options;
  Config config;
  std::string input, output = "-";
  CommandLine line("gt draw",
                   "draws the part of a graph that some modules compute, as SVG: of a file, or of "
                   "the train step of a configured model");
  line.Flag("module_fqn", &options.module_fqn,
            "modules to draw with everything inside them, such as layers.1.moe or layers.*.moe")
      .Flag("phase", &options.phase, "draw this phase of the step; the loss counts as forward")
      .Flag("group", &options.groups,
            "nodes that may share a box: those of one submodule, of one role in the exchange of "
            "tokens, or none")
      .Flag("title", &options.title, "text above the picture; empty: modules, graph and phase")
      .Flag("output", &output, "file to write; - is stdout")
      .OptionalPositional("FILE", &input,
                          "graph to read, as .gtir; - is stdin; none: the step that the other "
                          "flags configure, as gt trace captures it")
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  if (options.module_fqn.empty()) {
    Fail(ErrorCode::kMissingArgument,
         "gt draw needs the modules to draw: a whole step has too many nodes to be read; give "
         "--module_fqn a pattern such as layers.1.moe");
  }
  if (!input.empty()) {
    const std::unique_ptr<Graph> graph = ReadGraph(input);
    Verify(*graph);
    WriteText(output, GraphPicture(*graph, options));
    return 0;
  }
  ShowStepOfThisMachine(&config);
  World::Run(config, [&](World& world) {
    WriteText(output, GraphPicture(*CompileConfigured(config, world).step.graph, options));
  });
  return 0;
}

}  // namespace gt::cli
