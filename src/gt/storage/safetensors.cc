#include "gt/storage/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/storage/safetensors_layout.h"

namespace gt {
namespace {

// A tensor as the header describes it. Offsets count from the end of the header.
struct Description {
  std::string name;
  const StoredDType* dtype = nullptr;
  bool has_sizes = false;
  bool has_offsets = false;
  std::vector<int64_t> sizes;
  std::vector<int64_t> offsets;

  int64_t begin() const { return offsets.front(); }
  int64_t end() const { return offsets.back(); }
};

// Names from a damaged file can be megabytes long.
std::string Shown(std::string_view name) {
  constexpr size_t kShown = 200;
  if (name.size() <= kShown) return Quoted(name);
  return Quoted(name.substr(0, kShown)) + " (shortened)";
}

// Takes the header from the JSON parser piece by piece. A tree of values would need many times the
// header's size, and would hide keys that occur twice.
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderReader(std::string_view path) : path_(path) {}

  std::vector<Description> tensors;
  SafetensorsMetadata metadata;

  bool null() override {
    // Some writers put null where there is no metadata.
    if (place_ == Place::kTop && key_ == kMetadataKey) return true;
    Unexpected("null");
  }
  bool boolean(bool value) override { Unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { Unexpected(fmt::format("{}", value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { Unexpected(text); }
  bool binary(binary_t& /*value*/) override { Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kList || !std::in_range<int64_t>(value)) {
      Unexpected(fmt::format("{}", value));
    }
    // libtorch has no tensors of more dimensions, and no list of offsets is longer.
    constexpr size_t kMostNumbers = 64;
    if (list_->size() == kMostNumbers) {
      Malformed("{} of tensor {} holds more than {} numbers", key_, Shown(tensors.back().name),
                kMostNumbers);
    }
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      metadata[key_] = std::move(value);
    } else if (place_ == Place::kTensor && key_ == "dtype") {
      SetDType(value);
    } else {
      Unexpected(Shown(value));
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      place_ = Place::kTensor;
      tensors.emplace_back().name = key_;
    } else {
      Unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (place_ == Place::kTop) {
      if (!names_.insert(key_).second) Malformed("{} occurs twice in the header", Shown(key_));
    } else if (place_ == Place::kMetadata) {
      if (!metadata.emplace(key_, "").second)
        Malformed("the metadata {} occurs twice", Shown(key_));
    } else {
      CheckField();
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) CheckComplete(tensors.back());
    place_ = Place::kTop;  // after the outermost one, nothing comes any more
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::kTensor || key_ == "dtype") Unexpected("a list");
    place_ = Place::kList;
    Description& tensor = tensors.back();
    const bool is_shape = key_ == "shape";
    (is_shape ? tensor.has_sizes : tensor.has_offsets) = true;
    list_ = is_shape ? &tensor.sizes : &tensor.offsets;
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& /*error*/) override {
    Malformed("the header is not JSON: there is a mistake at byte {} of the file",
              kLengthBytes + position - 1);
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kList };

  template <typename... Args>
  [[noreturn]] void Malformed(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kBadSafetensors, "{}: {}", path_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void Unexpected(std::string_view found) const {
    const std::string_view shown = found.substr(0, 200);
    switch (place_) {
      case Place::kStart:
        Malformed("the header is {} in place of an object", shown);
      case Place::kTop:
        Malformed("the header has {} in place of an object for {}", shown, Shown(key_));
      case Place::kMetadata:
        Malformed("the metadata {} is {} in place of a text", Shown(key_), shown);
      default:
        Malformed("{} of tensor {} holds {}, which does not belong there", key_,
                  Shown(tensors.back().name), shown);
    }
  }

  void SetDType(std::string_view name) {
    tensors.back().dtype = FindStoredDType(name);
    if (tensors.back().dtype == nullptr) {
      Malformed("tensor {} has the dtype {}, which the format does not know",
                Shown(tensors.back().name), Shown(name));
    }
  }

  void CheckField() const {
    const Description& tensor = tensors.back();
    const bool is_dtype = key_ == "dtype";
    const bool is_shape = key_ == "shape";
    if (!is_dtype && !is_shape && key_ != "data_offsets") {
      Malformed("tensor {} has the field {}, which the format does not know", Shown(tensor.name),
                Shown(key_));
    }
    const bool known = is_dtype   ? tensor.dtype != nullptr
                       : is_shape ? tensor.has_sizes
                                  : tensor.has_offsets;
    if (known) Malformed("tensor {} has the field {} twice", Shown(tensor.name), key_);
  }

  void CheckComplete(const Description& tensor) const {
    const auto missing = [&](std::string_view field) {
      Malformed("tensor {} has no {}", Shown(tensor.name), field);
    };
    if (tensor.dtype == nullptr) missing("dtype");
    if (!tensor.has_sizes) missing("shape");
    if (!tensor.has_offsets) missing("data_offsets");
    if (tensor.offsets.size() != 2) {
      Malformed("tensor {} has {} data_offsets in place of 2", Shown(tensor.name),
                tensor.offsets.size());
    }
  }

  std::string_view path_;
  Place place_ = Place::kStart;
  std::string key_;
  std::vector<int64_t>* list_ = nullptr;
  std::unordered_set<std::string> names_;
};

// The length field plus the header that it announces.
std::span<const std::byte> CutHeader(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes) {
    Fail(ErrorCode::kBadSafetensors,
         "{}: the file has {} bytes, too few even for the length of its header: it is cut short",
         path, file.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMostHeaderBytes) {
    Fail(ErrorCode::kBadSafetensors,
         "{}: the file begins with {} as the length of its header, but headers have at most {} "
         "bytes: "
         "this is no safetensors file",
         path, length, kMostHeaderBytes);
  }
  if (length > file.size() - kLengthBytes) {
    Fail(
        ErrorCode::kBadSafetensors,
        "{}: the header should have {} bytes, but only {} follow its length: the file is cut short",
        path, length, file.size() - kLengthBytes);
  }
  return file.first(kLengthBytes + length);
}

void ParseHeader(std::span<const std::byte> header, HeaderReader& reader, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + kLengthBytes,
                              header.size() - kLengthBytes);
  if (!text.starts_with('{')) {
    Fail(ErrorCode::kBadSafetensors, "{}: the header does not begin with a brace", path);
  }
  // The parser takes a zero byte for the end of its input, and would not look at what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    Fail(ErrorCode::kBadSafetensors, "{}: the header has a zero at byte {} of the file", path,
         kLengthBytes + zero);
  }
  nlohmann::json::sax_parse(text, &reader);
}

std::string RangeText(const Description& tensor) {
  return fmt::format("bytes {} to {}", tensor.begin(), tensor.end());
}

void CheckExtent(const Description& tensor, const std::string& path) {
  if (tensor.begin() > tensor.end()) {
    Fail(ErrorCode::kBadSafetensors,
         "{}: tensor {} lies at {} of the data: the end is before the beginning", path,
         Shown(tensor.name), RangeText(tensor));
  }
  const auto bytes = StoredBytes(tensor.sizes, tensor.dtype->bits);
  if (bytes == tensor.end() - tensor.begin()) return;
  const std::string type =
      fmt::format("{} [{}]", tensor.dtype->name, fmt::join(tensor.sizes, ", "));
  if (!bytes.has_value()) {
    Fail(ErrorCode::kBadSafetensors,
         "{}: tensor {} is {}, which is too large, or no whole number of bytes", path,
         Shown(tensor.name), type);
  }
  Fail(ErrorCode::kBadSafetensors,
       "{}: tensor {} is {}, which takes {} bytes, but lies at {} of the data, which are {}", path,
       Shown(tensor.name), type, *bytes, RangeText(tensor), tensor.end() - tensor.begin());
}

// `tensors` are sorted. Together they must be the data, byte for byte.
void CheckCoverage(std::span<const Description> tensors, int64_t data_bytes,
                   const std::string& path) {
  int64_t covered = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Description& tensor = tensors[i];
    if (tensor.begin() != covered) {
      const std::string before =
          i == 0 ? "the data begin" : fmt::format("tensor {} ends", Shown(tensors[i - 1].name));
      Fail(ErrorCode::kBadSafetensors,
           "{}: tensor {} begins at byte {} of the data, but {} at {}: {}", path,
           Shown(tensor.name), tensor.begin(), before, covered,
           tensor.begin() < covered ? "they overlap" : "there is a hole between them");
    }
    covered = tensor.end();
    if (covered > data_bytes) {
      Fail(
          ErrorCode::kBadSafetensors,
          "{}: tensor {} ends at byte {} of the data, but there are only {}: the file is cut short",
          path, Shown(tensor.name), covered, data_bytes);
    }
  }
  if (covered != data_bytes) {
    Fail(ErrorCode::kBadSafetensors,
         "{}: the tensors end at byte {} of the data, but there are {}: the last {} belong to none",
         path, covered, data_bytes, data_bytes - covered);
  }
}

}  // namespace

