#include "gt/tokenizer/pre_tokenizer.h"

#include <array>
#include <optional>

#include "gt/base/text.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/byte_level.h"
#include "gt/tokenizer/normalizer.h"
#include "gt/tokenizer/unicode.h"

namespace gt {

template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<SplitBehavior> = {
    "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};

namespace {

constexpr std::array<std::string_view, 8> kKnownPreTokenizers = {
    "Sequence", "ByteLevel",   "Split",      "Metaspace",
    "Digits",   "Punctuation", "Whitespace", "WhitespaceSplit"};

// What GPT-2 splits by, which ByteLevel does unless told not to.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Words, and what is neither word nor space. Joiners count as parts of words here, unlike in \w.
constexpr std::string_view kWhitespacePattern = R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)";

SplitBehavior BehaviorOf(const JsonPart& part) {
  const std::string name = part.String("behavior");
  const std::optional<SplitBehavior> behavior = EnumFromName<SplitBehavior>(name);
  if (!behavior) {
    part.At("behavior")
        .Refuse("gt does not know {}; it knows {}", Quoted(name),
                Join(std::span<const std::string_view>(kEnumNames<SplitBehavior>), ", "));
  }
  return *behavior;
}

// Takes the stretches of a text in order, each a match or what is between matches, and gives out
// the pieces that the behavior makes of them.
template <typename Emit>
class Splitter {
 public:
  Splitter(SplitBehavior behavior, Emit emit) : behavior_(behavior), emit_(emit) {}

  void Take(std::size_t begin, std::size_t end, bool is_match) {
    if (behavior_ == SplitBehavior::kIsolated) return Give(begin, end);
    if (behavior_ == SplitBehavior::kRemoved) {
      if (!is_match) Give(begin, end);
      return;
    }
    if (Joins(is_match)) {
      end_ = end;
    } else {
      if (pending_) Give(begin_, end_);
      begin_ = begin, end_ = end;
    }
    pending_ = true;
    last_is_match_ = is_match;
  }

  void Finish() {
    if (pending_) Give(begin_, end_);
  }

 private:
  // Whether the next stretch belongs to the pending piece.
  bool Joins(bool is_match) const {
    if (!pending_) return false;
    if (behavior_ == SplitBehavior::kContiguous) return is_match == last_is_match_;
    if (behavior_ == SplitBehavior::kMergedWithPrevious) return is_match && !last_is_match_;
    return !is_match && last_is_match_;
  }

  void Give(std::size_t begin, std::size_t end) {
    if (begin < end) emit_(begin, end);
  }

  SplitBehavior behavior_;
  Emit emit_;
  bool pending_ = false;
  bool last_is_match_ = false;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace

PreTokenizer PreTokenizer::FromJson(const JsonPart& part) {
  PreTokenizer pre_tokenizer;
  if (part.IsNull()) return pre_tokenizer;
  pre_tokenizer.Add(part, 0);
  constexpr std::size_t kMostSteps = 64;  // steps run inside of each other
  if (pre_tokenizer.steps_.size() > kMostSteps) {
    part.Refuse("no pre-tokenizer needs more than {} steps", kMostSteps);
  }
  auto& steps = pre_tokenizer.steps_;
  pre_tokenizer.gives_bytes_ =
      !steps.empty() && std::holds_alternative<ByteCharacters>(steps.back());
  if (pre_tokenizer.gives_bytes_) steps.pop_back();
  return pre_tokenizer;
}

void PreTokenizer::Add(const JsonPart& part, int depth) {
  const std::string type = part.Type(kKnownPreTokenizers);
  if (type == "Sequence") {
    if (depth >= kDeepestSequence) part.Refuse("sequences are nested too deeply");
    for (const JsonPart& item : part.At("pretokenizers").Items()) Add(item, depth + 1);
  } else if (type == "ByteLevel") {
    AddByteLevel(part);
  } else if (type == "Metaspace") {
    AddMetaspace(part);
  } else if (type == "Split") {
    steps_.emplace_back(SplitAtPattern{PatternOf(part), BehaviorOf(part), part.Bool("invert")});
  } else if (type == "Digits") {
    RequireUnicodeTables("the pre-tokenizer Digits");
    const bool individual = part.Bool("individual_digits");
    steps_.emplace_back(SplitAtCharacters{
        IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    RequireUnicodeTables("the pre-tokenizer Punctuation");
    steps_.emplace_back(SplitAtCharacters{
        IsPunctuation, part.Has("behavior") ? BehaviorOf(part) : SplitBehavior::kIsolated});
  } else if (type == "Whitespace") {
    steps_.emplace_back(
        SplitAtPattern{Regex::FromPattern(kWhitespacePattern), SplitBehavior::kRemoved, true});
  } else {
    steps_.emplace_back(SplitAtCharacters{IsWhiteSpace, SplitBehavior::kRemoved});
  }
}

void PreTokenizer::AddByteLevel(const JsonPart& part) {
  if (part.Bool("add_prefix_space")) steps_.emplace_back(PrefixSpace{});
  if (part.Bool("use_regex", true)) {
    steps_.emplace_back(
        SplitAtPattern{Regex::FromPattern(kGpt2Pattern), SplitBehavior::kIsolated, false});
  }
  steps_.emplace_back(ByteCharacters{});
}

void PreTokenizer::AddMetaspace(const JsonPart& part) {
  const std::string replacement = ToUtf8(part.At("replacement").AsCharacter());
  const std::string name = part.Has("prepend_scheme") ? part.String("prepend_scheme") : "always";
  PrependScheme scheme = PrependScheme::kAlways;
  if (name == "first") scheme = PrependScheme::kFirst;
  if (name == "never") scheme = PrependScheme::kNever;
  if (scheme == PrependScheme::kAlways && name != "always") {
    part.At("prepend_scheme").Refuse("must be always, first or never, not {}", Quoted(name));
  }
  // Files from before prepend_scheme say it with a boolean.
  if (!part.Bool("add_prefix_space", true)) {
    if (part.Has("prepend_scheme") && scheme != PrependScheme::kNever) {
      part.Refuse("add_prefix_space false contradicts prepend_scheme {}", name);
    }
    scheme = PrependScheme::kNever;
  }
  steps_.emplace_back(Metaspace{replacement, scheme});
  if (part.Bool("split", true)) {
    steps_.emplace_back(
        SplitAtPattern{Regex::FromLiteral(replacement), SplitBehavior::kMergedWithNext, false});
  }
}

// Runs the steps from one on. A step hands each piece it makes to the next before it makes another,
// so that nothing is ever collected.
struct PreTokenizer::Runner {
  const std::vector<Step>& steps;
  Scratch& scratch;
  RegexScratch& regex;
  WordSink& sink;

  void Run(std::size_t step, Piece piece) const {
    if (step == steps.size()) return sink.Add(piece.text);
    std::visit([&](const auto& chosen) { Run(step, chosen, piece); }, steps[step]);
  }

  void Run(std::size_t step, const SplitAtPattern& split, Piece piece) const {
    Splitter splitter(split.behavior, [&](std::size_t begin, std::size_t end) {
      Run(step + 1, piece.Slice(begin, end));
    });
    split.pattern.Cut(piece.text, regex, [&](std::size_t begin, std::size_t end, bool is_match) {
      splitter.Take(begin, end, is_match != split.invert);
    });
    splitter.Finish();
  }

  void Run(std::size_t step, const SplitAtCharacters& split, Piece piece) const {
    Splitter splitter(split.behavior, [&](std::size_t begin, std::size_t end) {
      Run(step + 1, piece.Slice(begin, end));
    });
    std::size_t done = 0;
    for (std::size_t i = 0; i < piece.text.size();) {
      const std::size_t begin = i;
      if (!split.matches(NextCharacter(piece.text, i))) continue;
      if (done < begin) splitter.Take(done, begin, false);
      splitter.Take(begin, i, true);
      done = i;
    }
    if (done < piece.text.size()) splitter.Take(done, piece.text.size(), false);
    splitter.Finish();
  }

  void Run(std::size_t step, const PrefixSpace&, Piece piece) const {
    if (piece.text.starts_with(' ')) return Run(step + 1, piece);
    std::string& text = scratch.texts[step];
    text = " ";
    text += piece.text;
    Run(step + 1, {text, piece.from_start == 0 ? 0 : piece.from_start + 1});
  }

  void Run(std::size_t step, const ByteCharacters&, Piece piece) const {
    std::string& text = scratch.texts[step];
    text.clear();
    AppendByteCharacters(piece.text.substr(0, piece.from_start), text);
    const std::size_t from_start = text.size();
    AppendByteCharacters(piece.text.substr(piece.from_start), text);
    Run(step + 1, {text, from_start});
  }

  void Run(std::size_t step, const Metaspace& metaspace, Piece piece) const {
    std::string& text = scratch.texts[step];
    text.clear();
    const bool prepends = metaspace.scheme == PrependScheme::kAlways ||
                          (metaspace.scheme == PrependScheme::kFirst && piece.from_start > 0);
    const bool has_it =
        piece.text.starts_with(' ') || piece.text.starts_with(metaspace.replacement);
    if (prepends && !has_it) text += metaspace.replacement;
    std::size_t from_start = 0;
    for (std::size_t i = 0; i < piece.text.size(); ++i) {
      if (piece.text[i] == ' ') {
        text += metaspace.replacement;
      } else {
        text += piece.text[i];
      }
      if (i + 1 == piece.from_start) from_start = text.size();
    }
    Run(step + 1, {text, from_start});
  }
};

void PreTokenizer::Run(Piece piece, Scratch& scratch, RegexScratch& regex, WordSink& sink) const {
  scratch.texts.resize(steps_.size());
  Runner{steps_, scratch, regex, sink}.Run(0, piece);
}

}  // namespace gt
