#include "gt/data/token_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"

namespace gt {
namespace {

// Converts and says whether every id is below `vocab_size`. Loads go through memcpy because nothing
// aligns the data of a file; it compiles to plain vector loads.
template <typename T>
bool Convert(const std::byte* from, int64_t count, int64_t vocab_size, int64_t* out) {
  bool all_fit = true;
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = static_cast<int64_t>(value);
    // Negative ids, and those beyond 63 bits, are large as unsigned numbers.
    all_fit &= static_cast<uint64_t>(out[i]) < static_cast<uint64_t>(vocab_size);
  }
  return all_fit;
}

bool ConvertAs(TokenType type, const std::byte* from, int64_t count, int64_t vocab_size,
               int64_t* out) {
  switch (type) {
    case TokenType::kUint8:
      return Convert<uint8_t>(from, count, vocab_size, out);
    case TokenType::kUint16:
      return Convert<uint16_t>(from, count, vocab_size, out);
    case TokenType::kUint32:
      return Convert<uint32_t>(from, count, vocab_size, out);
    case TokenType::kUint64:
      return Convert<uint64_t>(from, count, vocab_size, out);
    case TokenType::kInt16:
      return Convert<int16_t>(from, count, vocab_size, out);
    case TokenType::kInt32:
      return Convert<int32_t>(from, count, vocab_size, out);
    case TokenType::kInt64:
      return Convert<int64_t>(from, count, vocab_size, out);
  }
  GT_CHECK(false, "token type {}", static_cast<int>(type));
}

nlohmann::json ReadSidecar(const std::filesystem::path& path) {
  constexpr std::streamsize kMost = 1 << 16;
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail(ErrorCode::kDataUnreadable, "cannot read '{}'", path.string());
  std::string text(kMost, '\0');
  file.read(text.data(), kMost);
  text.resize(static_cast<std::size_t>(file.gcount()));
  nlohmann::json value;
  std::string where;
  try {
    value = ParseJson(text);
  } catch (const BadJson& problem) {
    where = fmt::format(" ({})", problem.what());
  }
  if (!value.is_object()) {
    Fail(ErrorCode::kBadData,
         "{}: describes the .bin file beside it and must be a JSON object such as {{\"dtype\": "
         "\"uint16\", \"shape\": [1000, 257]}}{}",
         path.string(), where);
  }
  return value;
}

// All elements of T are below 2^(half their bits), and some are not zero.
template <typename T>
bool UpperHalvesAreZero(std::span<const std::byte> bytes) {
  constexpr std::size_t kFewest = 64;  // fewer could be so by chance
  const std::size_t count = bytes.size() / sizeof(T);
  if (count < kFewest) return false;
  T any = 0;
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    any |= value;
  }
  return any != 0 && (any >> (sizeof(T) * 4)) == 0;
}

}  // namespace

TokenType WidestPlausibleType(std::span<const std::byte> bytes, TokenType type) {
  constexpr std::size_t kLooked = std::size_t{1} << 20;
  const auto begin = bytes.first(std::min(bytes.size(), kLooked));
  if (bytes.size() % 8 == 0 && UpperHalvesAreZero<uint64_t>(begin)) return TokenType::kUint64;
  if (type == TokenType::kUint16 && bytes.size() % 4 == 0 && UpperHalvesAreZero<uint32_t>(begin)) {
    return TokenType::kUint32;
  }
  return type;
}

TokenFile::TokenFile(const DataFile& file, DataKind kind, int64_t vocab_size)
    : path_(file.path.string()), mapping_(file.path, ErrorCode::kDataUnreadable) {
  if (kind == DataKind::kNpy) {
    OpenNpy();
  } else {
    OpenBin(vocab_size);
  }
}

void TokenFile::OpenNpy() {
  const NpyHeader header = ParseNpy(mapping_.bytes(), path_);
  data_ = mapping_.bytes().subspan(header.data_offset);
  type_ = header.type;
  SetShape(header.shape);
}

