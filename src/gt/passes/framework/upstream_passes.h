// torchtitan's pass names and the counterpart of each in gt. Pass lists, their error messages and
// docs/torchtitan.md use this one table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gt {

struct UpstreamPass {
  std::string_view name;       // "isolate_ep_process_group_pass"
  std::string_view pass = {};  // gt's equivalent pass, if any
  // The equivalent boolean option, if there is no such pass: on if compile.passes lists the name, off if
  // compile.disable_passes does.
  std::string_view option = {};
  // What differs from torchtitan. Without pass and option: why gt needs no counterpart.
  std::string_view note = {};
};

// In the order of torchtitan's pipeline, then names that select features, then earlier names.
std::span<const UpstreamPass> UpstreamPasses();

// Null: torchtitan has no pass of that name.
const UpstreamPass* FindUpstreamPass(std::string_view name);

// The error message for a name that has no equivalent pass.
std::string WhyNoPass(const UpstreamPass& upstream);

}  // namespace gt
