#include "gt/tokenizer/added_tokens.h"

#include <algorithm>
#include <span>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/unicode.h"

namespace gt {
namespace {

// A walk along the trie costs the length of a token at worst, at each byte of the text.
constexpr std::size_t kLongestAddedToken = 4096;

constexpr std::string_view kWordCharacter = R"([\w\x{200c}\x{200d}])";

AddedToken TokenOf(const JsonPart& part) {
  AddedToken token;
  token.content = part.String("content");
  if (token.content.empty()) part.Refuse("a token without content would be found everywhere");
  // The id itself follows from the order of tokens; a file that says something impossible is damaged.
  if (part.Has("id")) part.At("id").AsInteger(0, kLargestTokenId);
  token.single_word = part.Bool("single_word", false);
  token.lstrip = part.Bool("lstrip", false);
  token.rstrip = part.Bool("rstrip", false);
  token.special = part.Bool("special", false);
  token.normalized = part.Bool("normalized", !token.special);
  if (token.content.size() > kLongestAddedToken) {
    part.Refuse("a token of {} bytes; no added token needs more than {}", token.content.size(),
                kLongestAddedToken);
  }
  return token;
}

// Where the white space before `end` begins, but not before `limit`.
std::size_t WhiteSpaceBefore(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    const std::size_t last = PreviousCharacter(text, end);
    std::size_t ignored = last;
    if (!IsWhiteSpace(NextCharacter(text, ignored))) break;
    end = last;
  }
  return end;
}

// Finds the end of white space, for places in increasing order, looking at each byte once: tokens
// may consist of white space themselves.
class WhiteSpaceEnds {
 public:
  explicit WhiteSpaceEnds(std::string_view text) : text_(text) {}

  std::size_t After(std::size_t begin) {
    if (begin >= end_) {
      end_ = begin;
      for (std::size_t i = begin; i < text_.size() && IsWhiteSpace(NextCharacter(text_, i));) {
        end_ = i;
      }
    }
    return end_;
  }

 private:
  std::string_view text_;
  std::size_t end_ = 0;  // everything from the last place on up to here is white space
};

}  // namespace

PatternTrie::PatternTrie(std::map<std::string, std::size_t> patterns) {
  if (patterns.empty()) return;
  using Iterator = std::map<std::string, std::size_t>::const_iterator;
  struct Pending {
    std::size_t node;
    Iterator begin, end;  // the patterns below the node; they share their first `depth` bytes
    std::size_t depth;
  };
  nodes_.emplace_back();
  std::vector<Pending> level = {{0, patterns.begin(), patterns.end(), 0}};
  while (!level.empty()) {
    std::vector<Pending> next;
    for (Pending& pending : level) {
      Iterator at = pending.begin;
      if (at->first.size() == pending.depth) nodes_[pending.node].value = (at++)->second;
      nodes_[pending.node].first_edge = edges_.size();
      while (at != pending.end) {
        const char byte = at->first[pending.depth];
        const Iterator first = at;
        while (at != pending.end && at->first[pending.depth] == byte) ++at;
        edges_.push_back({static_cast<unsigned char>(byte), nodes_.size()});
        next.push_back({nodes_.size(), first, at, pending.depth + 1});
        nodes_.emplace_back();
      }
      Node& node = nodes_[pending.node];
      node.edge_count = edges_.size() - node.first_edge;
    }
    level = std::move(next);
  }
  for (std::size_t i = 0; i < nodes_[0].edge_count; ++i) starts_[edges_[i].byte] = true;
}

const PatternTrie::Node* PatternTrie::Follow(const Node& node, char byte) const {
  const auto begin = edges_.begin() + static_cast<std::ptrdiff_t>(node.first_edge);
  const auto end = begin + static_cast<std::ptrdiff_t>(node.edge_count);
  const auto wanted = static_cast<unsigned char>(byte);
  const auto edge =
      std::lower_bound(begin, end, wanted,
                       [](const Edge& candidate, unsigned char b) { return candidate.byte < b; });
  return edge == end || edge->byte != wanted ? nullptr : &nodes_[edge->node];
}

