#include "gt/train/data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/train/resources.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail(ErrorCode::kDataUnreadable, "cannot read training data from '{}'", path.string());
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) Fail(ErrorCode::kDataUnreadable, "reading '{}' failed half-way", path.string());
  return bytes;
}

std::string ReadText(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return ReadFile(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && entry.path().extension() == ".txt")
      files.push_back(entry.path());
  }
  if (files.empty()) {
    Fail(ErrorCode::kDataUnreadable, "folder '{}' holds no .txt files", path.string());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) text += ReadFile(file);
  return text;
}

}  // namespace

TextData::TextData(const std::string& dataset, const std::string& path, int64_t vocab,
                   int64_t batch_size, int64_t length, int64_t seed)
    : batch_size_(batch_size), length_(length), seed_(seed) {
  fs::path file = path;
  if (path.empty()) {
    if (dataset != "sample") {
      std::vector<std::string> known = {"sample"};
      Fail(ErrorCode::kDataUnreadable,
           "there is no data set '{}'{}; use sample, or name a text file with "
           "--training.dataset_path",
           dataset, DidYouMean(dataset, known));
    }
    file = ResourcePath("data/sample.txt");
  }
  if (vocab < 256) {
    Fail(ErrorCode::kDataUnreadable,
         "text is trained on as bytes, which needs a vocabulary of 256; the model has {}", vocab);
  }
  bytes_ = ReadText(file);
  source_ = file.filename().string();
  int64_t windows = (token_count() - 1) / length_;
  if (windows < 1) {
    Fail(ErrorCode::kDataUnreadable,
         "'{}' has {} tokens, too few for one sequence of {}; use more text or a smaller "
         "--training.seq_len",
         file.string(), token_count(), length_);
  }
  order_.resize(static_cast<size_t>(windows));
  Shuffle();
}

void TextData::Shuffle() {
  std::iota(order_.begin(), order_.end(), 0);
  std::mt19937_64 random(static_cast<uint64_t>(seed_) * 0x9e3779b97f4a7c15ull +
                         static_cast<uint64_t>(epoch_));
  // Not std::shuffle: its result is the library's choice, and runs on two machines must see the
  // same data.
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
}

Batch TextData::Next() {
  Batch batch;
  batch.tokens = at::empty({batch_size_, length_}, at::kLong);
  batch.labels = at::empty({batch_size_, length_}, at::kLong);
  int64_t* tokens = batch.tokens.data_ptr<int64_t>();
  int64_t* labels = batch.labels.data_ptr<int64_t>();
  for (int64_t row = 0; row < batch_size_; ++row) {
    if (next_window_ == order_.size()) {
      next_window_ = 0;
      ++epoch_;
      Shuffle();
    }
    int64_t start = order_[next_window_++] * length_;
    for (int64_t i = 0; i < length_; ++i) {
      *tokens++ = static_cast<uint8_t>(bytes_[static_cast<size_t>(start + i)]);
      *labels++ = static_cast<uint8_t>(bytes_[static_cast<size_t>(start + i + 1)]);
    }
  }
  batch.valid_tokens = batch_size_ * length_;
  return batch;
}

}  // namespace gt