void TokenFile::OpenBin(int64_t vocab_size) {
  data_ = mapping_.bytes();
  type_ = vocab_size <= 65536 ? TokenType::kUint16 : TokenType::kUint32;
  const std::filesystem::path sidecar = SidecarOf(path_);
  if (!sidecar.empty()) {
    ApplySidecar(sidecar);
    return;
  }
  const TokenType plausible = WidestPlausibleType(data_, type_);
  if (plausible != type_) {
    log::Info("{}: read as {}, since the upper halves of its elements are zero", path_,
              EnumName(plausible));
    type_ = plausible;
  }
  const std::size_t bytes_per = BytesPer(type_);
  if (data_.size() % bytes_per != 0) {
    Fail(ErrorCode::kBadData,
         "{}: {} bytes are not a whole number of {} token ids; say what it holds in {}.json: "
         "{{\"dtype\": \"uint32\"}}",
         path_, data_.size(), EnumName(type_), path_);
  }
  SetShape({static_cast<int64_t>(data_.size() / bytes_per)});
}

void TokenFile::ApplySidecar(const std::filesystem::path& sidecar) {
  const nlohmann::json description = ReadSidecar(sidecar);
  if (const auto dtype = description.find("dtype"); dtype != description.end()) {
    const auto type =
        dtype->is_string() ? EnumFromName<TokenType>(dtype->get<std::string>()) : std::nullopt;
    if (!type) {
      Fail(ErrorCode::kBadData, "{}: dtype is {}, but token ids are one of {}", sidecar.string(),
           ShortJson(*dtype), fmt::join(kEnumNames<TokenType>, ", "));
    }
    type_ = *type;
  }
  const auto there = static_cast<int64_t>(data_.size() / BytesPer(type_));
  std::vector<int64_t> shape = {there};
  if (const auto given = description.find("shape"); given != description.end()) {
    const bool is_list =
        given->is_array() && given->size() <= 8 &&
        std::all_of(given->begin(), given->end(), [](const nlohmann::json& extent) {
          return extent.is_number_unsigned() && extent.get<uint64_t>() < 1ull << 56;
        });
    if (!is_list) {
      Fail(ErrorCode::kBadData, "{}: shape must be a list of sizes such as [1000, 257]",
           sidecar.string());
    }
    shape = given->get<std::vector<int64_t>>();
  }
  if (ElementCount(shape) != there || data_.size() % BytesPer(type_) != 0) {
    Fail(ErrorCode::kBadData, "{}: describes {} elements of shape ({}), but {} has {} bytes",
         sidecar.string(), EnumName(type_), fmt::join(shape, ", "), path_, data_.size());
  }
  SetShape(shape);
}

void TokenFile::SetShape(const std::vector<int64_t>& shape) {
  if (shape.size() != 1 && shape.size() != 2) {
    Fail(ErrorCode::kBadData,
         "{}: has {} dimensions; token ids come as one stream or as rows of equal length", path_,
         shape.size());
  }
  if (shape.size() == 2 && shape[1] == 0)
    Fail(ErrorCode::kBadData, "{}: its rows are empty", path_);
  size_ = ElementCount(shape);
  row_width_ = shape.size() == 2 ? shape[1] : 0;
}

void TokenFile::Read(int64_t begin, int64_t count, int64_t vocab_size, int64_t* out) const {
  GT_CHECK(begin >= 0 && count >= 0 && begin <= size_ - count, "tokens {} to {} of {}", begin,
           begin + count, size_);
  const std::byte* from = data_.data() + static_cast<std::size_t>(begin) * BytesPer(type_);
  if (ConvertAs(type_, from, count, vocab_size, out)) return;
  const int64_t* wrong = std::find_if(
      out, out + count, [vocab_size](int64_t id) { return id < 0 || id >= vocab_size; });
  Fail(
      ErrorCode::kTokenOutOfVocabulary,
      "{}: token {} has the id {}, but the model's vocabulary has {} entries (the file was read as "
      "{})",
      path_, begin + (wrong - out), *wrong, vocab_size, EnumName(type_));
}

}  // namespace gt
