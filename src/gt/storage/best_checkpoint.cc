#include "gt/storage/best_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/storage/file_writer.h"

namespace gt {
namespace {

constexpr const char *kStepKey = "step", *kLossKey = "validation_loss",
                     *kForThisKey = "saved_for_this";

std::optional<BestCheckpoint> ParseBest(const std::string& text) {
  const nlohmann::json json = ParseJsonIfGood(text).value_or(nullptr);
  const bool is_whole = json.is_object() && json.contains(kStepKey) && json.contains(kLossKey) &&
                        json[kStepKey].is_number_integer() && json[kLossKey].is_number() &&
                        (!json.contains(kForThisKey) || json[kForThisKey].is_boolean());
  if (!is_whole) return std::nullopt;
  return BestCheckpoint{.step = json[kStepKey].get<int64_t>(),
                        .validation_loss = json[kLossKey].get<double>(),
                        .saved_for_this = json.value(kForThisKey, false)};
}

}  // namespace

std::optional<BestCheckpoint> ReadBest(const std::filesystem::path& store) {
  const std::filesystem::path path = store / kBestFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  std::optional<BestCheckpoint> best;
  try {
    best = ParseBest(ReadWholeFile(path.string()));
  } catch (const UnreadableFile& error) {
    log::Warn("cannot read {}: {}", path.string(), error.what());
    return std::nullopt;
  }
  if (!best) log::Warn("{} does not name a checkpoint: it is damaged", path.string());
  return best;
}

void WriteBest(const std::filesystem::path& store, const BestCheckpoint& best) {
  const nlohmann::json json = {{kStepKey, best.step},
                               {"folder", fmt::format("step-{:08}", best.step)},
                               {kLossKey, best.validation_loss},
                               {kForThisKey, best.saved_for_this}};
  WriteFile(store / kBestFile, json.dump(2) + "\n");
}

std::vector<int64_t> StepsToRemove(std::span<const int64_t> steps, int64_t saved,
                                   const Retention& retention,
                                   const std::optional<BestCheckpoint>& before) {
  const auto is_best = [&](int64_t step) { return retention.best && retention.best->step == step; };
  // The best one counts among the newest unless it was saved only for being the best.
  const auto counts = [&](int64_t step) {
    if (step > saved) return false;
    const bool is_before = before && before->step == step && before->saved_for_this;
    const bool is_extra =
        is_best(step) && (step == saved ? retention.best->saved_for_this : is_before);
    return !is_extra;
  };
  std::vector<int64_t> regular, removed;
  for (const int64_t step : steps) {
    const bool is_outdone = retention.best && before && before->saved_for_this &&
                            before->step == step && step < saved && !is_best(step);
    if (is_outdone) {
      removed.push_back(step);
    } else if (counts(step)) {
      regular.push_back(step);
    }
  }
  if (retention.newest > 0) {
    const auto kept = std::min(regular.size(), static_cast<std::size_t>(retention.newest));
    regular.resize(regular.size() - kept);
    std::erase_if(regular, is_best);
    removed.insert(removed.end(), regular.begin(), regular.end());
  }
  std::sort(removed.begin(), removed.end());
  return removed;
}

}  // namespace gt
