#include "gt/tokenizer/vocabulary.h"

#include <algorithm>

#include "gt/base/text.h"

namespace gt {

Vocabulary::Vocabulary(const JsonPart& part) {
  if (!part.value().is_object()) part.Refuse("must be an object of token: id");
  ids_.reserve(part.value().size());
  for (const auto& [token, value] : part.value().items()) {
    // The part with its path is only made for the message; there are very many tokens.
    const bool plausible = value.is_number_unsigned() && value.get<uint64_t>() <= kLargestTokenId;
    if (!plausible) part.At(token).AsInteger(0, kLargestTokenId);
    const auto id = value.get<int32_t>();
    const auto entry = ids_.emplace(token, id).first;
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    if (tokens_[index] != nullptr) {
      part.Refuse("the tokens {} and {} have the same id {}", Quoted(*tokens_[index]),
                  Quoted(token), id);
    }
    tokens_[index] = &entry->first;
    longest_ = std::max(longest_, token.size());
  }
}

std::optional<int32_t> Vocabulary::Find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::TokenOf(int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < tokens_.size() ? tokens_[index] : nullptr;
}

}  // namespace gt
