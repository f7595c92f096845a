// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/tokenizer/json_part.h"

namespace gt {

// Larger ids are taken for damage: tables by id would not fit in memory.
inline constexpr int64_t kLargestTokenId = (int64_t{1} << 24) - 1;

class Vocabulary {
 public:
  Vocabulary() = default;
  // `part` is an object of token: id.
  explicit Vocabulary(const JsonPart& part);

  std::optional<int32_t> Find(std::string_view token) const;
  const std::string* TokenOf(int32_t id) const;  // null where there is none

  std::size_t size() const { return ids_.size(); }                           // the number of tokens
  int64_t id_limit() const { return static_cast<int64_t>(tokens_.size()); }  // largest id + 1
  std::size_t longest() const { return longest_; }  // bytes of the longest token

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  // by id; they point to the keys of ids_
  std::size_t longest_ = 0;
};

}  // namespace gt
