// Loaders over small files of every kind, for tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gt/data/data_test_util.h"
#include "gt/data/loader.h"

namespace gt::loader_test_util {

using testing::DataFolder;
using testing::kBos;
using testing::kByteVocabulary;
using testing::kEos;
using testing::Npy;
using testing::RawBytes;
using Numbers = std::vector<int64_t>;

inline LoaderOptions Options(const std::string& path, int64_t rows, int64_t length) {
  LoaderOptions options;
  options.paths = {path};
  options.rows = rows;
  options.length = length;
  options.vocab_size = kByteVocabulary;
  options.shuffle = LoaderShuffle::kOff;
  options.prefetch = 0;
  options.encode = testing::EncodeBytes;
  return options;
}

inline LoaderOptions WithSpecials(LoaderOptions options) {
  options.bos_id = kBos;
  options.eos_id = kEos;
  return options;
}

inline bool operator==(const TokenBatch& a, const TokenBatch& b) {
  return a.rows == b.rows && a.length == b.length && a.tokens == b.tokens && a.labels == b.labels &&
         a.positions == b.positions && a.valid_tokens == b.valid_tokens;
}

// Letters for bytes, '<' for bos, '>' for eos.
inline std::string Spelled(const Numbers& tokens) {
  std::string text;
  for (const int64_t token : tokens) {
    text += token == kBos ? '<' : token == kEos ? '>' : static_cast<char>(token);
  }
  return text;
}

inline std::string Jsonl(const std::vector<std::string>& documents) {
  std::string lines;
  for (const std::string& document : documents) lines += "{\"text\": \"" + document + "\"}\n";
  return lines;
}

inline Numbers CountFrom(int64_t first, int64_t count) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}

// What data looks like on disk and how it is read.
struct Case {
  std::string name;
  std::string file;
  std::string bytes;
  LoaderShuffle shuffle;
};

inline std::vector<Case> Cases() {
  std::string text;
  for (int i = 0; text.size() < 40'000; ++i) text += "line " + std::to_string(i) + "\n";
  std::vector<std::string> documents;
  documents.reserve(23);
  for (int i = 0; i < 23; ++i) documents.emplace_back(1 + i % 7, static_cast<char>('a' + i));
  const std::string lines = Jsonl(documents);
  const std::string stream = Npy("<i8", "(98,)", RawBytes(CountFrom(0, 98)));
  const std::string rows = Npy("<i8", "(14, 8)", RawBytes(CountFrom(0, 112)));
  const std::string raw = RawBytes(CountFrom(1, 90));
  std::vector<Case> cases;
  for (const LoaderShuffle shuffle : {LoaderShuffle::kOff, LoaderShuffle::kOn}) {
    cases.push_back({"text", "a.txt", text, shuffle});
    cases.push_back({"lines", "a.jsonl", lines, shuffle});
    cases.push_back({"stream", "a.npy", stream, shuffle});
    cases.push_back({"rows", "a.npy", rows, shuffle});
    cases.push_back({"raw", "a.bin", raw, shuffle});
#ifdef GT_HAVE_ZLIB
    cases.push_back({"gzipped text", "a.txt.gz", testing::Gzip(text), shuffle});
    cases.push_back({"gzipped lines", "a.jsonl.gz", testing::Gzip(lines), shuffle});
#endif
#ifdef GT_HAVE_ZSTD
    cases.push_back({"lines in zstd", "a.jsonl.zst", testing::Zstd(lines), shuffle});
#endif
  }
  return cases;
}

inline constexpr DataSplit kTrainingPart = {.held_out = 0.3, .part = DataPart::kTraining};
inline constexpr DataSplit kHeldOutPart = {.held_out = 0.3, .part = DataPart::kHeldOut};

// Calls `body` for every case, alone and as one of two ranks, with all data and with a part of it.
template <typename Body>
void ForEachCase(const Body& body) {
  for (const Case& c : Cases()) {
    DataFolder folder;
    const bool is_long = c.bytes.size() > 10'000 || c.file == "a.txt.gz";
    LoaderOptions options =
        WithSpecials(Options(folder.Write(c.file, c.bytes), 2, is_long ? 1500 : 7));
    options.shuffle = c.shuffle;
    options.seed = 11;
    for (const int64_t world : {1, 2}) {
      options.world = world;
      options.rank = world - 1;
      for (const DataSplit& split : {DataSplit(), kTrainingPart}) {
        options.split = split;
        SCOPED_TRACE(fmt::format("{}, {}shuffled, {} rank(s){}", c.name,
                                 c.shuffle == LoaderShuffle::kOn ? "" : "un", world,
                                 split.divides() ? ", a part" : ""));
        body(options);
      }
    }
  }
}

}  // namespace gt::loader_test_util
