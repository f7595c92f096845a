#include "gt/data/npy.h"

#include <fmt/ranges.h>

#include <charconv>
#include <optional>

#include "gt/base/error.h"

namespace gt {
namespace {

// What the header says: a Python dictionary such as
//   {'descr': '<u2', 'fortran_order': False, 'shape': (1000, 257), }
struct Dictionary {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

class DictionaryParser {
 public:
  DictionaryParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Dictionary Run() {
    Expect('{');
    while (!Take('}')) {
      const std::string key = ReadString();
      Expect(':');
      ReadValue(key);
      if (!Take(',')) {
        Expect('}');
        break;
      }
    }
    SkipSpace();
    if (at_ != text_.size()) Malformed("the end of the header");
    return std::move(result_);
  }

 private:
  [[noreturn]] void Malformed(std::string_view expected) const {
    constexpr std::size_t kShown = 30;
    Fail(ErrorCode::kBadData, "{}: expected {} in the .npy header, found {}", name_, expected,
         at_ < text_.size() ? Quoted(text_.substr(at_, kShown)) : "its end");
  }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void Expect(char c) {
    if (!Take(c)) Malformed(fmt::format("'{}'", c));
  }

  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::string ReadString() {
    const char quote = Take('\'') ? '\'' : Take('"') ? '"' : '\0';
    if (quote == '\0') Malformed("a string");
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) Malformed("the end of the string");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }

  int64_t ReadInteger() {
    SkipSpace();
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{} || value < 0) Malformed("a size");
    at_ = static_cast<std::size_t>(end - text_.data());
    Take('L');  // as Python 2 wrote long integers
    return value;
  }

  std::vector<int64_t> ReadShape() {
    constexpr std::size_t kMostDimensions = 64;  // of NumPy itself
    std::vector<int64_t> shape;
    Expect('(');
    while (!Take(')')) {
      if (shape.size() == kMostDimensions) Malformed("at most 64 dimensions");
      shape.push_back(ReadInteger());
      if (!Take(',')) {
        Expect(')');
        break;
      }
    }
    return shape;
  }

  void ReadValue(const std::string& key) {
    if (key == "descr") {
      SkipSpace();
      if (at_ < text_.size() && text_[at_] == '[') {
        Fail(ErrorCode::kBadData, "{}: is an array of records; token ids are plain integers",
             name_);
      }
      result_.descr = ReadString();
    } else if (key == "fortran_order") {
      const bool is_true = TakeWord("True");
      if (!is_true && !TakeWord("False")) Malformed("True or False");
      result_.fortran_order = is_true;
    } else if (key == "shape") {
      result_.shape = ReadShape();
    } else {
      Fail(ErrorCode::kBadData, "{}: unknown key {} in the .npy header", name_, Quoted(key));
    }
  }

  std::string_view text_, name_;
  std::size_t at_ = 0;
  Dictionary result_;
};

TokenType TypeOf(const std::string& descr, std::string_view name) {
  struct Known {
    std::string_view code;
    TokenType type;
  };
  constexpr Known kKnown[] = {
      {"u1", TokenType::kUint8},  {"u2", TokenType::kUint16}, {"u4", TokenType::kUint32},
      {"u8", TokenType::kUint64}, {"i2", TokenType::kInt16},  {"i4", TokenType::kInt32},
      {"i8", TokenType::kInt64},
  };
  const std::string_view code = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  for (const Known& known : kKnown) {
    if (code != known.code) continue;
    if (descr[0] == '<' || (descr[0] == '|' && known.type == TokenType::kUint8)) return known.type;
    if (descr[0] == '>') {
      Fail(ErrorCode::kBadData,
           "{}: holds big-endian numbers ({}); save it with array.astype('<{}')", name,
           Quoted(descr), known.code);
    }
  }
  Fail(ErrorCode::kBadData,
       "{}: holds elements of type {}, but token ids are integers: u1, u2, u4, u8, i2, i4 or i8",
       name, Quoted(descr));
}

struct HeaderText {
  std::string_view text;
  std::size_t end;  // where the data begins
};

HeaderText FindHeader(std::string_view file, std::string_view name) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (!file.starts_with(kMagic)) {
    Fail(ErrorCode::kBadData, "{}: is not a .npy file: it does not begin with \\x93NUMPY", name);
  }
  const auto byte = [file](std::size_t i) { return static_cast<unsigned char>(file[i]); };
  constexpr std::size_t kVersion = kMagic.size();
  const std::size_t length_at = kVersion + 2;
  const bool is_short = file.size() > kVersion && byte(kVersion) == 1;
  const std::size_t length_bytes = is_short ? 2 : 4;
  if (file.size() < length_at + length_bytes) {
    Fail(ErrorCode::kBadData, "{}: ends within its header, after {} bytes", name, file.size());
  }
  if (byte(kVersion) < 1 || byte(kVersion) > 3) {
    Fail(ErrorCode::kBadData, "{}: is of .npy version {}.{}; versions 1 to 3 can be read", name,
         byte(kVersion), byte(kVersion + 1));
  }
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | byte(length_at + i);
  const std::size_t begin = length_at + length_bytes;
  if (length > file.size() - begin) {
    Fail(ErrorCode::kBadData, "{}: its header claims to be {} bytes long, but the file has only {}",
         name, length, file.size());
  }
  return {file.substr(begin, length), begin + length};
}

}  // namespace

std::size_t BytesPer(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
      return 1;
    case TokenType::kUint16:
    case TokenType::kInt16:
      return 2;
    case TokenType::kUint32:
    case TokenType::kInt32:
      return 4;
    case TokenType::kUint64:
    case TokenType::kInt64:
      return 8;
  }
  GT_CHECK(false, "token type {}", static_cast<int>(type));
}

int64_t ElementCount(std::span<const int64_t> shape) {
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
    if (extent < 0 || count > kMost / extent) return -1;
    count *= extent;
  }
  return count;
}

NpyHeader ParseNpy(std::span<const std::byte> file, std::string_view name) {
  const HeaderText text =
      FindHeader({reinterpret_cast<const char*>(file.data()), file.size()}, name);
  const Dictionary dictionary = DictionaryParser(text.text, name).Run();
  if (!dictionary.descr || !dictionary.fortran_order || !dictionary.shape) {
    Fail(ErrorCode::kBadData, "{}: its .npy header lacks descr, fortran_order or shape", name);
  }
  NpyHeader header;
  header.type = TypeOf(*dictionary.descr, name);
  header.shape = *dictionary.shape;
  header.data_offset = text.end;
  header.elements = ElementCount(header.shape);
  // A vector is the same in both orders.
  if (*dictionary.fortran_order && header.shape.size() > 1) {
    Fail(ErrorCode::kBadData,
         "{}: is stored column by column; save it with numpy.ascontiguousarray(array)", name);
  }
  const std::size_t there = file.size() - text.end;
  const std::size_t bytes_per = BytesPer(header.type);
  if (header.elements < 0 || static_cast<std::size_t>(header.elements) * bytes_per != there) {
    Fail(ErrorCode::kBadData,
         "{}: its header promises {} elements of shape ({}), {} bytes each, but {} bytes of data "
         "follow",
         name, header.elements < 0 ? "too many" : std::to_string(header.elements),
         fmt::join(header.shape, ", "), bytes_per, there);
  }
  return header;
}

}  // namespace gt
