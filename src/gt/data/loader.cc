#include "gt/data/loader.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/data/batch_source.h"
#include "gt/data/prefetcher.h"

namespace gt {
namespace {

void CheckOptions(const LoaderOptions& options) {
  GT_CHECK(options.rows > 0 && options.length > 0, "batches of {} x {} tokens", options.rows,
           options.length);
  GT_CHECK(options.vocab_size > 0, "a vocabulary of {} entries", options.vocab_size);
  GT_CHECK(options.world > 0 && options.rank >= 0 && options.rank < options.world,
           "rank {} of {} ranks", options.rank, options.world);
  GT_CHECK(options.prefetch >= 0, "{} batches ahead", options.prefetch);
}

std::string ValueText(const nlohmann::json* value) {
  if (!value) return "nothing";
  return value->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const nlohmann::json* FindKey(const nlohmann::json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// What differs between a saved job and this one, in words.
std::string DifferenceOf(const std::string& key, const nlohmann::json* saved,
                         const nlohmann::json& here) {
  if (key == "files") {
    return "the data files are not those it was saved with (their names or sizes differ)";
  }
  std::string text =
      fmt::format("{} was {} and is {} now", key, ValueText(saved), ValueText(&here));
  if (key == "world" || key == "rank") {
    text += " (a place in the data belongs to one rank of a fixed number of ranks)";
  }
  return text;
}

}  // namespace

class Loader::Impl {
 public:
  explicit Impl(LoaderOptions options)
      : options_(std::move(options)), files_(FindDataFiles(options_.path)) {
    CheckOptions(options_);
    source_ =
        files_.IsTokens() ? MakeTokenRows(files_, options_) : MakePackedText(files_, options_);
    place_ = source_->Place();
  }

  TokenBatch Next() {
    const auto start = std::chrono::steady_clock::now();
    Prepared prepared = TakePrepared();
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    place_ = std::move(prepared.place_after);
    return std::move(prepared.batch);
  }

  nlohmann::json State() const { return {{"job", Job()}, {"place", place_}}; }

  void Restore(const nlohmann::json& state) {
    const nlohmann::json* job = state.is_object() ? FindKey(state, "job") : nullptr;
    const nlohmann::json* place = state.is_object() ? FindKey(state, "place") : nullptr;
    if (!job || !place || !job->is_object() || !place->is_object()) {
      Fail(ErrorCode::kCheckpointMismatch,
           "the saved state of the data has no \"job\" and \"place\": it is not one");
    }
    CheckJob(*job);
    prefetcher_.reset();  // joins its thread, which uses source_
    source_->Seek(*place);
    place_ = source_->Place();
  }

  double waited_seconds() const { return waited_; }

  std::string Describe() const {
    const std::size_t count = files_.files.size();
    return fmt::format("{}: {} {}, {}, {}", files_.name, count, count == 1 ? "file" : "files",
                       source_->Describe(), DecimalByteText(files_.TotalSize()));
  }

 private:
  struct Prepared {
    TokenBatch batch;
    nlohmann::json place_after;
  };

  Prepared TakePrepared() {
    if (options_.prefetch == 0) return Prepare();
    // Started as late as possible: a loader that is restored first need not make batches for
    // nothing.
    if (!prefetcher_) {
      prefetcher_ = std::make_unique<Prefetcher<Prepared>>(
          [this] { return Prepare(); }, static_cast<std::size_t>(options_.prefetch));
    }
    return prefetcher_->Next();
  }

  Prepared Prepare() {
    Prepared prepared;
    TokenBatch& batch = prepared.batch;
    batch.rows = options_.rows;
    batch.length = options_.length;
    batch.valid_tokens = batch.rows * batch.length;  // packed rows have a token after each one
    const auto size = static_cast<std::size_t>(batch.valid_tokens);
    batch.tokens.resize(size);
    batch.labels.resize(size);
    batch.positions.resize(size);
    source_->Fill(batch);
    prepared.place_after = source_->Place();
    return prepared;
  }

  // Everything that decides which batches are made.
  nlohmann::json Job() const {
    const auto id = [](std::optional<int32_t> value) {
      return value ? nlohmann::json(*value) : nlohmann::json();
    };
    return {{"files", fmt::format("{:016x}", files_.Fingerprint())},
            {"kind", EnumName(files_.kind)},
            {"rows", options_.rows},
            {"length", options_.length},
            {"seed", options_.seed},
            {"shuffle", source_->is_shuffled()},
            {"rank", options_.rank},
            {"world", options_.world},
            {"bos_id", id(options_.bos_id)},
            {"eos_id", id(options_.eos_id)}};
  }

  void CheckJob(const nlohmann::json& saved) const {
    std::vector<std::string> differences;
    const nlohmann::json job = Job();
    for (const auto& [key, value] : job.items()) {
      const nlohmann::json* before = FindKey(saved, key);
      if (!before || *before != value) differences.push_back(DifferenceOf(key, before, value));
    }
    if (differences.empty()) return;
    Fail(ErrorCode::kCheckpointMismatch,
         "the data of '{}' cannot go on where the checkpoint left it: "
         "{}",
         files_.name, Join(differences, "; "));
  }

  LoaderOptions options_;
  DataFiles files_;
  std::unique_ptr<BatchSource> source_;  // belongs to the prefetcher's thread while there is one
  nlohmann::json place_;                 // after the batch that was handed out last
  double waited_ = 0;
  std::unique_ptr<Prefetcher<Prepared>> prefetcher_;
};

Loader::Loader(LoaderOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Loader::~Loader() = default;
TokenBatch Loader::Next() { return impl_->Next(); }
nlohmann::json Loader::State() const { return impl_->State(); }
void Loader::Restore(const nlohmann::json& state) { impl_->Restore(state); }
double Loader::waited_seconds() const { return impl_->waited_seconds(); }
std::string Loader::Describe() const { return impl_->Describe(); }

}  // namespace gt
