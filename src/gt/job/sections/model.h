// [model]: the network.
#pragma once

#include <cstdint>
#include <string>

#include "gt/config/option_struct.h"
#include "gt/job/sections/attention_choice.h"

namespace gt {

struct ModelSection {
  GT_OPTION(std::string, name, "llama3", NotEmpty(), "model family");
  GT_OPTION(std::string, flavor, "debugmodel", NotEmpty(), "size within the family, such as 8B");
  GT_OPTION(std::string, hf_path, "", Any(),
            "Hugging Face folder to take the architecture, the weights and the tokenizer from; "
            "name and flavor are then ignored");
  GT_OPTION(std::string, tokenizer_path, "", Any(),
            "tokenizer.json, or a folder that holds one, or bytes: every byte is a token; empty: "
            "the one in hf_path, else the small one that ships with gt, or bytes where the "
            "vocabulary is too small for it");
  GT_OPTION(int64_t, n_layers, 0, Within(0, 4096),
            "number of layers in place of the flavor's; 0 keeps the flavor's");
  GT_OPTION(int64_t, vocab_size, 0, Within(0, 268435456),
            "size of the vocabulary in place of the flavor's; 0 keeps the flavor's");
  GT_OPTION(AttentionBackend, attn, AttentionBackend::kSdpa, Any(),
            "attention: sdpa is libtorch's fused kernel, flex computes any score and mask function "
            "block by block");
  GT_OPTION(AttentionMask, attn_mask_type, AttentionMask::kCausal, Any(),
            "what a token attends to: causal, everything before it; block_causal, everything "
            "before it in its document (needs flex)");
  GT_OPTION(double, dropout, 0.0, Within(0, 0.95),
            "share of the elements that training zeroes in what attention and feed-forward add to "
            "the residual stream");
  GT_OPTION(double, load_balance_coeff, -1.0, AtLeast(-1),
            "how far expert biases move toward balance each step; 0 switches it off, -1 is the "
            "flavor's own (0 with hf_path)");
  GT_END_OPTIONS(ModelSection);
};

}  // namespace gt
