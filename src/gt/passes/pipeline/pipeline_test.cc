// Which passes a step goes through, and in which order. The order is written as rules, each with its
// reason; every combination of options must keep to all of them.
#include "gt/passes/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/pipeline/autoparallel_pipeline.h"
#include "gt/sim/link_model.h"
#include "gt/sim/live_memory.h"
#include "gt/sim/timeline.h"
#include "gt/testing/test_roles.h"

namespace gt::pipeline_test {
namespace {

std::vector<std::string> NamesOf(const PipelineOptions& options) {
  std::vector<std::string> names;
  for (const auto& pass : DefaultPipeline(options)) names.emplace_back(pass->info().name);
  return names;
}

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
// The last one of the name, or -1.
int64_t PlaceOf(const std::vector<std::string>& names, std::string_view name) {
  auto found = std::find(names.rbegin(), names.rend(), name);
  return names.rend() - found - 1;
}

struct Rule {
  std::string_view before, after, why;
};

constexpr Rule kRules[] = {
    {"canonicalize", "cse", "equal nodes must be written alike to be found"},
    {"cse", "memory_policy", "policies decide about values, each of which must be there once"},
    {"memory_policy", "rematerialize", "one writes down what the other carries out"},
    {"rematerialize", "cpu_offload", "recomputed nodes are users that read what came back"},
    {"rematerialize", "reshard_after_forward", "recomputed nodes use parameters gathered again"},
    {"cpu_offload", "chunk", "copies of activations are cut like any node"},
    {"rematerialize", "chunk", "recomputed nodes are cut like any node"},
    {"reshard_after_forward", "chunk", "gathers in the backward must stay single"},
    {"measure_peak", "chunk", "the budget is what the step needs before it is cut"},
    {"reshard_after_forward", "measure_peak", "parameters that are freed do not count"},
    {"chunk", "isolate_ep_process_group", "each chunk has exchanges to isolate"},
    {"chunk", "separate_count_exchanges", "each chunk has counts to exchange"},
    {"isolate_ep_process_group", "separate_count_exchanges",
     "counts get a group beside the one that tokens end up in"},
    {"isolate_ep_process_group", "reassign_fsdp_all_gathers",
     "a group that exchanges have left may be free already"},
    {"chunk", "bucket_fsdp",
     "collectives are one per parameter when gradients of chunks are added"},
    {"reassign_fsdp_all_gathers", "bucket_fsdp", "a bucket is of one group"},
    {"bucket_fsdp", "fsdp_dense_regions", "buckets are what is moved"},
    {"bucket_fsdp", "ep_overlap_schedule", "moving buckets would undo the schedule"},
    {"fsdp_dense_regions", "ep_overlap_schedule",
     "moving collectives would undo the schedule, its time and its memory"},
    {"separate_count_exchanges", "ep_overlap_schedule", "queues decide what can run at once"},
    {"isolate_ep_process_group", "ep_overlap_schedule", "queues decide what can run at once"},
    {"reassign_fsdp_all_gathers", "ep_overlap_schedule", "queues decide what can run at once"},
    {"chunk", "concretize", "chunks are expressions over the symbol"},
    {"ep_overlap_schedule", "concretize", "sizes become numbers when nothing asks for symbols"},
};

// Every combination of what can be switched.
template <typename Visit>
void ForEachCombination(const Visit& visit) {
  constexpr int kSwitches = 8;
  for (int bits = 0; bits < 1 << kSwitches; ++bits) {
    const auto on = [bits](int i) { return (bits >> i & 1) != 0; };
    for (MemoryPolicy policy :
         {MemoryPolicy::kNone, MemoryPolicy::kDefault, MemoryPolicy::kSacAndOffload}) {
      for (OverlapSchedule mode :
           {OverlapSchedule::kNone, OverlapSchedule::kStructural, OverlapSchedule::kCost}) {
        PipelineOptions options;
        options.memory.policy = policy;
        options.share_subexpressions = on(0);
        options.reshard_after_forward = on(1);
        if (on(2)) options.chunk.emplace();
        if (on(3)) options.overlap = {.schedule = mode, .memory_headroom = 0.02};
        options.isolate_ep_group = on(4);
        options.reassign_gathers = on(5);
        if (on(6)) options.bucket_prefetch = 1;
        options.dense_regions = on(6) && on(7);
        options.concretize = on(2);
        visit(options);
      }
    }
  }
}

TEST(Pipeline, KeepsToTheRules) {
  ForEachCombination([](const PipelineOptions& options) {
    const std::vector<std::string> names = NamesOf(options);
    for (const Rule& rule : kRules) {
      const int64_t before = PlaceOf(names, rule.before), after = PlaceOf(names, rule.after);
      if (before < 0 || after < 0) continue;
      ASSERT_LT(before, after) << rule.before << " before " << rule.after << ": " << rule.why
                               << "\nin " << Join(names, " ");
    }
    for (const std::string& name : names) {
      const auto count = std::count(names.begin(), names.end(), name);
      ASSERT_TRUE(count == 1 || name == "dce") << name << " in " << Join(names, " ");
    }
  });
}

// A rule about a pass that no combination runs, or never together with the other, says nothing.
TEST(Pipeline, EveryRuleIsAboutPassesThatRunTogether) {
  std::vector<bool> seen(std::size(kRules), false);
  ForEachCombination([&seen](const PipelineOptions& options) {
    const std::vector<std::string> names = NamesOf(options);
    for (size_t i = 0; i < std::size(kRules); ++i) {
      if (Has(names, kRules[i].before) && Has(names, kRules[i].after)) seen[i] = true;
    }
  });
  for (size_t i = 0; i < std::size(kRules); ++i) {
    EXPECT_TRUE(seen[i]) << kRules[i].before << " before " << kRules[i].after;
  }
}

TEST(Pipeline, OptionsDecideWhatRuns) {
  ForEachCombination([](const PipelineOptions& options) {
    const std::vector<std::string> names = NamesOf(options);
    const OverlapSchedule mode =
        options.overlap ? options.overlap->schedule : OverlapSchedule::kNone;
    const auto expect = [&names](std::string_view name, bool runs) {
      ASSERT_EQ(Has(names, name), runs) << name << " in " << Join(names, " ");
    };
    expect("cse", options.share_subexpressions);
    expect("rematerialize", options.memory.policy != MemoryPolicy::kNone);
    expect("cpu_offload", options.memory.policy == MemoryPolicy::kSacAndOffload);
    expect("reshard_after_forward", options.reshard_after_forward);
    expect("chunk", options.chunk.has_value());
    expect("measure_peak", options.chunk.has_value() && mode == OverlapSchedule::kCost);
    expect("isolate_ep_process_group", options.isolate_ep_group);
    // Chunks of the eager producer exist already: they are ordered without being cut.
    expect("separate_count_exchanges", mode != OverlapSchedule::kNone);
    expect("ep_overlap_schedule", options.overlap.has_value());
    expect("reassign_fsdp_all_gathers", options.reassign_gathers);
    expect("bucket_fsdp", options.bucket_prefetch.has_value());
    expect("fsdp_dense_regions", options.dense_regions);
    expect("concretize", options.concretize);
  });
}

// What a job prints is all there is to its pipeline: gt opt --pipeline makes the same passes of it.
TEST(Pipeline, TextSaysEverything) {
  ForEachCombination([](const PipelineOptions& options) {
    const std::string text = DefaultPipelineText(options);
    ASSERT_EQ(PrintPipeline(ParsePipeline(text)), text);
  });
  PipelineOptions options;
  options.memory = {.policy = MemoryPolicy::kFull,
                    .full_recompute_save_ops = {"aten::mm", "aten::bmm"}};
  options.chunk = {.module_fqn = "blocks.*", .num_chunks = 3};
  options.overlap = {.schedule = OverlapSchedule::kStructural, .memory_headroom = 0.1};
  options.bucket_prefetch = 2;
  const std::string text = DefaultPipelineText(options);
  EXPECT_NE(text.find("chunk{module_fqn=blocks.*,num_chunks=3}"), std::string::npos) << text;
  EXPECT_NE(text.find("bucket_fsdp{fsdp_prefetch=2}"), std::string::npos) << text;
  EXPECT_EQ(PrintPipeline(DefaultPipeline(options)), text);
}

// The other policy: tags before what reads them, collectives before what packs and moves them.
TEST(AutoparallelPipeline, OptionsDecideWhatRuns) {
  EXPECT_EQ(AutoparallelPipelineText(),
            "dce{drop_collectives=true},canonicalize,cse,dce{drop_collectives=true},"
            "tag_parameter_gathers,staged_recompute,rematerialize,prefetch_collectives");
  AutoparallelPipelineOptions options;
  options.reshard_after_forward = false;
  options.recompute.ac_stage_size_gb = 2;
  options.reassign_gathers = true;
  options.buckets = {.bucket_cap_mb = 25};
  options.prefetch.max_compute_pre_fetch = 50;
  const std::string text = AutoparallelPipelineText(options);
  EXPECT_EQ(
      text,
      "dce{drop_collectives=true},canonicalize,cse,dce{drop_collectives=true},"
      "tag_parameter_gathers{reshard=false},staged_recompute{ac_stage_size_gb=2.0},rematerialize,"
      "reassign_fsdp_all_gathers,bucket_by_size{bucket_cap_mb=25},prefetch_collectives{max_compute_"
      "pre_fetch=50}");
  EXPECT_EQ(PrintPipeline(ParsePipeline(text)), text);
  EXPECT_EQ(PrintPipeline(ChangedPipeline(ParsePipeline("dce,prefetch_collectives"), "+cse")),
            "dce,cse,prefetch_collectives");
}

TEST(Pipeline, ChangesAddOrReplace) {
  PipelineOptions options;
  options.chunk.emplace();
  options.overlap.emplace();
  options.concretize = true;
  const std::string whole = DefaultPipelineText(options), tail = "ep_overlap_schedule,concretize";
  ASSERT_TRUE(whole.ends_with(tail)) << whole;
  const auto changed = [&](std::string_view change) {
    return PrintPipeline(ChangedPipeline(DefaultPipeline(options), change));
  };
  EXPECT_EQ(changed(""), whole);
  EXPECT_EQ(changed("+cse{cross_phase=none},dce"),
            whole.substr(0, whole.size() - tail.size()) + "cse{cross_phase=none},dce," + tail);
  EXPECT_EQ(changed("dce, cse"), "dce,cse");
  // A job without a tail: at the end.
  EXPECT_EQ(PrintPipeline(ChangedPipeline(ParsePipeline("dce"), "+cse")), "dce,cse");
  for (const char* wrong : {"+chnk", "dce,chnk"}) {
    try {
      changed(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnknownPass);
    }
  }
}

// Nodes of the whole that nobody needs any more would be scheduled, and would count as memory.
TEST(Pipeline, WhatChunksLeaveBehindIsRemoved) {
  ForEachCombination([](const PipelineOptions& options) {
    const std::vector<std::string> names = NamesOf(options);
    const int64_t chunk = PlaceOf(names, "chunk");
    if (chunk < 0) return;
    ASSERT_EQ(names.at(static_cast<size_t>(chunk) + 1), "dce");
  });
}

// ---- a step through the whole pipeline ----

// Blocks of a dense product with a sharded weight, and experts to which tokens are sent, forward and
// backward.
std::string BlocksText(int blocks, int64_t width) {
  std::string inputs, symbols, facts, forward, backward, outputs;
  const std::string w = std::to_string(width), half = std::to_string(width / 2);
  const auto exchange = [](const std::string& u, const std::string& v) {
    return fmt::format(
        "output_split_sizes = [{0}, {1}], input_split_sizes = [{0}, {1}], "
        "group_name = \"ep\"",
        u, v);
  };
  // Sends rows away, computes with the expert's weight, brings them back: from %{from} to %{to}.
  const auto at_experts = [&](const std::string& from, const std::string& to, int i, bool again) {
    const std::string u = fmt::format("u{}", 2 * i), v = fmt::format("u{}", 2 * i + 1);
    const auto with = [&](std::string_view role) {
      return fmt::format("{{module = \"layers.{}.moe\"{}, ep = {}}}", i,
                         again ? ", phase = backward" : "", role);
    };
    const std::string type = fmt::format("f32[{} + {}, {}]", u, v, w);
    std::string text;
    text += fmt::format("%{}_a = _c10d_functional::all_to_all_single(%{}, {}) : {} {}\n", to, from,
                        exchange(u, v), type, with("dispatch, exchange = exchange"));
    text += fmt::format("%{0}_b = _c10d_functional::wait_tensor(%{0}_a) : {1} {2}\n", to, type,
                        with("dispatch"));
    text +=
        fmt::format("%{0}_c = aten::mm(%{0}_b, %e{1}) : {2} {3}\n", to, i, type, with("compute"));
    text += fmt::format("%{0}_d = _c10d_functional::all_to_all_single(%{0}_c, {1}) : {2} {3}\n", to,
                        exchange(u, v), type, with("combine, exchange = exchange"));
    text += fmt::format("%{0}_e = _c10d_functional::wait_tensor(%{0}_d) : {1} {2}\n", to, type,
                        with("combine"));
    text += fmt::format("%{0} = aten::add.Tensor(%{0}_e, %{1}) : f32[s0, {2}] {3}\n", to, from, w,
                        with("combine"));
    return text;
  };
  std::string h = "x";
  for (int i = 0; i < blocks; ++i) {
    inputs += fmt::format(
        ", %w{0}: param \"w{0}\" f32[{1}, {2}], %e{0}: param \"e{0}\" f32[{2}, {2}]", i, half, w);
    symbols +=
        fmt::format("; u{}: data, hint 2048, range [0, inf]; u{}: data, hint 2048, range [0, inf]",
                    2 * i, 2 * i + 1);
    facts += fmt::format("{}u{} + u{} == s0", i == 0 ? "" : "; ", 2 * i, 2 * i + 1);
    const std::string dense = fmt::format("{{module = \"layers.{}.attention\"}}", i);
    forward += fmt::format(
        "%g{0} = _c10d_functional::all_gather_into_tensor(%w{0}, group_size = 2, group_name = "
        "\"fsdp\") : f32[{1}, {1}] {2}\n"
        "%p{0} = _c10d_functional::wait_tensor(%g{0}) : f32[{1}, {1}] {2}\n"
        "%d{0} = aten::mm(%{3}, %p{0}) : f32[s0, {1}] {2}\n",
        i, w, dense, h);
    forward += fmt::format(
        "%v{0} = aten::view(%d{0}, size = [s0 * {1}]) : f32[s0 * {1}] {2}\n"
        "%c{0} = aten::histc(%v{0}, bins = 2) : f32[2] {2}\n"
        "%i{0} = aten::_to_copy(%c{0}, dtype = i64) : i64[2] {2}\n"
        "gt::read_ints(%i{0}) binds [u{3}, u{4}] {{module = \"layers.{0}.moe\", ep = dispatch, "
        "exchange = count_sync}}\n",
        i, w, fmt::format("{{module = \"layers.{}.moe\", ep = dispatch}}", i), 2 * i, 2 * i + 1);
    forward += at_experts(fmt::format("d{}", i), fmt::format("h{}", i), i, false);
    h = fmt::format("h{}", i);
  }
  backward +=
      fmt::format("%loss = aten::sum(%{}) : f32[] {{module = \"head\", phase = loss}}\n", h);
  backward += fmt::format(
      "%top = aten::neg(%{}) : f32[s0, {}] {{module = \"head\", phase = backward}}\n", h, w);
  std::string gradient = "top";
  outputs = "loss \"loss\" %loss";
  for (int i = blocks - 1; i >= 0; --i) {
    const std::string dense =
        fmt::format("{{module = \"layers.{}.attention\", phase = backward}}", i);
    backward += at_experts(gradient, fmt::format("gd{}", i), i, true);
    backward += fmt::format(
        "%tp{0} = aten::t(%p{0}) : f32[{1}, {1}]{{1, {1}}} {2}\n"
        "%gh{0} = aten::mm(%gd{0}, %tp{0}) : f32[s0, {1}] {2}\n"
        "%th{0} = aten::t(%{3}) : f32[{1}, s0]{{1, {1}}} {2}\n"
        "%gp{0} = aten::mm(%th{0}, %gd{0}) : f32[{1}, {1}] {2}\n"
        "%r{0} = _c10d_functional::reduce_scatter_tensor(%gp{0}, reduce_op = \"sum\", group_size = "
        "2, group_name = \"fsdp\") : f32[{4}, {1}] {2}\n"
        "%gw{0} = _c10d_functional::wait_tensor(%r{0}) : f32[{4}, {1}] {2}\n",
        i, w, dense, i == 0 ? std::string("x") : fmt::format("h{}", i - 1), half);
    gradient = fmt::format("gh{}", i);
    outputs += fmt::format(", gradient \"w{0}\" %gw{0}", i);
  }
  return fmt::format(
      "graph @step(%x: input \"x\" f32[s0, {}]{}) {{\nsymbols {{ s0: input, hint 4096, range [2, "
      "8192]{} }}\nfacts {{ {} }}\n{}{}return {}\n}}\n",
      w, inputs, symbols, facts, forward, backward, outputs);
}

std::unique_ptr<CostModel> Costs(const Graph& graph) {
  static const LinkModel& links =
      *new LinkModel({.name = "test",
                      .generation = "hopper",
                      .gpus_per_node = 8,
                      .links = SimpleLinks{.node = {10, 300}, .network = {20, 50}}});
  CostModelOptions options{.device = SpeedOf("hopper"), .links = &links};
  options.groups["ep"] = {.nodes = 4, .ranks_per_node = 1};
  options.groups["fsdp"] = {.nodes = 2, .ranks_per_node = 1};
  return MakeCostModel(graph, std::move(options));
}

struct Outcome {
  double microseconds;
  int64_t peak;
  std::vector<std::string> order;
};

Outcome OutcomeOf(Graph& graph) {
  Outcome outcome{Simulate(graph, *Costs(graph)).step, PeakInUse(graph), {}};
  for (const Node* node : graph.nodes()) {
    if (node->result_count() > 0) outcome.order.push_back(node->result()->name());
  }
  return outcome;
}

// Runs the passes up to the schedule, and then the others.
struct Planned {
  Outcome scheduled, final;
  PipelineReport report;
};

Planned Plan(const PipelineOptions& options, int blocks) {
  auto graph = Parse(BlocksText(blocks, 4096));
  testing::DeclareLayers(*graph);
  Verify(*graph);
  PassList first = DefaultPipeline(options), rest;
  const auto schedule = std::find_if(first.begin(), first.end(), [](const auto& pass) {
    return pass->info().name == std::string_view("ep_overlap_schedule");
  });
  std::move(schedule + 1, first.end(), std::back_inserter(rest));
  first.erase(schedule + 1, first.end());
  Planned planned;
  PassContext context({.costs = Costs});
  planned.report = PassManager(std::move(first), {.write_reproducer = false}).Run(*graph, context);
  planned.scheduled = OutcomeOf(*graph);
  PassManager(std::move(rest), {.write_reproducer = false}).Run(*graph, context);
  planned.final = OutcomeOf(*graph);
  return planned;
}

int64_t Count(const PipelineReport& report, std::string_view pass, std::string_view counter) {
  for (const PassRun& run : report.runs) {
    if (run.name != pass) continue;
    for (const auto& [name, value] : run.counters) {
      if (name == counter) return value;
    }
  }
  ADD_FAILURE() << "no counter " << counter << " of " << pass;
  return -1;
}

// A step through all of them: parameters are gathered again in
// the backward, and what is predicted does not grow by the order.
TEST(AutoparallelPipeline, RewritesAStep) {
  auto graph = Parse(BlocksText(4, 256));
  testing::DeclareLayers(*graph);
  const int64_t nodes = graph->node_count();
  PassContext context({.costs = Costs});
  AutoparallelPipelineOptions options;
  options.buckets.emplace();
  const PipelineReport report =
      PassManager(ParsePipeline(AutoparallelPipelineText(options)), {.write_reproducer = false})
          .Run(*graph, context);
  Verify(*graph);
  EXPECT_NE(graph->node_count(), nodes);
  EXPECT_EQ(Count(report, "tag_parameter_gathers", "gathers"), 4);
  // Again in the backward, but for the first block, whose input has no gradient.
  EXPECT_EQ(Count(report, "bucket_by_size", "gathers"), 4 + 3);
  EXPECT_EQ(Count(report, "bucket_by_size", "gather_buckets"), 2);
  EXPECT_LE(Count(report, "prefetch_collectives", "microseconds_after"),
            Count(report, "prefetch_collectives", "microseconds_before"));
  EXPECT_EQ(static_cast<int64_t>(OutcomeOf(*graph).microseconds),
            Count(report, "prefetch_collectives", "microseconds_after"));
}

// What the schedule planned is what runs: no pass after it moves anything, dense regions least.
TEST(Pipeline, NothingUndoesTheSchedule) {
  for (OverlapSchedule mode : {OverlapSchedule::kCost, OverlapSchedule::kStructural}) {
    for (int blocks : {3, 5}) {
      SCOPED_TRACE(fmt::format("{} blocks, {}", blocks, EnumName(mode)));
      PipelineOptions options;
      options.chunk.emplace();
      options.bucket_prefetch = 1;
      options.dense_regions = true;
      options.overlap = {.schedule = mode};
      options.concretize = true;
      const Planned planned = Plan(options, blocks);
      // The case must be one: the pass moves collectives, and the schedule moves nodes.
      EXPECT_GT(Count(planned.report, "fsdp_dense_regions", "gathers"), 0);
      EXPECT_GT(Count(planned.report, "fsdp_dense_regions", "reductions"), 0);
      EXPECT_GT(Count(planned.report, "ep_overlap_schedule", "moved"), 0);
      EXPECT_EQ(planned.final.order, planned.scheduled.order);
      EXPECT_LE(planned.final.microseconds, planned.scheduled.microseconds);
      EXPECT_LE(planned.final.peak, planned.scheduled.peak);
    }
  }
}

// Passes that work block by block say so where a graph declares no blocks.
TEST(Pipeline, MissingBlocksAreReported) {
  PipelineOptions options;
  options.memory.policy = MemoryPolicy::kFull;
  options.bucket_prefetch = 1;
  auto said_about = [&](Graph& graph) {
    ::testing::internal::CaptureStderr();
    PassManager(DefaultPipeline(options), {.write_reproducer = false}).Run(graph);
    return ::testing::internal::GetCapturedStderr();
  };
  auto undeclared = Parse(BlocksText(2, 64));
  const std::string said = said_about(*undeclared);
  EXPECT_NE(said.find("no module of graph @step declares that it is a block, so memory_policy, "
                      "rematerialize, bucket_fsdp will do little for it"),
            std::string::npos)
      << said;
  auto declared = Parse(BlocksText(2, 64));
  testing::DeclareLayers(*declared);
  EXPECT_EQ(said_about(*declared), "");
  Graph nameless("empty");
  EXPECT_EQ(said_about(nameless), "");
}

}  // namespace
}  // namespace gt::pipeline_test
