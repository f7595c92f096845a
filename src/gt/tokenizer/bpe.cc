#include "gt/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/byte_level.h"

namespace gt {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // ▁, which stands for a space
constexpr int32_t kNone = -1;
constexpr int32_t kNoRank = INT32_MAX;
constexpr uint32_t kEnd = UINT32_MAX;  // no neighbour

// Whether ▁ occurs after some other character.
bool HasInnerSpace(std::string_view token) {
  for (std::size_t at = token.find(kSpaceSymbol); at != std::string_view::npos;
       at = token.find(kSpaceSymbol, at + 1)) {
    if (at > 0 && !token.substr(0, at).ends_with(kSpaceSymbol)) return true;
  }
  return false;
}

// The two sides of a merge: a list of two strings, or, in older files, one string with a space.
std::pair<std::string, std::string> SidesOf(const nlohmann::json& merge, const JsonPart& part,
                                            std::size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  part.Refuse("item {} must be two tokens, as [\"a\", \"b\"] or \"a b\"", index);
}

}  // namespace

uint64_t MergeTable::KeyOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

std::size_t MergeTable::SlotOf(uint64_t key) const {
  std::size_t slot = (key * 0x9E3779B97F4A7C15u) >> shift_;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) % slots_.size();
  return slot;
}

void MergeTable::Reserve(std::size_t count) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(2 * count, 2));
  slots_.assign(size, Slot{});
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::Set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = KeyOf(left, right);
  slots_[SlotOf(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::Find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[SlotOf(KeyOf(left, right))];
  return slot.key == kFree ? nullptr : &slot.merge;
}

BpeModel BpeModel::FromJson(const JsonPart& part, bool takes_bytes) {
  constexpr std::array<std::string_view, 1> kKnown = {"BPE"};
  BpeModel model;
  // Files from before models had types are recognized by what they hold.
  if (part.Has("type") || !part.Has("merges")) part.Type(kKnown);
  if (part.Has("dropout") && part.At("dropout").value() != 0.0) {
    part.At("dropout").Refuse(
        "merges that are left out at random are not supported; set it to null");
  }
  model.file_ = part.file();
  model.takes_bytes_ = takes_bytes;
  if (part.Has("unk_token")) model.unknown_ = part.String("unk_token");
  if (part.Has("continuing_subword_prefix")) {
    model.continuing_prefix_ = part.String("continuing_subword_prefix");
  }
  if (part.Has("end_of_word_suffix")) model.word_suffix_ = part.String("end_of_word_suffix");
  model.fuse_unknown_ = part.Bool("fuse_unk", false);
  model.byte_fallback_ = part.Bool("byte_fallback", false);
  model.ignore_merges_ = part.Bool("ignore_merges", false);
  model.vocabulary_ = Vocabulary(part.At("vocab"));
  model.ReadMerges(part.At("merges"));
  model.PrepareBytes();
  model.PrepareCuts();
  return model;
}

void BpeModel::ReadMerges(const JsonPart& part) {
  if (!part.value().is_array()) part.Refuse("must be a list of merges");
  merges_.Reserve(part.value().size());
  const auto id_of = [&](std::string_view token, std::size_t index) {
    const std::optional<int32_t> id = vocabulary_.Find(token);
    if (!id)
      part.Refuse("item {} needs the token {}, which is not in the vocabulary", index,
                  Quoted(token));
    return *id;
  };
  int32_t rank = 0;
  for (std::size_t i = 0; i < part.value().size(); ++i) {
    const nlohmann::json& item = part.value()[i];
    if (item.is_string() && item.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = SidesOf(item, part, i);
    const int32_t left_id = id_of(left, i), right_id = id_of(right, i);
    if (right.size() < continuing_prefix_.size()) {
      part.Refuse("item {} does not begin with continuing_subword_prefix on its right", i);
    }
    const std::string merged = left + right.substr(continuing_prefix_.size());
    merges_.Set(left_id, right_id, {rank++, id_of(merged, i)});
    inner_space_ = inner_space_ || HasInnerSpace(merged);
  }
}

void BpeModel::PrepareBytes() {
  const auto id_or_none = [&](std::string_view token) {
    return vocabulary_.Find(token).value_or(kNone);
  };
  byte_ids_.resize(256);
  fallback_ids_.resize(256);
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = id_or_none(CharacterOfByte(static_cast<unsigned char>(byte)));
    fallback_ids_[byte] = id_or_none(fmt::format("<0x{:02X}>", byte));
  }
}

// Without a pre-tokenizer, as in Llama 2, all text is one word. Where no merge joins a character to
// a ▁ after it, tokens never reach across such a place: the parts have the same tokens one by one,
// and the cache knows them. It takes ▁ as a known token, since unknown characters may be fused.
void BpeModel::PrepareCuts() {
  cuts_at_spaces_ = !takes_bytes_ && !ignore_merges_ && !inner_space_ &&
                    continuing_prefix_.empty() && word_suffix_.empty() &&
                    vocabulary_.Find(kSpaceSymbol).has_value();
}

void BpeModel::Encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (!cuts_at_spaces_) return EncodeCached(word, scratch, ids);
  std::size_t begin = 0;
  std::size_t spaces_end = 0;  // after the last ▁
  for (std::size_t at = word.find(kSpaceSymbol); at != std::string_view::npos;
       at = word.find(kSpaceSymbol, spaces_end)) {
    if (at > spaces_end) {  // something else is before this ▁
      EncodeCached(word.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
    spaces_end = at + kSpaceSymbol.size();
  }
  EncodeCached(word.substr(begin), scratch, ids);
}

void BpeModel::EncodeCached(std::string_view word, BpeScratch& scratch,
                            std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  if (const auto known = scratch.cache.Find(word)) {
    ids.insert(ids.end(), known->begin(), known->end());
    return;
  }
  EncodeWord(word, scratch);
  scratch.cache.Insert(word, scratch.ids);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

// Leaves the tokens in scratch.ids.
void BpeModel::EncodeWord(std::string_view word, BpeScratch& scratch) const {
  scratch.ids.clear();
  if (const std::optional<int32_t> whole = WholeWord(word, scratch)) {
    scratch.ids.push_back(*whole);
    return;
  }
  if (!takes_bytes_) {
    SymbolsOfCharacters(word, scratch);
  } else if (!SymbolsOfBytes(word, scratch)) {
    scratch.ids.clear();
    scratch.characters.clear();
    AppendByteCharacters(word, scratch.characters);
    SymbolsOfCharacters(scratch.characters, scratch);
  }
  constexpr std::size_t kShort = 40;  // about where the queue begins to pay
  if (scratch.ids.size() <= kShort) {
    MergeShort(scratch);
  } else {
    MergeLong(scratch);
  }
}

std::optional<int32_t> BpeModel::WholeWord(std::string_view word, BpeScratch& scratch) const {
  if (!ignore_merges_ || word.size() > vocabulary_.longest()) return std::nullopt;
  if (!takes_bytes_) return vocabulary_.Find(word);
  scratch.characters.clear();
  AppendByteCharacters(word, scratch.characters);
  return vocabulary_.Find(scratch.characters);
}

// The usual case of byte-level vocabularies, which have a token for each byte.
bool BpeModel::SymbolsOfBytes(std::string_view word, BpeScratch& scratch) const {
  if (!continuing_prefix_.empty() || !word_suffix_.empty()) return false;
  for (const char byte : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id == kNone) return false;
    scratch.ids.push_back(id);
  }
  return true;
}

// A character without a token becomes the tokens of its bytes or the unknown token, or is left out
// where the model has neither. An unknown token waits for the next known one, so that several can
// be fused; byte tokens do not wait for it. That order is what models were trained with.
void BpeModel::SymbolsOfCharacters(std::string_view word, BpeScratch& scratch) const {
  std::size_t waiting = 0;  // unknown tokens
  const auto flush = [&] {
    if (waiting > 0) scratch.ids.push_back(UnknownId());
    waiting = 0;
  };
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t begin = i;
    i = std::min(i + Utf8Length(word[i]), word.size());
    std::string& symbol = scratch.symbol;
    symbol.clear();
    if (begin > 0) symbol += continuing_prefix_;
    symbol += word.substr(begin, i - begin);
    if (i == word.size()) symbol += word_suffix_;
    if (const std::optional<int32_t> id = vocabulary_.Find(symbol)) {
      flush();
      scratch.ids.push_back(*id);
    } else if (!FallBackToBytes(symbol, scratch) && unknown_) {
      UnknownId();  // fails immediately where there is none
      if (!fuse_unknown_) flush();
      waiting = 1;
    }
  }
  flush();
}

bool BpeModel::FallBackToBytes(std::string_view symbol, BpeScratch& scratch) const {
  if (!byte_fallback_) return false;
  const auto id_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(symbol.begin(), symbol.end(), [&](char c) { return id_of(c) == kNone; })) {
    return false;
  }
  for (const char byte : symbol) scratch.ids.push_back(id_of(byte));
  return true;
}

