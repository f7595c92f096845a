#include "gt/data/loader.h"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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
  GT_CHECK(!options.split.divides() || (options.split.held_out > 0 && options.split.held_out < 1),
           "a share of {}", options.split.held_out);
}

// Keys of the saved job: the share of the data that is held out, and whether only that is read.
constexpr const char *kHeldOut = "held_out", *kOnlyHeldOut = "only_held_out";

constexpr const char *kContents = "contents", *kTokenizerContents = "tokenizer_contents";

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
                         const nlohmann::json* here) {
  if (key == "files") {
    return "the data files (--training.dataset_path) are not those it was saved with (their names "
           "or sizes "
           "differ)";
  }
  if (key == kContents || key == kTokenizerContents) {
    return fmt::format(
        "the {} other contents than it was saved with (xxh64 {} then, {} now; "
        "--checkpoint.accept_changed_data continues all the same)",
        key == kContents ? "data files (--training.dataset_path) have"
                         : "tokenizer (--model.tokenizer_path) has",
        ValueText(saved), ValueText(here));
  }
  // What a user changes to change it back.
  static const std::map<std::string, std::string, std::less<>> kFlags = {
      {kHeldOut, "--validation.split"},
      {"rows", "--training.local_batch_size"},
      {"length", "--training.seq_len"},
      {"seed", "--training.seed"},
      {"shuffle", "--training.shuffle"},
      {"text_field", "--training.text_field"},
      {"bos_id", "bos_id of --model.tokenizer_path"},
      {"eos_id", "eos_id of --model.tokenizer_path"},
  };
  const auto flag = kFlags.find(key);
  const std::string name = flag == kFlags.end() ? key : flag->second;
  std::string text =
      fmt::format("{} was {} and is {} now", name, ValueText(saved), ValueText(here));
  if (key == "world" || key == "rank") {
    text += " (a place in the data belongs to one rank of a fixed number of ranks)";
  }
  return text;
}

}  // namespace

class Loader::Impl {
 public:
  explicit Impl(LoaderOptions options)
      : options_(std::move(options)), files_(FindDataFiles(options_.paths)) {
    CheckOptions(options_);
    source_ =
        files_.IsTokens() ? MakeTokenRows(files_, options_) : MakePackedText(files_, options_);
    first_place_ = place_ = source_->Place();
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
    CheckJob(PartOf(state, "job"), {});
    Seek(PartOf(state, "place"));
  }

  void RequireSameData(const nlohmann::json& state) const {
    CheckJob(PartOf(state, "job"), {"rows", "length", "rank", "world"});
  }

  void Rewind() { Seek(first_place_); }

  EpochSize MeasureEpoch() const { return source_->MeasureEpoch(); }
  bool has_tokens() const { return files_.IsTokens(); }

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

  static const nlohmann::json& PartOf(const nlohmann::json& state, const char* key) {
    const nlohmann::json* part = state.is_object() ? FindKey(state, key) : nullptr;
    if (!part || !part->is_object()) {
      Fail(ErrorCode::kCheckpointMismatch,
           "the saved state of the data has no \"job\" and \"place\": it is not one");
    }
    return *part;
  }

  void Seek(const nlohmann::json& place) {
    prefetcher_.reset();  // joins its thread, which uses source_
    source_->Seek(place);
    place_ = source_->Place();
  }

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

  // Everything that decides which batches are made. Newer options are left out at their defaults, so
  // that older checkpoints match.
  nlohmann::json Job() const {
    const auto id = [](std::optional<int32_t> value) {
      return value ? nlohmann::json(*value) : nlohmann::json();
    };
    nlohmann::json job = {{"files", fmt::format("{:016x}", files_.Fingerprint())},
                          {"kind", EnumName(files_.kind)},
                          {"rows", options_.rows},
                          {"length", options_.length},
                          {"seed", options_.seed},
                          {"shuffle", source_->is_shuffled()},
                          {"rank", options_.rank},
                          {"world", options_.world},
                          {"bos_id", id(options_.bos_id)},
                          {"eos_id", id(options_.eos_id)}};
    if (!options_.contents.data.empty()) job[kContents] = options_.contents.data;
    if (!options_.contents.tokenizer.empty()) {
      job[kTokenizerContents] = options_.contents.tokenizer;
    }
    if (!options_.text_field.empty() && files_.kind == DataKind::kJsonl) {
      job["text_field"] = options_.text_field;
    }
    if (options_.split.divides()) {
      const bool has_held_out = options_.split.part == DataPart::kHeldOut;
      job[has_held_out ? kOnlyHeldOut : kHeldOut] = options_.split.held_out;
    }
    return job;
  }

  void CheckJob(const nlohmann::json& saved, const std::set<std::string>& ignored) const {
    std::vector<std::string> differences;
    const nlohmann::json job = Job();
    nlohmann::json keys = saved;
    keys.update(job);
    for (const auto& [key, value] : keys.items()) {
      const nlohmann::json* before = FindKey(saved, key);
      const nlohmann::json* now = FindKey(job, key);
      const bool is_contents = key == kContents || key == kTokenizerContents;
      // Contents were not always known.
      if (is_contents && (!before || !now || options_.accepts_other_contents)) continue;
      const bool is_same = before && now && *before == *now;
      if (!is_same && !ignored.contains(key)) {
        differences.push_back(DifferenceOf(key, before, now));
      }
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
  nlohmann::json first_place_;
  nlohmann::json place_;  // after the batch that was handed out last
  double waited_ = 0;
  std::unique_ptr<Prefetcher<Prepared>> prefetcher_;
};

Loader::Loader(LoaderOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Loader::~Loader() = default;
TokenBatch Loader::Next() { return impl_->Next(); }
nlohmann::json Loader::State() const { return impl_->State(); }
void Loader::Restore(const nlohmann::json& state) { impl_->Restore(state); }
double Loader::waited_seconds() const { return impl_->waited_seconds(); }
void Loader::RequireSameData(const nlohmann::json& state) const { impl_->RequireSameData(state); }
void Loader::Rewind() { impl_->Rewind(); }
std::string Loader::Describe() const { return impl_->Describe(); }
EpochSize Loader::MeasureEpoch() const { return impl_->MeasureEpoch(); }
bool Loader::has_tokens() const { return impl_->has_tokens(); }

}  // namespace gt