std::optional<PatternTrie::Found> PatternTrie::Search(std::string_view text,
                                                      std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Found> longest;
    const Node* node = &nodes_[0];
    for (std::size_t i = begin; i < text.size(); ++i) {
      node = Follow(*node, text[i]);
      if (node == nullptr) break;
      if (node->value) longest = Found{begin, i + 1, *node->value};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(const JsonPart& part, const Vocabulary& vocabulary,
                         const Normalizer& normalizer) {
  NormalizerScratch scratch;
  RegexScratch regex;
  auto next_id = static_cast<int32_t>(vocabulary.size());
  for (const JsonPart& item : part.Items()) {
    AddedToken token = TokenOf(item);
    token.normalized_content = token.content;
    if (token.normalized) {
      token.normalized_content = normalizer.Apply({token.content}, scratch, regex).text;
    }
    if (const AddedToken* earlier = Find(token.content)) {
      token.id = earlier->id;
    } else {
      const std::optional<int32_t> known = vocabulary.Find(token.content);
      token.id = known ? *known : next_id++;
    }
    if (token.id > kLargestTokenId) item.Refuse("more than {} tokens", kLargestTokenId);
    if (token.special) specials_.insert(token.content);
    id_limit_ = std::max<int64_t>(id_limit_, int64_t{token.id} + 1);
    by_content_[token.content] = by_id_[token.id] = tokens_.size();
    tokens_.push_back(std::move(token));
  }

  std::map<std::string, std::size_t> plain, normalized;
  for (const auto& [id, index] : by_id_) {
    const AddedToken& token = tokens_[index];
    if (token.single_word && !word_) word_ = Regex::FromPattern(kWordCharacter);
    if (token.normalized_content.empty()) {
      part.Refuse("the normalizer leaves nothing of the token {}", Quoted(token.content));
    }
    auto& patterns = token.normalized ? normalized : plain;
    if (!patterns.emplace(token.normalized_content, index).second) {
      part.Refuse("several tokens look like {} in normalized text",
                  Quoted(token.normalized_content));
    }
  }
  plain_ = PatternTrie(std::move(plain));
  normalized_ = PatternTrie(std::move(normalized));
}

bool AddedTokens::IsInsideWord(std::string_view text, std::size_t begin, std::size_t end,
                               RegexScratch& regex) const {
  const auto is_word = [&](std::size_t at) {
    return word_->Search(ToUtf8(StandInFor(NextCharacter(text, at))), 0, regex).has_value();
  };
  return (begin > 0 && is_word(PreviousCharacter(text, begin))) ||
         (end < text.size() && is_word(end));
}

// A token that takes the white space after it may take what another token consists of; then that
// token is still there, and so the places of stretches may overlap.
void AddedTokens::Cut(std::string_view text, bool normalized, RegexScratch& regex,
                      std::vector<Stretch>& stretches) const {
  const PatternTrie& trie = normalized ? normalized_ : plain_;
  std::size_t done = 0;
  std::size_t from = 0;
  WhiteSpaceEnds spaces(text);
  while (!trie.empty()) {
    const std::optional<PatternTrie::Found> found = trie.Search(text, from);
    if (!found) break;
    from = found->end;
    const AddedToken& token = tokens_[found->value];
    if (token.single_word && IsInsideWord(text, found->begin, found->end, regex)) continue;
    std::size_t begin = found->begin, end = found->end;
    if (token.lstrip) begin = std::max(WhiteSpaceBefore(text, begin, done), done);
    if (token.rstrip) end = spaces.After(end);
    if (done < begin) stretches.push_back({done, begin, nullptr});
    stretches.push_back({begin, end, &token});
    done = end;
  }
  if (done != text.size()) stretches.push_back({done, text.size(), nullptr});
}

const AddedToken* AddedTokens::Find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace gt
