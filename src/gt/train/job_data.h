// The tokenizer and the data that a configuration names.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gt/models/model.h"
#include "gt/tokenizer/tokenizer.h"
#include "gt/train/batch_reader.h"
#include "gt/train/job_share.h"

namespace gt {

struct Config;

// What names the training data: files, folders and patterns.
StringList DataPaths(const Config& config);
// The tokenizer's file, or "bytes".
std::string TokenizerPath(const Config& config);

// Bytes, where no tokenizer is named and the vocabulary is too small for the one that ships with the
// program. True: they were chosen.
bool SettleTokenizer(Config* config, int64_t vocab_size);

// Text as tokens: a tokenizer.json, or plain bytes (--model.tokenizer_path bytes).
class TextCodec {
 public:
  static constexpr std::string_view kBytes = "bytes";
  // The file of tokenizer_path, else the one in hf_path, else the one that ships with the program.
  explicit TextCodec(const Config& config);
  explicit TextCodec(const std::string& path);

  void Encode(std::string_view text, std::vector<int32_t>& append) const;
  // Null for bytes.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  int64_t vocab_size() const { return tokenizer_ ? tokenizer_->vocab_size() : 256; }
  // Without special tokens at the end, which ordinary text does not contain.
  int64_t ordinary_size() const;
  const std::string& path() const { return path_; }  // of the file, or "bytes"

 private:
  std::string path_;
  std::optional<Tokenizer> tokenizer_;
};

// The data of --training.dataset and dataset_path, of which this rank reads what its share needs. `codec`
// must outlive the reader.
std::unique_ptr<BatchReader> MakeTrainingData(const Config& config, const LanguageModel& model,
                                              const TextCodec& codec, const JobShare& share,
                                              DataContents contents);
// The data of --validation.dataset_path, or the part that --validation.split holds out. Null: none.
std::unique_ptr<BatchReader> MakeValidationData(const Config& config, const LanguageModel& model,
                                                const TextCodec& codec, const JobShare& share);

}  // namespace gt