int32_t BpeModel::UnknownId() const {
  const std::optional<int32_t> id = vocabulary_.Find(*unknown_);
  if (!id) {
    Fail(ErrorCode::kBadTokenizer,
         "{}: the text has a character without a token, and the unknown token {} of the model is "
         "not in the vocabulary either",
         file_, Quoted(*unknown_));
  }
  return *id;
}

// Searches for the best pair after each merge, which is quadratic but has the least overhead.
void BpeModel::MergeShort(BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::vector<int32_t>& ranks = scratch.ranks;  // of each symbol with the next one
  std::size_t count = ids.size();
  const auto rank_at = [&](std::size_t i) {
    if (i + 1 >= count) return kNoRank;
    const MergeTable::Merge* merge = merges_.Find(ids[i], ids[i + 1]);
    return merge == nullptr ? kNoRank : merge->rank;
  };
  ranks.resize(count);
  for (std::size_t i = 0; i < count; ++i) ranks[i] = rank_at(i);
  while (count > 1) {
    const auto ranks_end = ranks.begin() + static_cast<std::ptrdiff_t>(count);
    const auto best = std::min_element(ranks.begin(), ranks_end);
    if (*best == kNoRank) break;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    ids[i] = merges_.Find(ids[i], ids[i + 1])->id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(best + 1);
    --count;
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

// Keeps all possible merges in a queue, so that a word of a million characters is no trouble. An
// entry whose symbols have been merged otherwise by the time it comes up no longer has its rank.
void BpeModel::MergeLong(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& queue = scratch.queue;
  const auto count = static_cast<uint32_t>(scratch.ids.size());
  symbols.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = {scratch.ids[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
  }
  const auto merge_at = [&](uint32_t i) -> const MergeTable::Merge* {
    if (symbols[i].id == kNone || symbols[i].next == kEnd) return nullptr;
    return merges_.Find(symbols[i].id, symbols[symbols[i].next].id);
  };
  const auto entry_of = [](const MergeTable::Merge& merge, uint32_t i) {
    return static_cast<uint64_t>(merge.rank) << 32 | i;  // lowest rank first, then leftmost
  };
  queue.clear();
  for (uint32_t i = 0; i < count; ++i) {
    if (const MergeTable::Merge* merge = merge_at(i)) queue.push_back(entry_of(*merge, i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    const MergeTable::Merge* merge = merge_at(i);
    if (merge == nullptr) return;
    queue.push_back(entry_of(*merge, i));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t entry = queue.back();
    queue.pop_back();
    const auto i = static_cast<uint32_t>(entry);
    const MergeTable::Merge* merge = merge_at(i);
    if (merge == nullptr || entry_of(*merge, i) != entry) continue;
    const uint32_t gone = symbols[i].next;
    symbols[i].id = merge->id;
    symbols[i].next = symbols[gone].next;
    symbols[gone].id = kNone;
    if (symbols[i].next != kEnd) symbols[symbols[i].next].previous = i;
    push(i);
    if (symbols[i].previous != kEnd) push(symbols[i].previous);
  }
  scratch.ids.clear();
  for (uint32_t i = 0; i < count; ++i) {
    if (symbols[i].id != kNone) scratch.ids.push_back(symbols[i].id);
  }
}

}  // namespace gt
