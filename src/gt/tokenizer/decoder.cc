#include "gt/tokenizer/decoder.h"

#include <array>
#include <charconv>
#include <optional>

#include "gt/base/text.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/byte_level.h"
#include "gt/tokenizer/normalizer.h"

namespace gt {
namespace {

constexpr std::array<std::string_view, 8> kKnownDecoders = {
    "Sequence", "ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Strip", "Replace", "BPEDecoder"};

using Tokens = std::vector<std::string>;

// The byte of a token such as <0x0A>.
std::optional<char> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

// Bytes that make up whole characters become one token, others U+FFFD for each byte.
void GiveBytes(std::string& bytes, Tokens& out) {
  if (bytes.empty()) return;
  if (IsValidUtf8(bytes)) {
    out.push_back(bytes);
  } else {
    out.insert(out.end(), bytes.size(), std::string(kReplacementUtf8));
  }
  bytes.clear();
}

std::string Replaced(std::string_view token, const Regex& pattern, std::string_view content,
                     RegexScratch& regex) {
  std::string out;
  pattern.Cut(token, regex, [&](std::size_t begin, std::size_t end, bool is_match) {
    out += is_match ? content : token.substr(begin, end - begin);
  });
  return out;
}

}  // namespace

Decoder Decoder::FromJson(const JsonPart& part) {
  Decoder decoder;
  decoder.present_ = !part.IsNull();
  if (decoder.present_) decoder.Add(part, 0);
  return decoder;
}

void Decoder::Add(const JsonPart& part, int depth) {
  constexpr int64_t kMostStripped = 1 << 20;
  const std::string type = part.Type(kKnownDecoders);
  if (type == "Sequence") {
    if (depth >= kDeepestSequence) part.Refuse("sequences are nested too deeply");
    for (const JsonPart& item : part.At("decoders").Items()) Add(item, depth + 1);
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (type == "Metaspace") {
    const bool never = (part.Has("prepend_scheme") && part.String("prepend_scheme") == "never") ||
                       !part.Bool("add_prefix_space", true);
    steps_.emplace_back(Metaspace{part.At("replacement").AsCharacter(), !never});
  } else if (type == "Strip") {
    steps_.emplace_back(
        Strip{part.At("content").AsCharacter(),
              static_cast<std::size_t>(part.At("start").AsInteger(0, kMostStripped)),
              static_cast<std::size_t>(part.At("stop").AsInteger(0, kMostStripped))});
  } else if (type == "Replace") {
    steps_.emplace_back(Replace{PatternOf(part), part.String("content")});
  } else {
    steps_.emplace_back(WordSuffix{Regex::FromLiteral(part.String("suffix"))});
  }
}

struct Decoder::Runner {
  Tokens tokens;
  RegexScratch& regex;

  // Joins all tokens: a character may be spread over several of them.
  Tokens operator()(const ByteLevel&) const {
    std::string bytes;
    for (const std::string& token : tokens) AppendBytesOrSame(token, bytes);
    return {ToValidUtf8(bytes)};
  }

  Tokens operator()(const ByteFallback&) {
    Tokens out;
    std::string bytes;
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = ByteOf(token)) {
        bytes += *byte;
        continue;
      }
      GiveBytes(bytes, out);
      out.push_back(std::move(token));
    }
    GiveBytes(bytes, out);
    return out;
  }

  Tokens operator()(const Fuse&) const { return {Join(tokens, "")}; }

  // The first token loses the ▁ that encoding put there.
  Tokens operator()(const Metaspace& step) {
    bool first = true;
    for (std::string& token : tokens) {
      std::string out;
      for (std::size_t i = 0; i < token.size();) {
        const std::size_t begin = i;
        if (NextCharacter(token, i) != step.replacement) {
          out += token.substr(begin, i - begin);
        } else if (!first || !step.was_prepended) {
          out += ' ';
        }
      }
      token = std::move(out);
      first = false;
    }
    return std::move(tokens);
  }

  Tokens operator()(const Strip& step) {
    const std::string content = ToUtf8(step.content);
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::size_t i = 0; i < step.start && rest.starts_with(content); ++i) {
        rest.remove_prefix(content.size());
      }
      for (std::size_t i = 0; i < step.stop && rest.ends_with(content); ++i) {
        rest.remove_suffix(content.size());
      }
      token = std::string(rest);
    }
    return std::move(tokens);
  }

  Tokens operator()(const Replace& step) {
    for (std::string& token : tokens) token = Replaced(token, step.pattern, step.content, regex);
    return std::move(tokens);
  }

  Tokens operator()(const WordSuffix& step) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = Replaced(tokens[i], step.suffix, i + 1 == tokens.size() ? "" : " ", regex);
    }
    return std::move(tokens);
  }
};

std::string Decoder::Decode(Tokens tokens, RegexScratch& regex) const {
  if (!present_) return Join(tokens, " ");
  for (const Step& step : steps_) tokens = std::visit(Runner{std::move(tokens), regex}, step);
  return Join(tokens, "");
}

}  // namespace gt
