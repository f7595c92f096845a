// Training data as batches of tokens: finds the files, splits them into documents, tokenizes and
// packs them, or maps tokens that were made before; in an order that depends on nothing but the
// data, the seed and the rank, and that can be continued exactly.
//
// What is read, decided by the names of the files (data/files.h):
//   text        .txt .md, or a single file of any other name; also .gz and .zst
//   JSON lines  .jsonl .ndjson .json, the document in `text_field`; also .gz and .zst
//   tokens      .npy and .bin, one stream or rows of length + 1
//
// The order. Text is made of units: a document of JSON lines, or a piece of about 8 KiB of a text.
// Unit i of the epoch's order belongs to rank i % world. With shuffle the order is drawn anew from
// (seed, epoch): a full permutation of the units, or for compressed files, which cannot be entered
// in the middle, a permutation of the files and of the units within blocks (data/unit_source.h).
// Without shuffle and with one rank, the pieces of a text file continue as one document.
// Tokens are made of rows; step s of a rank takes rows s * world * rows + rank * rows and on,
// around the end of the data. A row of a stream is a window of length + 1 tokens, `length` further
// on than the one before; the stream continues at its beginning.
//
// With a split (data/data_split.h) only the units, rows or windows of one part exist, renumbered from
// 0. A stream is then always cut into whole windows, and none wraps around the end of the data.
//
// Packing. A document is [bos] tokens [eos], documents follow one another without gaps, and a row
// starts with the last label of the row before, so every token is a label once. Epochs repeat
// forever; data smaller than a row repeats within it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gt/data/data_split.h"

namespace gt {

// All three are [rows, length], row after row.
struct TokenBatch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> tokens;
  std::vector<int64_t> labels;     // the token that follows; -100 where none does
  std::vector<int64_t> positions;  // 0 at the start of a row and of each document in it; rows that
                                   // came as rows are one document each
  int64_t valid_tokens = 0;        // labels that are not -100
};

// kAuto shuffles everything but pretokenized rows, whose order is somebody's decision already.
enum class LoaderShuffle { kAuto, kOn, kOff };

// Hashes of what batches are made from. Empty: not known, and equal to any other.
struct DataContents {
  std::string data, tokenizer;
};

struct LoaderOptions {
  std::vector<std::string> paths;  // files, folders and patterns (data/files.h)
  DataContents contents;
  bool accepts_other_contents = false;  // than those that a state was saved with
  std::string text_field;               // of JSON lines; empty: "text", or else "content"
  DataSplit split;
  int64_t rows = 1;
  int64_t length = 1;
  int64_t vocab_size = 0;  // ids from here on are errors
  uint64_t seed = 0;
  LoaderShuffle shuffle = LoaderShuffle::kAuto;
  int64_t rank = 0;
  int64_t world = 1;
  int64_t prefetch = 4;  // batches made ahead by a background thread; 0: made in Next()
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  // The tokenizer can return ids below this; 0: unknown.
  int64_t tokenizer_size = 0;
  // Appends the tokens of a text, without bos and eos. Called by one thread at a time, but not by
  // the one that made the loader. Pretokenized data needs none.
  std::function<void(std::string_view text, std::vector<int32_t>& append)> encode;
};

// One pass over the data, over all ranks.
struct EpochSize {
  double samples = 0;
  std::string_view what = {};  // "documents", "pieces of text", "rows" or "windows"
  bool samples_are_counted = true;
  double tokens = 0;
  bool tokens_are_counted = true;
  double sequences = 0;  // of the loader's length
  // The sampled file with the largest share of bytes that are not text, and that share.
  std::string oddest_file = {};
  double odd_share = 0;
};

// For one caller at a time.
class Loader {
 public:
  // Opens the data and, for plain text, reads it once to find the units. Everything wrong that
  // shows without tokenizing is an error here (DataUnreadable, BadData), but lines of JSON are only
  // read at the beginnings of files.
  explicit Loader(LoaderOptions options);
  ~Loader();

  // An error of the background thread surfaces here, after the batches that were made before it,
  // and again at every further call.
  TokenBatch Next();

  // The place after the batch that Next() returned last: a few numbers, and what they are relative
  // to. Restoring it gives exactly the batches that would have followed.
  nlohmann::json State() const;

  // Refuses (CheckpointMismatch) the state of other data, of another rank or number of ranks, or of
  // options that would lead to other batches. Compressed files are reread up to the place.
  void Restore(const nlohmann::json& state);

  // Checks a state from any rank of any number of ranks: refuses other data, another split, and
  // another order.
  void RequireSameData(const nlohmann::json& state) const;

  // Seconds that Next() waited for batches to be ready, in all.
  double waited_seconds() const;

  // Restarts from the beginning of the data.
  void Rewind();

  // "sample.txt: 1 file, text, 434 KB"
  std::string Describe() const;

  // Token files are counted. Text is estimated from a sample of about 128 KiB, or counted if that is
  // all. Call it before the first Next().
  EpochSize MeasureEpoch() const;

  // Whether the data is tokenized already, so that no tokenizer is used.
  bool has_tokens() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gt
