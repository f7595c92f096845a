// The table of passes, and the small language in which command lines and reproducers name them:
//   dce,canonicalize{remove_copies=false},cse,dce
// An option of list type is given once for each element. Values with commas, braces, quotes or
// spaces are in double quotes. torchtitan's pass names are accepted (passes/framework/upstream_passes.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/passes/framework/pass.h"

namespace gt {

struct PassEntry {
  std::string_view name;
  std::unique_ptr<Pass> (*make)();  // with default options
};

// In the order of the default pipeline. The table itself is passes/pipeline/pass_table.cc.
std::span<const PassEntry> AllPasses();
std::vector<std::string> PassNames();

// Maps gt's or torchtitan's name of a pass to gt's. An unknown name is an error that suggests the nearest
// one, or names the counterpart of torchtitan's pass.
std::string ResolvePassName(std::string_view name);

// One pass with its options. Unknown passes and options are errors that suggest the nearest name.
std::unique_ptr<Pass> MakePass(std::string_view spec);
PassList ParsePipeline(std::string_view specs);
// Splits a list into its specs, without parsing them.
std::vector<std::string> SplitPipeline(std::string_view specs);
// The reverse of ParsePipeline.
std::string PrintPipeline(std::span<const std::unique_ptr<Pass>> passes);

// docs/passes.md.
std::string PassesMarkdown();

}  // namespace gt
