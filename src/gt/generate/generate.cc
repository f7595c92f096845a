#include "gt/generate/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/utf8.h"
#include "gt/nn/key_value_cache.h"

namespace gt {
namespace {

// Texts under way and what the model remembers of them.
class TextBatch {
 public:
  TextBatch(LanguageModel& model, std::span<const TextRequest> requests)
      : model_(model), weight_(model.HeadWeight()), cache_(weight_.device()) {
    for (const TextRequest& request : requests) {
      rows_.push_back(
          {.request = rows_.size(), .tokens = {request.prompt.begin(), request.prompt.end()}});
    }
  }

  size_t rows() const { return rows_.size(); }
  size_t request(size_t row) const { return rows_[row].request; }
  void Append(size_t row, int32_t token) { rows_[row].tokens.push_back(token); }

  // Logits of what follows the last token of each row: float32 [rows, vocab] on the CPU.
  at::Tensor NextLogits() {
    int64_t longest = 0;
    std::vector<int64_t> starts, last;
    for (const Row& row : rows_) {
      starts.push_back(row.seen);
      last.push_back(row.unseen() - 1);
      longest = std::max(longest, row.unseen());
    }
    // Padding is after the tokens of a row, so that none of them sees it.
    at::Tensor tokens = at::zeros({static_cast<int64_t>(rows_.size()), longest}, at::kLong);
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::copy(rows_[i].tokens.begin() + rows_[i].seen, rows_[i].tokens.end(),
                tokens.mutable_data_ptr<int64_t>() + static_cast<int64_t>(i) * longest);
    }
    at::Tensor positions = cache_.BeginPass(starts, longest);
    bool remembers = model_.UsesCache();
    at::Tensor hidden =
        model_.Hidden({tokens.to(weight_.device()), positions, remembers ? &cache_ : nullptr});
    if (remembers) {
      for (Row& row : rows_) row.seen = static_cast<int64_t>(row.tokens.size());
    } else {
      cache_ = nn::KeyValueCache(weight_.device());
    }
    at::Tensor row = at::arange(hidden.size(0), positions.options());
    at::Tensor ends = hidden.index({row, at::tensor(last, at::kLong).to(hidden.device())});
    return at::linear(ends, weight_).to(at::kFloat).to(at::kCPU).contiguous();
  }

  void KeepRows(const std::vector<int64_t>& kept) {
    if (kept.size() == rows_.size()) return;
    std::vector<Row> rows;
    for (int64_t row : kept) rows.push_back(std::move(rows_[static_cast<size_t>(row)]));
    rows_ = std::move(rows);
    if (!rows_.empty()) cache_.KeepRows(at::tensor(kept, at::kLong));
  }

 private:
  struct Row {
    size_t request = 0;
    std::vector<int64_t> tokens;
    int64_t seen = 0;  // tokens that the model has seen and remembers

    int64_t unseen() const { return static_cast<int64_t>(tokens.size()) - seen; }
  };

  LanguageModel& model_;
  at::Tensor weight_;
  nn::KeyValueCache cache_;
  std::vector<Row> rows_;
};

}  // namespace

TextStream::TextStream(const TextCodec& codec, std::span<const int32_t> prompt) {
  if (codec.tokenizer() == nullptr) return;
  decoder_.emplace(*codec.tokenizer());
  for (int32_t token : prompt) decoder_->Push(token);
}

std::string TextStream::Push(int32_t token) {
  if (decoder_) return decoder_->Push(token);
  // A model may have more tokens than there are bytes; the others have no text.
  return token >= 0 && token < 256 ? PushByte(static_cast<char>(token)) : "";
}

std::string TextStream::PushByte(char byte) {
  std::string out;
  std::string longer = bytes_ + byte;
  // What is cut short counts as one broken character; anything else that is not valid is a byte
  // that is not allowed here, and ends the character before it.
  if (!bytes_.empty() && !IsValidUtf8(longer) && ToValidUtf8(longer) != kReplacementUtf8) {
    out = Finish();
    longer = byte;
  }
  bytes_ = longer;
  bool whole = IsValidUtf8(bytes_), hopeless = !whole && Utf8Length(bytes_[0]) == 1;
  return whole || hopeless ? out + Finish() : out;
}

std::string TextStream::Finish() {
  if (decoder_) return decoder_->Finish();
  return ToValidUtf8(std::exchange(bytes_, ""));
}

std::vector<int32_t> EncodePrompt(const TextCodec& codec, std::string_view prompt) {
  std::vector<int32_t> tokens;
  if (!prompt.empty()) {
    if (codec.tokenizer() != nullptr) {
      return codec.tokenizer()->Encode(prompt, /*add_special_tokens=*/true);
    }
    codec.Encode(prompt, tokens);
    return tokens;
  }
  if (std::optional<int32_t> first = codec.bos_id() ? codec.bos_id() : codec.eos_id()) {
    return {*first};
  }
  codec.Encode("\n", tokens);
  return tokens;
}

std::vector<std::vector<int32_t>> Generate(LanguageModel& model, std::span<TextRequest> requests,
                                           const GenerateOptions& options,
                                           const TokenSink& on_token, GenerateTimes* times) {
  for (const TextRequest& request : requests) {
    if (request.prompt.empty()) Fail(ErrorCode::kBadPrompt, "the prompt has no tokens");
  }
  at::NoGradGuard no_gradients;
  auto start = std::chrono::steady_clock::now();
  auto seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  GenerateTimes taken;
  std::vector<std::vector<int32_t>> made(requests.size());
  TextBatch batch(model, requests);
  for (int64_t round = 0; round < options.max_new_tokens && batch.rows() > 0; ++round) {
    at::Tensor logits = batch.NextLogits();
    if (round == 0) taken.prefill = seconds();
    auto vocab = static_cast<size_t>(logits.size(1));
    std::vector<int64_t> going_on;
    for (size_t row = 0; row < batch.rows(); ++row) {
      size_t request = batch.request(row);
      int32_t next =
          requests[request].sampler.Next({logits.const_data_ptr<float>() + row * vocab, vocab});
      if (taken.first_token == 0.0) taken.first_token = seconds();
      bool stops = options.stop_token == next;
      if (!stops) {
        batch.Append(row, next);
        made[request].push_back(next);
        if (on_token) on_token(request, next);
      }
      if (stops || round + 1 == options.max_new_tokens) {
        if (on_token) on_token(request, std::nullopt);
      } else {
        going_on.push_back(static_cast<int64_t>(row));
      }
    }
    batch.KeepRows(going_on);
  }
  taken.total = seconds();
  if (times != nullptr) *times = taken;
  return made;
}

}  // namespace gt
