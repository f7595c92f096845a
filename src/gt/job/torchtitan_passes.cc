#include "gt/job/torchtitan_passes.h"

#include <algorithm>

#include "gt/base/text.h"
#include "gt/passes/framework/registry.h"

namespace gt {
namespace {

std::string_view WithoutBrackets(std::string_view text) {
  const bool is_list = text.starts_with('[') && text.ends_with(']');
  return is_list ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

TranslatedPasses TranslatePasses(std::string_view text) {
  std::string_view specs = WithoutBrackets(text);
  TranslatedPasses result;
  result.replaces = !specs.starts_with('+');
  if (!result.replaces) specs.remove_prefix(1);
  std::vector<std::string> ours;
  for (const std::string& spec : SplitPipeline(specs)) {
    const std::string_view name = Trim(std::string_view(spec).substr(0, spec.find('{')));
    const UpstreamPass* upstream = FindUpstreamPass(name);
    if (upstream == nullptr) {
      ours.push_back(spec);
    } else if (!upstream->option.empty()) {
      result.options.push_back(upstream);
    } else if (upstream->pass.empty()) {
      result.unneeded.push_back(upstream);
    } else {
      result.renamed.push_back(upstream);
      ours.push_back(std::string(upstream->pass) + spec.substr(name.size()));
    }
  }
  result.list = Join(ours, ",");
  if (!result.replaces && !ours.empty()) result.list.insert(0, 1, '+');
  return result;
}

}  // namespace gt
