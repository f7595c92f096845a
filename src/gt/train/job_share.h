// What a rank of a job has of every batch, and what it adds to sums over ranks. By hand-written layouts
// the mesh says so, in a placed job the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gt/compile/placed_step.h"
#include "gt/data/loader.h"
#include "gt/dist/mesh.h"
#include "gt/train/step/batch.h"

namespace gt {

// Readers are loaders of different data, as many as the mesh has ranks along its batch axis; the batch
// of all ranks is theirs, one after the other.
struct ReaderRange {
  int64_t first = 0;
  int64_t last = 1;  // one beyond
  int64_t count() const { return last - first; }
};

class JobShare {
 public:
  // `rows` are those of one reader's batch.
  JobShare(const Mesh& mesh, int64_t rows);
  JobShare(const Mesh& mesh, int64_t rows, const PlacedJob& placed);

  // Whose batches this rank needs.
  const ReaderRange& readers() const { return readers_; }
  // For each reader of the job, the rank that saves its place in the data with checkpoints.
  const std::vector<int64_t>& savers() const { return savers_; }

  // This rank's part of what its readers have read. `valid_tokens` are those that it counts.
  Batch ToDevice(const TokenBatch& batch, at::Device device) const;

  // Of a number that every rank has worked out: what it adds to the sum over ranks.
  double OfTokens(double number) const { return counts_tokens_ ? number : 0.0; }
  double OfLoss(double number) const { return counts_loss_ ? number : 0.0; }
  // Each rank has counted the tokens of its own experts' choice; else all ranks have the sum.
  bool counts_experts_apart() const { return counts_experts_apart_; }
  // Ranks with the same number draw the same random numbers.
  int64_t random_stream() const { return random_stream_; }

 private:
  struct Part {  // of a batch of this rank's readers
    int64_t first_row = 0, rows = 0;
    int64_t begin = 0, length = 0;
  };
  Mesh mesh_;
  ReaderRange readers_;
  std::vector<int64_t> savers_;
  bool counts_tokens_ = true, counts_loss_ = true, counts_experts_apart_ = true;
  int64_t random_stream_ = 0;
  struct Parts {
    Part tokens, labels, positions;
    bool counts_labels = true;  // the first of the ranks that have them
  };
  std::optional<Parts> parts_;  // of a placed job
};

}  // namespace gt
