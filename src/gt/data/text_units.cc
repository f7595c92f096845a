#include "gt/data/text_units.h"

#include "gt/base/utf8.h"

namespace gt {
namespace {

// The last place at or before `end` that is between two characters of UTF-8; `end` itself when the
// bytes around it are not UTF-8 anyway.
std::size_t CharacterBoundary(std::string_view bytes, std::size_t end) {
  constexpr std::size_t kLongestCharacter = 4;
  for (std::size_t back = 0; back < kLongestCharacter && back < end; ++back) {
    if (end - back >= bytes.size() || !IsUtf8Continuation(bytes[end - back])) return end - back;
  }
  return end;
}

std::optional<std::size_t> PieceLength(std::string_view bytes, bool complete) {
  if (bytes.size() <= kPieceBytes) {
    return complete ? std::optional(bytes.size()) : std::nullopt;
  }
  const std::string_view reach = bytes.substr(0, kPieceMost);
  const std::size_t line_end = reach.find('\n', kPieceBytes - 1);
  if (line_end != std::string_view::npos) return line_end + 1;
  // One byte beyond the cut tells whether it would divide a character.
  if (bytes.size() > kPieceMost) return CharacterBoundary(bytes, kPieceMost);
  return complete ? std::optional(bytes.size()) : std::nullopt;
}

std::optional<std::size_t> LineLength(std::string_view bytes, bool complete) {
  const std::string_view reach = bytes.substr(0, kLineMost);
  const std::size_t line_end = reach.find('\n');
  if (line_end != std::string_view::npos) return line_end + 1;
  if (complete && bytes.size() <= kLineMost) return bytes.size();
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> UnitLength(TextForm form, std::string_view bytes, bool complete) {
  return form == TextForm::kText ? PieceLength(bytes, complete) : LineLength(bytes, complete);
}

std::size_t ByteOrderMarkLength(std::string_view bytes) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return bytes.starts_with(kMark) ? kMark.size() : 0;
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace gt
