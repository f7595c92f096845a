#include "gt/tokenizer/normalizer.h"

#include <array>

#include "gt/base/utf8.h"

namespace gt {
namespace {

constexpr std::array<std::string_view, 10> kKnownNormalizers = {
    "Sequence", "NFC",     "NFD",          "NFKC",  "NFKD",
    "Prepend",  "Replace", "StripAccents", "Strip", "Lowercase"};

}  // namespace

Regex PatternOf(const JsonPart& part) {
  const JsonPart pattern = part.At("pattern");
  try {
    if (pattern.Has("String")) return Regex::FromLiteral(pattern.String("String"));
    if (pattern.Has("Regex")) return Regex::FromPattern(pattern.String("Regex"));
  } catch (const Error& error) {
    pattern.Refuse("{}", error.message());
  }
  pattern.Refuse("must be {{\"String\": ...}} or {{\"Regex\": ...}}");
}

Normalizer Normalizer::FromJson(const JsonPart& part) {
  Normalizer normalizer;
  if (!part.IsNull()) normalizer.Add(part, 0);
  return normalizer;
}

void Normalizer::Add(const JsonPart& part, int depth) {
  const std::string type = part.Type(kKnownNormalizers);
  if (type == "Sequence") {
    if (depth >= kDeepestSequence) part.Refuse("sequences are nested too deeply");
    for (const JsonPart& item : part.At("normalizers").Items()) Add(item, depth + 1);
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{part.String("prepend")});
  } else if (type == "Replace") {
    steps_.emplace_back(Replace{PatternOf(part), part.String("content")});
  } else if (type == "Strip") {
    steps_.emplace_back(Strip{part.Bool("strip_left"), part.Bool("strip_right")});
  } else {
    RequireUnicodeTables("the normalizer " + type);
    if (type == "NFC") steps_.emplace_back(NormalForm::kNfc);
    if (type == "NFD") steps_.emplace_back(NormalForm::kNfd);
    if (type == "NFKC") steps_.emplace_back(NormalForm::kNfkc);
    if (type == "NFKD") steps_.emplace_back(NormalForm::kNfkd);
    if (type == "Lowercase") steps_.emplace_back(Lowercase{});
    if (type == "StripAccents") steps_.emplace_back(StripAccents{});
  }
}

// Appends what a step makes of `in` to `out` and returns how much of it comes from the start.
struct Normalizer::Runner {
  Piece in;
  std::string& out;
  RegexScratch& regex;

  std::size_t operator()(NormalForm form) const {
    AppendNormalized(in.text, form, out);
    return in.from_start > 0 && !out.empty() ? Utf8Length(out[0]) : 0;
  }

  std::size_t operator()(const Lowercase&) const {
    AppendLowercase(in.text.substr(0, in.from_start), out);
    const std::size_t from_start = out.size();
    AppendLowercase(in.text.substr(in.from_start), out);
    return from_start;
  }

  std::size_t operator()(const StripAccents&) const {
    std::size_t from_start = 0;
    for (std::size_t i = 0; i < in.text.size();) {
      const std::size_t begin = i;
      if (!IsMark(NextCharacter(in.text, i))) out += in.text.substr(begin, i - begin);
      if (i <= in.from_start) from_start = out.size();
    }
    return from_start;
  }

  std::size_t operator()(const Prepend& step) const {
    if (in.text.empty()) return 0;
    out += step.text;
    out += in.text;
    return in.from_start == 0 ? 0 : in.from_start + step.text.size();
  }

  std::size_t operator()(const Strip& step) const {
    std::size_t begin = 0, end = in.text.size();
    for (std::size_t i = 0; step.left && i < end && IsWhiteSpace(NextCharacter(in.text, i));) {
      begin = i;
    }
    while (step.right && end > begin) {
      const std::size_t last = PreviousCharacter(in.text, end);
      std::size_t ignored = last;
      if (!IsWhiteSpace(NextCharacter(in.text, ignored))) break;
      end = last;
    }
    const Piece rest = in.Slice(begin, end);
    out += rest.text;
    return std::min(rest.from_start, rest.text.size());
  }

  // What replaces a match counts as coming from the last character of the match.
  std::size_t operator()(const Replace& step) const {
    std::size_t from_start = 0;
    step.pattern.Cut(in.text, regex, [&](std::size_t begin, std::size_t end, bool is_match) {
      if (!is_match && begin < in.from_start) {
        from_start = out.size() + std::min(end, in.from_start) - begin;
      }
      out += is_match ? std::string_view(step.content) : in.text.substr(begin, end - begin);
      if (is_match && end <= in.from_start) from_start = out.size();
    });
    return from_start;
  }
};

Piece Normalizer::Apply(Piece piece, NormalizerScratch& scratch, RegexScratch& regex) const {
  for (const Step& step : steps_) {
    scratch.next.clear();
    const std::size_t from_start = std::visit(Runner{piece, scratch.next, regex}, step);
    std::swap(scratch.now, scratch.next);
    piece = {scratch.now, from_start};
  }
  return piece;
}

}  // namespace gt
