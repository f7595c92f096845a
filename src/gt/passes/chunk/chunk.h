// Cuts the parts of a step that exchange tokens between ranks into chunks along the batch or the
// sequence, so that one chunk's exchange can run while another computes. docs/chunking.md shows a
// region before and after.
#pragma once

#include <string>

#include "gt/config/config.h"
#include "gt/passes/framework/pass.h"

namespace gt {

struct ChunkOptions {
  std::string modules = "layers.*";  // which modules are cut (base/fqn_pattern.h)
  std::string symbol = "s0";         // the extent that is cut, as the graph names it
  ChunkDim dim = ChunkDim::kBatch;   // what that extent is
  int64_t chunks = 2;
  // Each chunk's gradients go through casts and collectives of their own.
  bool strict = false;
  // A chunk of one module's result is the next module's input, without a detour over the whole.
  bool keep_across_roots = true;
};

class Chunk : public Pass {
 public:
  explicit Chunk(ChunkOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  ChunkOptions options_;
  Counter roots_{this, "roots", "modules that were cut"};
  Counter copies_{this, "copies", "nodes made for chunks"};
  Counter splits_{this, "splits", "whole values that were cut"};
  Counter joins_{this, "joins", "values put together again"};
  Counter sums_{this, "sums", "values added up over chunks"};
  Counter handed_on_{this, "handed_on", "chunks of one module's results that another module uses"};
};

}  // namespace gt
