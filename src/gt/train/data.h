// Text as training data: bytes are the tokens. (Tokenizers and other formats come with the full
// data layer; this is the source behind --training.dataset sample and plain text files.)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gt {

struct Batch {
  at::Tensor tokens;  // [batch, length], int64
  at::Tensor labels;  // the same, one position further
  int64_t valid_tokens = 0;
};

class TextData {
 public:
  // The text that ships with the program ("sample"), or the file or folder of .txt files at `path`
  // when it is not empty.
  TextData(const std::string& dataset, const std::string& path, int64_t vocab, int64_t batch_size,
           int64_t length, int64_t seed);

  // Windows of length + 1 tokens, without overlap, in an order drawn anew from the seed for each
  // pass over the text.
  Batch Next();

  int64_t token_count() const { return static_cast<int64_t>(bytes_.size()); }
  const std::string& source() const { return source_; }

 private:
  void Shuffle();

  std::string bytes_;
  std::string source_;
  int64_t batch_size_, length_, seed_;
  int64_t epoch_ = 0;
  size_t next_window_ = 0;
  std::vector<int64_t> order_;
};

}  // namespace gt