TensorTable::TensorTable(std::vector<TensorEntry> tensors) : tensors_(std::move(tensors)) {
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const TensorEntry* TensorTable::Find(std::string_view name, std::string_view where) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  const TensorEntry& tensor = tensors_[found->second];
  if (tensor.dtype == DType::kUndefined) {
    Fail(ErrorCode::kUnsupportedDType,
         "{}: tensor {} has the dtype {}, which gt cannot compute with", where, Quoted(name),
         tensor.stored_dtype);
  }
  return &tensor;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), file_(path, ErrorCode::kBadSafetensors) {
  Read(file_.bytes());
}

SafetensorsFile SafetensorsFile::FromBytes(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile file;
  file.path_ = std::move(name);
  file.Read(bytes);
  return file;
}

void SafetensorsFile::Read(std::span<const std::byte> bytes) {
  header_ = CutHeader(bytes, path_);
  const auto data = bytes.subspan(header_.size());
  HeaderReader reader(path_);
  ParseHeader(header_, reader, path_);
  std::vector<Description>& described = reader.tensors;
  for (const Description& tensor : described) CheckExtent(tensor, path_);
  std::sort(described.begin(), described.end(), [](const Description& a, const Description& b) {
    return a.offsets != b.offsets ? a.offsets < b.offsets : a.name < b.name;
  });
  CheckCoverage(described, static_cast<int64_t>(data.size()), path_);

  std::vector<TensorEntry> tensors;
  tensors.reserve(described.size());
  for (Description& tensor : described) {
    const auto begin = static_cast<size_t>(tensor.begin());
    const auto end = static_cast<size_t>(tensor.end());
    tensors.push_back({.name = std::move(tensor.name),
                       .dtype = tensor.dtype->dtype,
                       .sizes = std::move(tensor.sizes),
                       .bytes = data.subspan(begin, end - begin),
                       .stored_dtype = tensor.dtype->name});
  }
  table_ = TensorTable(std::move(tensors));
  metadata_ = std::move(reader.metadata);
}

}  // namespace gt
