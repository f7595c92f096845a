#include "gt/passes/framework/upstream_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gt {
namespace {

constexpr std::string_view kEarlierPart = "earlier part of canonicalize_graph_pass";
constexpr std::string_view kEarlierChunk = "earlier name of ep_overlap_chunk_pass";
constexpr std::string_view kGeneratedKernels =
    "compile.inductor_compilation selects what is compiled; results stay those of eager, bit for "
    "bit";
constexpr std::string_view kNoMarks =
    "the chunk dimension is a symbol of the captured graph and carries its hint";

constexpr auto kPasses = std::to_array<UpstreamPass>({
    {"eliminate_dead_code_pass", "dce"},
    {"canonicalize_graph_pass", "canonicalize"},
    {"deduplicate_fsdp_unshard_chains_pass", "cse", "",
     "merges all duplicate nodes, including parameter gathers"},
    {"tag_with_memory_policy_pass", "memory_policy"},
    {"apply_cpu_offload_pass", "cpu_offload"},
    {"selective_activation_remat_pass", "rematerialize"},
    {"populate_eager_chunk_metadata_pass", "", "",
     "chunked modules mark their nodes during capture"},
    {"populate_chunk_dim_metadata_pass", "", "", kNoMarks},
    {"ep_overlap_chunk_pass", "chunk"},
    {"isolate_ep_process_group_pass", "isolate_ep_process_group"},
    {"reassign_collective_pgs_pass", "reassign_fsdp_all_gathers"},
    {"joint_transformer_block_bucketing_reordering_pass", "bucket_fsdp"},
    {"ep_overlap_schedule_pass", "ep_overlap_schedule"},
    {"concretize_ep_chunk_symbolic_shapes_pass", "concretize"},
    {"schedule_fsdp_comms_to_dense_regions_pass", "fsdp_dense_regions"},
    {"async_tensor_parallel_pass", "", "", "gt has no fused matmul-collective kernels"},
    {"annotate_flex_attention_for_regional_inductor_pass", "", "",
     "--model.attn flex needs no compilation"},
    {"annotate_rmsnorm_for_regional_inductor_pass", "", "",
     "generated norm kernels keep eager's bits, so there is nothing to opt in to"},
    {"regional_inductor_pass", "fuse", "", kGeneratedKernels},
    {"full_inductor_compilation_pass", "fuse", "", kGeneratedKernels},
    {"standalone_inductor_compilation_pass", "fuse", "", kGeneratedKernels},
    {"insert_kernel_annotations_pass", "", "", "nodes carry their module, which profiles show"},
    {"cudagraph_pass", "", "compile.cuda_graphs", "records the spans between host operations"},
    {"custom_codegen_pass", "", "", "gt trace --kernels writes the generated kernels"},
    {"ep_overlap_validate_pass", "", "",
     "the schedule validates its input; compile.debug_graph_passes verifies every pass"},
    {"tlparse_log_graph_pass", "", "",
     "compile.debug_graph_passes dumps the graph before and after every pass"},

    {"ep_overlap", "", "compile.ep_overlap.enabled", "opt-in: chunking, process groups, schedule"},
    {"auto_bucketing", "", "compile.fsdp_bucketing", "opt-in: buckets per block"},
    {"transformer_block_bucketing", "", "compile.fsdp_bucketing", "opt-in: buckets per block"},

    {"autobucketing_reordering_pass", "bucket_fsdp", "", "buckets per block"},
    {"transformer_block_bucketing_reordering_pass", "bucket_fsdp"},
    {"overlap_fsdp_ag_rs_pass", "reassign_fsdp_all_gathers", "",
     "earlier name of reassign_collective_pgs_pass"},
    {"remove_dead_code_pass", "dce", "", "earlier name of eliminate_dead_code_pass"},
    {"remove_detach_pass", "canonicalize", "", kEarlierPart},
    {"remove_identity_view_pass", "canonicalize", "", kEarlierPart},
    {"remove_identity_slice_pass", "canonicalize", "", kEarlierPart},
    {"remove_b2b_transpose_pass", "canonicalize", "", kEarlierPart},
    {"normalize_view_ops_as_reshape", "canonicalize", "",
     "earlier part of canonicalize_graph_pass; gt turns reshapes into views where possible"},
    {"chunk_batch_pass", "chunk", "", kEarlierChunk},
    {"chunk_seq_pass", "chunk", "", kEarlierChunk},
    {"import_chunk_dim_metadata_pass", "", "", kNoMarks},
});

}  // namespace

std::span<const UpstreamPass> UpstreamPasses() { return kPasses; }

const UpstreamPass* FindUpstreamPass(std::string_view name) {
  const auto* found = std::find_if(kPasses.begin(), kPasses.end(),
                                   [name](const UpstreamPass& pass) { return pass.name == name; });
  return found == kPasses.end() ? nullptr : &*found;
}

std::string WhyNoPass(const UpstreamPass& upstream) {
  if (!upstream.option.empty()) {
    return fmt::format("torchtitan's {} is not a pass in gt but the option --{}", upstream.name,
                       upstream.option);
  }
  return fmt::format("torchtitan's {} has no counterpart in gt: {}", upstream.name, upstream.note);
}

}  // namespace gt
