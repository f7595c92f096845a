#include "gt/report/rewrite_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "gt/analysis/collectives.h"
#include "gt/base/byte_text.h"
#include "gt/base/text.h"
#include "gt/passes/framework/process_groups.h"
#include "gt/passes/framework/registry.h"

namespace gt {
namespace {

std::string Row(std::string_view what, const std::string& text) {
  return fmt::format("  {:<14} {}", what, text);
}

// What runs of one pass counted, all together.
class PassTotal {
 public:
  PassTotal(const PipelineReport& report, std::string_view name) {
    for (const PassRun& run : report.runs) {
      if (run.name != name || run.disabled) continue;
      changed_ |= run.changed;
      spec_ = run.spec;
      nodes_added_ += run.nodes_after - run.nodes_before;
      for (const auto& [counter, value] : run.counters) counters_.emplace_back(counter, value);
    }
  }

  bool changed() const { return changed_; }
  int64_t nodes_added() const { return nodes_added_; }
  int64_t operator[](std::string_view counter) const {
    int64_t sum = 0;
    for (const auto& [name, value] : counters_) sum += name == counter ? value : 0;
    return sum;
  }
  // The value of an option, as a flag would be given it.
  std::string Option(std::string_view name) const {
    const PassList passes = ParsePipeline(spec_);
    for (const gt::Option& option : passes.front()->options()) {
      if (option.path() != name) continue;
      std::string text = option.TomlText();
      std::erase(text, '"');
      return text;
    }
    return "";
  }

 private:
  bool changed_ = false;
  int64_t nodes_added_ = 0;
  std::string spec_;
  std::vector<std::pair<std::string, int64_t>> counters_;
};

class Summary {
 public:
  Summary(const PipelineReport& report, const Graph& graph) : report_(report), graph_(graph) {}

  std::vector<std::string> Lines() {
    AddCleaning();
    AddMemoryPolicy();
    AddResharding();
    AddChunks();
    AddGroups();
    AddBuckets();
    AddOrder();
    AddKernels();
    return std::move(lines_);
  }

 private:
  PassTotal Of(std::string_view pass) const { return {report_, pass}; }
  void Add(std::string_view what, const std::string& text) { lines_.push_back(Row(what, text)); }

  void AddCleaning() {
    int64_t removed = 0;
    for (const char* pass : {"dce", "canonicalize", "cse"}) removed -= Of(pass).nodes_added();
    if (removed > 0) Add("cleaning", Counted(removed, "node") + " removed");
  }

  void AddMemoryPolicy() {
    const PassTotal policy = Of("memory_policy"), stages = Of("staged_recompute");
    const PassTotal copies = Of("rematerialize"), offload = Of("cpu_offload");
    if (policy.changed() || copies.changed()) {
      const bool in_stages = stages.changed();
      const PassTotal& tags = in_stages ? stages : policy;
      std::string text = in_stages ? Counted(stages["stages"], "stage") : policy.Option("policy");
      text +=
          fmt::format(": {} kept, {} recomputed in the backward",
                      Counted(tags["saved"], "forward value"), Counted(copies["copies"], "node"));
      Add("memory policy", text);
    }
    if (offload.changed()) {
      Add("offload", fmt::format("{}, {} moved to the host and back",
                                 Counted(offload["tensors"], "value"), ByteText(offload["bytes"])));
    }
  }

  void AddResharding() {
    const PassTotal reshard = Of("reshard_after_forward");
    if (!reshard.changed()) return;
    Add("resharding",
        Counted(reshard["gathers"], "gather") + " of parameters repeated for the backward");
  }

  void AddChunks() {
    const PassTotal chunk = Of("chunk");
    if (!chunk.changed()) return;
    Add("chunks",
        fmt::format("{}: {}, each in {} chunks along the {}; {} added", chunk.Option("module_fqn"),
                    Counted(chunk["roots"], "module"), chunk.Option("num_chunks"),
                    chunk.Option("chunk_dim") == "seq" ? "sequence" : "batch",
                    Counted(chunk.nodes_added(), "node")));
  }

  // Groups that passes have made, by the names that nodes refer to.
  void AddGroups() {
    std::set<std::string> made;
    for (const Node* node : graph_.nodes()) {
      if (node->op().group_arg < 0) continue;
      const std::string& name = GroupOf(*node);
      for (auto purpose : {ProcessGroups::Purpose::kTokens, ProcessGroups::Purpose::kCounts,
                           ProcessGroups::Purpose::kGathers}) {
        if (name.ends_with(ProcessGroups::SuffixOf(purpose))) made.insert(name);
      }
    }
    if (made.empty()) return;
    const std::vector<std::string> names(made.begin(), made.end());
    const int64_t moved = Of("isolate_ep_process_group")["exchanges"] +
                          Of("separate_count_exchanges")["exchanges"] +
                          Of("reassign_fsdp_all_gathers")["gathers"];
    Add("groups", fmt::format("{} made, for {}", Join(names, ", "), Counted(moved, "collective")));
  }

  void AddBuckets() {
    const PassTotal blocks = Of("bucket_fsdp"), sizes = Of("bucket_by_size");
    if (!blocks.changed() && !sizes.changed()) return;
    const PassTotal& buckets = blocks.changed() ? blocks : sizes;
    std::vector<std::string> packed;
    for (const auto& [what, in] :
         {std::pair("gather", "gather_buckets"), std::pair("reduction", "reduction_buckets")}) {
      const int64_t members = buckets[std::string(what) + "s"];
      if (members == 0) continue;
      packed.push_back(Counted(members, what) + " in " + WithThousands(buckets[in]));
    }
    Add("buckets", Join(packed, ", "));
  }

  void AddOrder() {
    for (const char* name : {"ep_overlap_schedule", "prefetch_collectives"}) {
      const PassTotal order = Of(name);
      if (!order.changed()) continue;
      std::string text = Counted(order["moved"], "node") + " moved";
      const int64_t before = order["microseconds_before"], after = order["microseconds_after"];
      if (before > 0 && after > 0) {
        text +=
            fmt::format(", predicted {:.1f} % faster ({:.1f} instead of {:.1f} ms)",
                        100.0 * static_cast<double>(before - after) / static_cast<double>(before),
                        static_cast<double>(after) / 1e3, static_cast<double>(before) / 1e3);
      }
      Add("order", text);
    }
    const PassTotal dense = Of("fsdp_dense_regions");
    if (dense.changed()) {
      Add("dense regions", fmt::format("{} and {} moved there", Counted(dense["gathers"], "gather"),
                                       Counted(dense["reductions"], "reduction")));
    }
  }

  void AddKernels() {
    const PassTotal fuse = Of("fuse");
    if (!fuse.changed()) return;
    Add("kernels",
        fmt::format("{} in {}, {} less traffic", Counted(fuse["operators"], "operator"),
                    Counted(fuse["groups"], "generated kernel"), ByteText(fuse["bytes"])));
  }

  const PipelineReport& report_;
  const Graph& graph_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> RewriteLines(const PipelineReport& report, const Graph& graph) {
  return Summary(report, graph).Lines();
}

}  // namespace gt
