// How text becomes units, the pieces that are shuffled and given to ranks: a line of a JSON lines
// file, or a piece of a text file. The same rules serve files that are mapped whole and files that
// are streamed.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace gt {

enum class TextForm { kText, kJsonl };

// A piece of text ends with the line in which it reaches kPieceBytes, so that most pieces begin
// where a thought does. Text without line ends is cut at kPieceMost, between two characters.
inline constexpr std::size_t kPieceBytes = 8 << 10;
inline constexpr std::size_t kPieceMost = 64 << 10;

// A longer line is taken for damage: a document of this size would not fit into any training row,
// and a file without line ends would be read into memory whole.
inline constexpr std::size_t kLineMost = std::size_t{256} << 20;

// How many of `bytes` belong to the unit they begin with, line end included. `complete` says that
// the file ends with them. Nothing is returned when more bytes are needed to tell, and for a line
// that is longer than kLineMost even though it is here whole.
std::optional<std::size_t> UnitLength(TextForm form, std::string_view bytes, bool complete);

// Of a file's beginning: editors put a byte order mark there, which is no part of the text.
std::size_t ByteOrderMarkLength(std::string_view bytes);

// Lines of nothing but space between documents are no documents.
bool IsBlank(std::string_view line);

}  // namespace gt
