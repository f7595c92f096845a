// Cuts the parts of a step that exchange tokens between ranks into chunks along the batch or the
// sequence, so that one chunk's exchange can run while another computes. docs/chunking.md shows a
// region before and after.
#pragma once

#include <string>

#include "gt/passes/chunk/chunk_options.h"
#include "gt/passes/framework/pass.h"

namespace gt {

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
