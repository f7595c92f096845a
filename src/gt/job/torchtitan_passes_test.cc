#include "gt/job/torchtitan_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/config/command_line.h"
#include "gt/job/config.h"
#include "gt/passes/framework/registry.h"

namespace gt::torchtitan_passes_test {
namespace {

const Option* FindOption(const std::vector<OptionGroup>& groups, std::string_view path) {
  for (const OptionGroup& group : groups) {
    for (const Option& option : group.options) {
      if (option.path() == path) return &option;
    }
  }
  return nullptr;
}

// Passes and options in the table exist; rows without either have a reason.
TEST(UpstreamPasses, EveryNameIsAnswered) {
  Config config;
  const std::vector<OptionGroup> groups = BindOptions(&config);
  const std::vector<std::string> ours = PassNames();
  std::set<std::string_view> seen;
  for (const UpstreamPass& upstream : UpstreamPasses()) {
    SCOPED_TRACE(upstream.name);
    EXPECT_TRUE(seen.insert(upstream.name).second);
    EXPECT_EQ(std::count(ours.begin(), ours.end(), upstream.name), 0) << "it is ours";
    EXPECT_TRUE(upstream.pass.empty() || upstream.option.empty());
    if (!upstream.pass.empty()) {
      EXPECT_EQ(std::count(ours.begin(), ours.end(), upstream.pass), 1) << upstream.pass;
      EXPECT_EQ(ResolvePassName(upstream.name), upstream.pass);
    } else if (!upstream.option.empty()) {
      const Option* option = FindOption(groups, upstream.option);
      ASSERT_NE(option, nullptr);
      EXPECT_TRUE(option->is_flag());
    } else {
      EXPECT_FALSE(upstream.note.empty());
    }
  }
}

// The passes of torchtitan's pipeline, in its order.
TEST(UpstreamPasses, ThePipelineIsComplete) {
  for (const char* name : {"eliminate_dead_code_pass",
                           "canonicalize_graph_pass",
                           "deduplicate_fsdp_unshard_chains_pass",
                           "tag_with_memory_policy_pass",
                           "apply_cpu_offload_pass",
                           "selective_activation_remat_pass",
                           "populate_eager_chunk_metadata_pass",
                           "populate_chunk_dim_metadata_pass",
                           "ep_overlap_chunk_pass",
                           "isolate_ep_process_group_pass",
                           "reassign_collective_pgs_pass",
                           "joint_transformer_block_bucketing_reordering_pass",
                           "ep_overlap_schedule_pass",
                           "concretize_ep_chunk_symbolic_shapes_pass",
                           "schedule_fsdp_comms_to_dense_regions_pass",
                           "async_tensor_parallel_pass",
                           "annotate_flex_attention_for_regional_inductor_pass",
                           "annotate_rmsnorm_for_regional_inductor_pass",
                           "regional_inductor_pass",
                           "insert_kernel_annotations_pass",
                           "full_inductor_compilation_pass",
                           "cudagraph_pass"}) {
    EXPECT_NE(FindUpstreamPass(name), nullptr) << name;
  }
}

TEST(UpstreamPasses, StandForOursWhereverPassesAreNamed) {
  EXPECT_EQ(PrintPipeline(ParsePipeline("ep_overlap_chunk_pass{symbol=s1},cse")),
            "chunk{symbol=s1},cse");
  EXPECT_EQ(ResolvePassName("reassign_collective_pgs_pass"), "reassign_fsdp_all_gathers");
  for (const auto& [name, part] :
       {std::pair("ep_overlap", "--compile.ep_overlap.enabled"),
        std::pair("cudagraph_pass", "--compile.cuda_graphs"),
        std::pair("populate_chunk_dim_metadata_pass", "a symbol of the captured graph")}) {
    try {
      ParsePipeline(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnknownPass);
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
      EXPECT_EQ(error.message().find("did you mean"), std::string::npos) << error.message();
    }
  }
}

TEST(TranslatePasses, SortsNamesOut) {
  const TranslatedPasses passes = TranslatePasses(
      "[ep_overlap, isolate_ep_process_group_pass, cse{cross_phase=none}, "
      "populate_chunk_dim_metadata_pass]");
  EXPECT_EQ(passes.list, "isolate_ep_process_group,cse{cross_phase=none}");
  EXPECT_TRUE(passes.replaces);
  EXPECT_EQ(passes.renamed.size(), 1u);
  ASSERT_EQ(passes.options.size(), 1u);
  EXPECT_EQ(passes.options[0]->name, "ep_overlap");
  EXPECT_EQ(passes.unneeded.size(), 1u);
  EXPECT_EQ(TranslatePasses("+canonicalize_graph_pass,dce").list, "+canonicalize,dce");
  EXPECT_EQ(TranslatePasses("+ep_overlap").list, "");
  EXPECT_EQ(TranslatePasses("[]").list, "");
  EXPECT_EQ(TranslatePasses("").list, "");
  EXPECT_EQ(TranslatePasses("dce, chnk").list, "dce,chnk");
}

Config FromFlags(const std::vector<std::string>& flags) {
  Config config;
  CommandLine line("gt train", "trains");
  line.WithConfig(&config);
  EXPECT_TRUE(line.Parse(flags));
  return config;
}

Config FromFile(std::string_view text) {
  Config config;
  LoadToml(text, "job.toml", &config);
  return config;
}

template <typename Read>
Error ErrorOf(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, ""};
}

Config WithOverlap() {
  Config config;
  config.compile.ep_overlap.enabled = AutoSwitch::kTrue;
  return config;
}

TEST(TorchtitanPasses, EpOverlapSwitchesTheFeatureOn) {
  for (const char* text : {"ep_overlap", "+ep_overlap", " ep_overlap "}) {
    EXPECT_EQ(FromFlags({"--compile.passes", text}), WithOverlap()) << text;
  }
  EXPECT_EQ(FromFile("[compile]\npasses = \"ep_overlap\"\n"), WithOverlap());
  EXPECT_EQ(FromFile("[compile]\npasses = [\"ep_overlap\"]\n"), WithOverlap());
  EXPECT_EQ(FromFile("[compile]\npasses = []\n"), Config());
  Config more = WithOverlap();
  more.compile.passes = "+cse";
  EXPECT_EQ(FromFlags({"--compile.passes=+cse,ep_overlap"}), more);
}

TEST(TorchtitanPasses, FilesHaveListsOfPassesToo) {
  EXPECT_EQ(FromFile("[compile]\npasses = [\"dce\", \"cse{cross_phase=none}\"]\n").compile.passes,
            "dce,cse{cross_phase=none}");
  EXPECT_EQ(FromFile("[compile]\npasses = [\"+cse\", \"dce\"]\n").compile.passes, "+cse,dce");
  EXPECT_EQ(ErrorOf([] { FromFile("[compile]\npasses = 3\n"); }).code(),
            ErrorCode::kBadOptionValue);
}

TEST(TorchtitanPasses, AFeatureIsNotSwitchedOnAndOff) {
  const Error flags = ErrorOf([] {
    FromFlags({"--compile.passes=ep_overlap", "--compile.ep_overlap.enabled=False"});
  });
  EXPECT_EQ(flags.code(), ErrorCode::kConflictingOptions);
  EXPECT_EQ(flags.message(),
            "--compile.passes: ep_overlap sets compile.ep_overlap.enabled to true, but "
            "--compile.ep_overlap.enabled is False; keep one of them");
  const Error file = ErrorOf([] {
    FromFile("[compile]\npasses = [\"ep_overlap\"]\n[compile.ep_overlap]\nenabled = false\n");
  });
  EXPECT_EQ(file.code(), ErrorCode::kConflictingOptions);
  EXPECT_NE(file.message().find("job.toml:4: compile.ep_overlap.enabled"), std::string::npos)
      << file.message();
  EXPECT_EQ(ErrorOf([] {
              FromFlags({"--compile.passes=ep_overlap", "--compile.disable_passes=ep_overlap"});
            }).code(),
            ErrorCode::kConflictingOptions);
  // auto is a way of enabling it.
  EXPECT_EQ(FromFlags({"--compile.passes=ep_overlap", "--compile.ep_overlap.enabled=auto"})
                .compile.ep_overlap.enabled,
            AutoSwitch::kAuto);
}

TEST(TorchtitanPasses, NamesAreTranslatedInBothLists) {
  const Config config =
      FromFlags({"--compile.passes=+canonicalize_graph_pass",
                 "--compile.disable_passes=reassign_collective_pgs_pass,cudagraph_pass",
                 "--compile.disable_passes=isolate_ep_process_group_pass,custom_codegen_pass,cse"});
  EXPECT_EQ(config.compile.passes, "+canonicalize");
  EXPECT_EQ(config.compile.disable_passes,
            (StringList{"reassign_fsdp_all_gathers", "isolate_ep_process_group", "cse"}));
  EXPECT_FALSE(config.compile.cuda_graphs);
  EXPECT_EQ(FromFile("[compile]\ndisable_passes = [\"cudagraph_pass\", \"dce\"]\n")
                .compile.disable_passes,
            StringList{"dce"});
  const Error error =
      ErrorOf([] { FromFlags({"--compile.passes=+populate_chunk_dim_metadata_pass"}); });
  EXPECT_EQ(error.code(), ErrorCode::kUnknownPass);
  EXPECT_NE(error.message().find("has no counterpart"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace gt::torchtitan_passes_test
