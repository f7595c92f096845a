// Turns units of text into rows of tokens: tokenizes, puts bos and eos around documents, and packs
// them one after another without gaps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gt/data/unit_source.h"

namespace gt {

// The token that the next row starts with.
struct PackerPlace {
  UnitPlace unit;
  int64_t token = 0;  // within the unit's tokens, bos included

  bool operator==(const PackerPlace&) const = default;
};

struct PackerOptions {
  int64_t length = 1;
  int64_t vocab_size = 0;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::function<void(std::string_view text, std::vector<int32_t>& append)> encode;
};

class Packer {
 public:
  Packer(std::unique_ptr<UnitSource> source, PackerOptions options);

  // The next row; each pointer has room for `length` numbers.
  void NextRow(int64_t* tokens, int64_t* labels, int64_t* positions);

  const PackerPlace& place() const { return place_; }
  const UnitSource& source() const { return *source_; }
  // Retokenizes the unit at `place` and continues at its token.
  void Seek(const PackerPlace& place);

 private:
  // The tokens of one unit, in tokens_ from `begin` on.
  struct Segment {
    UnitPlace unit;
    std::size_t begin;
    bool starts_document;
  };

  void AppendUnit();
  void AppendTokens(const Unit& unit);
  void CheckTokens(std::size_t begin) const;
  void CheckEpoch(const UnitPlace& place);
  void WritePositions(int64_t* positions) const;
  void DropUsed();

  std::unique_ptr<UnitSource> source_;
  PackerOptions options_;
  std::vector<int32_t> tokens_;
  std::size_t next_ = 0;  // where in tokens_ the next row starts
  std::deque<Segment> segments_;
  PackerPlace place_;
  int64_t epoch_ = 0;
  int64_t epoch_tokens_ = 0;
  bool epoch_is_whole_ = true;  // read from its beginning
};

}  // namespace gt
