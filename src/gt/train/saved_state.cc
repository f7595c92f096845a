#include "gt/train/saved_state.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/json_text.h"

namespace gt {
namespace {

class StateReader {
 public:
  explicit StateReader(const std::string& folder) : folder_(folder) {}

  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kCheckpointDamaged, "{}/state.json: {}", folder_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  const nlohmann::json& At(const nlohmann::json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) Refuse("'{}' is missing", key);
    return *found;
  }

  const nlohmann::json& Object(const nlohmann::json& object, const char* key) const {
    const nlohmann::json& value = At(object, key);
    if (!value.is_object()) Refuse("'{}' must be an object, not {}", key, ShortJson(value));
    return value;
  }

  std::string Text(const nlohmann::json& object, const char* key) const {
    const nlohmann::json& value = At(object, key);
    if (!value.is_string()) Refuse("'{}' must be a text, not {}", key, ShortJson(value));
    return value.get<std::string>();
  }

  // Runs end long before `kMost`.
  int64_t Count(const nlohmann::json& object, const char* key, int64_t least = 0) const {
    constexpr uint64_t kMost = uint64_t{1} << 52;
    const nlohmann::json& value = At(object, key);
    const bool is_count =
        value.is_number_integer() && (value.is_number_unsigned() || value.get<int64_t>() >= 0);
    if (!is_count || value.get<uint64_t>() > kMost || value.get<int64_t>() < least) {
      Refuse("'{}' must be a whole number from {} to {}, not {}", key, least, kMost,
             ShortJson(value));
    }
    return value.get<int64_t>();
  }

  double Finite(const nlohmann::json& object, const char* key) const {
    const nlohmann::json& value = At(object, key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      Refuse("'{}' must be a number, not {}", key, ShortJson(value));
    }
    return value.get<double>();
  }

 private:
  const std::string& folder_;
};

DataProgress DataFrom(const StateReader& reader, const nlohmann::json& data) {
  DataProgress progress;
  progress.rows = reader.Count(data, "rows", 1);
  const nlohmann::json& loaders = reader.At(data, "loaders");
  if (!loaders.is_array()) {
    reader.Refuse("'loaders' must be a list, not {}", ShortJson(loaders));
  }
  for (const nlohmann::json& loader : loaders) {
    if (!loader.is_object()) {
      reader.Refuse("'loaders' must be a list of objects, not of {}", ShortJson(loader));
    }
    progress.loaders.push_back(loader);
  }
  return progress;
}

}  // namespace

SavedState ReadSavedState(const nlohmann::json& state, int64_t step, const std::string& folder) {
  const StateReader reader(folder);
  if (!state.is_object()) reader.Refuse("an object is expected, not {}", ShortJson(state));
  SavedState saved;
  saved.step = reader.Count(state, "step");
  if (saved.step != step) {
    reader.Refuse("'step' is {}, but the checkpoint is of step {}", saved.step, step);
  }
  saved.tokens = reader.Count(state, "tokens");
  saved.identity = reader.Object(state, "identity");
  if (saved.identity.contains("architecture")) reader.Object(saved.identity, "architecture");
  reader.Text(saved.identity, "dtype");
  const nlohmann::json& data = reader.Object(state, "data");
  if (!data.contains("loaders")) {  // of a version that knew one rank alone
    saved.data.loaders = {data};
    saved.batches = saved.step;
    return saved;
  }
  saved.data = DataFrom(reader, data);
  saved.batches = reader.Count(state, "batches");
  const double sequences = static_cast<double>(saved.batches) *
                           static_cast<double>(saved.data.rows) *
                           static_cast<double>(saved.data.loaders.size());
  if (sequences > 4e18) reader.Refuse("'batches' and 'rows' are more sequences than any run reads");
  saved.config = reader.Text(state, "config");
  if (state.contains("best")) {
    const nlohmann::json& best = reader.Object(state, "best");
    saved.best = {.step = reader.Count(best, "step"),
                  .validation_loss = reader.Finite(best, "validation_loss")};
  }
  return saved;
}

}  // namespace gt
