// Which checkpoint of a folder is the best one, and which checkpoints are kept when a newer one is
// complete. best.json beside the checkpoints names the best one for people and programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace gt {

inline constexpr std::string_view kBestFile = "best.json";

struct BestCheckpoint {
  int64_t step = 0;
  double validation_loss = 0;
  // Saved only because it was the best, so it is removed once another one is better.
  bool saved_for_this = false;

  bool operator==(const BestCheckpoint&) const = default;
};

// The content of best.json; nothing if there is none, or, with a warning, if it is damaged.
std::optional<BestCheckpoint> ReadBest(const std::filesystem::path& store);

// Replaces best.json; CannotWrite if that is not possible.
void WriteBest(const std::filesystem::path& store, const BestCheckpoint& best);

// Which checkpoints are kept when a new one is complete.
struct Retention {
  // The number of newest checkpoints; 0: all.
  Retention(int64_t newest_kept)  // NOLINT(google-explicit-constructor)
      : newest(newest_kept) {}
  Retention(int64_t newest_kept, std::optional<BestCheckpoint> best_kept)
      : newest(newest_kept), best(best_kept) {}

  int64_t newest = 0;
  // The best checkpoint of the run, kept besides them. Its saved_for_this only matters while it is
  // being saved; for an older one, best.json has it.
  std::optional<BestCheckpoint> best = {};
};

// The steps to remove once `saved` is complete. Steps beyond it are left alone: a run that went
// further made them. `before` is the previous content of best.json.
std::vector<int64_t> StepsToRemove(std::span<const int64_t> steps, int64_t saved,
                                   const Retention& retention,
                                   const std::optional<BestCheckpoint>& before);

}  // namespace gt
