#include "gt/base/byte_stream.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gt/base/error.h"

#ifdef GT_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef GT_HAVE_ZSTD
#include <zstd.h>
#endif

namespace gt {
namespace {

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const std::filesystem::path& file)
      : path_(file.string()), file_(std::fopen(path_.c_str(), "rb")) {
    if (!file_) Fail(ErrorCode::kDataUnreadable, "cannot open '{}': {}", path_, Reason());
  }

  std::size_t Read(char* out, std::size_t capacity) override {
    const std::size_t got = std::fread(out, 1, capacity, file_.get());
    if (got < capacity && std::ferror(file_.get())) {
      Fail(ErrorCode::kDataUnreadable, "reading '{}' failed half-way: {}", path_, Reason());
    }
    consumed_ += got;
    return got;
  }

  std::size_t consumed() const override { return consumed_; }

  const std::string& path() const { return path_; }

 private:
  static std::string Reason() { return std::strerror(errno); }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::size_t consumed_ = 0;
};

// Compressed bytes on their way to a decompressor.
class InputWindow {
 public:
  explicit InputWindow(const std::filesystem::path& file)
      : stream_(file), buffer_(std::size_t{1} << 18) {}

  // Reads more when nothing is left; false at the end of the file.
  bool Refill() {
    if (begin_ < end_) return true;
    begin_ = 0;
    end_ = stream_.Read(buffer_.data(), buffer_.size());
    return end_ > 0;
  }

  char* data() { return buffer_.data() + begin_; }
  std::size_t size() const { return end_ - begin_; }
  void Consume(std::size_t count) { begin_ += count; }
  const std::string& path() const { return stream_.path(); }
  std::size_t consumed() const { return stream_.consumed() - size(); }

 private:
  PlainStream stream_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

[[maybe_unused, noreturn]] void CutShort(const InputWindow& input, const char* format) {
  Fail(ErrorCode::kBadData,
       "'{}' ends in the middle of its {} data: the file was cut short, copy it again",
       input.path(), format);
}

#ifdef GT_HAVE_ZLIB
class GzipStream : public ByteStream {
 public:
  explicit GzipStream(const std::filesystem::path& file) : input_(file) {
    constexpr int kGzipOnly = 16;
    GT_CHECK(inflateInit2(&zlib_, kGzipOnly + MAX_WBITS) == Z_OK, "zlib does not start");
  }
  ~GzipStream() override { inflateEnd(&zlib_); }

  std::size_t Read(char* out, std::size_t capacity) override {
    zlib_.next_out = reinterpret_cast<Bytef*>(out);
    zlib_.avail_out = static_cast<uInt>(std::min(capacity, kMost));
    const uInt room = zlib_.avail_out;
    while (zlib_.avail_out == room && HasInput()) Inflate();
    return room - zlib_.avail_out;
  }

  std::size_t consumed() const override { return input_.consumed(); }

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 30;  // zlib counts in 32 bits

  // False at the end of the file. Files are often several gzip members in a row (`cat a.gz b.gz`
  // makes such), which are read as one.
  bool HasInput() {
    if (!input_.Refill()) {
      if (!between_members_ || input_is_empty_) CutShort(input_, "gzip");
      return false;
    }
    input_is_empty_ = false;
    if (between_members_) inflateReset(&zlib_);
    between_members_ = false;
    return true;
  }

  void Inflate() {
    zlib_.next_in = reinterpret_cast<Bytef*>(input_.data());
    zlib_.avail_in = static_cast<uInt>(input_.size());
    const int result = inflate(&zlib_, Z_NO_FLUSH);
    input_.Consume(input_.size() - zlib_.avail_in);
    if (result == Z_STREAM_END) {
      between_members_ = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      Fail(ErrorCode::kBadData, "'{}' is not valid gzip data: {}", input_.path(),
           zlib_.msg ? zlib_.msg : "no reason given");
    }
  }

  InputWindow input_;
  z_stream zlib_ = {};
  bool between_members_ = true;
  bool input_is_empty_ = true;
};
#endif

#ifdef GT_HAVE_ZSTD
class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(const std::filesystem::path& file)
      : input_(file), zstd_(ZSTD_createDStream()) {
    GT_CHECK(zstd_ != nullptr, "zstd does not start");
  }

  std::size_t Read(char* out, std::size_t capacity) override {
    ZSTD_outBuffer output = {out, capacity, 0};
    // The decompressor may hold back output that did not fit, so it is asked even without new
    // input.
    while (output.pos == 0) {
      const bool more_input = input_.Refill();
      if (!more_input && at_frame_end_) break;
      Decompress(output);
      if (!more_input && output.pos == 0) CutShort(input_, "zstd");
    }
    return output.pos;
  }

  std::size_t consumed() const override { return input_.consumed(); }

 private:
  void Decompress(ZSTD_outBuffer& output) {
    ZSTD_inBuffer input = {input_.data(), input_.size(), 0};
    const std::size_t result = ZSTD_decompressStream(zstd_.get(), &output, &input);
    if (ZSTD_isError(result)) {
      Fail(ErrorCode::kBadData, "'{}' is not valid zstd data: {}", input_.path(),
           ZSTD_getErrorName(result));
    }
    input_.Consume(input.pos);
    at_frame_end_ = result == 0;
  }

  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  InputWindow input_;
  std::unique_ptr<ZSTD_DStream, Free> zstd_;
  bool at_frame_end_ = false;  // an empty file holds no frame and counts as cut short
};
#endif

[[maybe_unused, noreturn]] void NotBuiltIn(const std::filesystem::path& file, const char* library) {
  Fail(ErrorCode::kDataUnreadable,
       "cannot read '{}': this gt was built without {}; install it and build again, or decompress "
       "the file",
       file.string(), library);
}

}  // namespace

Compression CompressionOf(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (ending == ".gz") return Compression::kGzip;
  if (ending == ".zst" || ending == ".zstd") return Compression::kZstd;
  return Compression::kNone;
}

std::unique_ptr<ByteStream> OpenByteStream(const std::filesystem::path& file,
                                           Compression compression) {
  switch (compression) {
    case Compression::kNone:
      return std::make_unique<PlainStream>(file);
    case Compression::kGzip:
#ifdef GT_HAVE_ZLIB
      return std::make_unique<GzipStream>(file);
#else
      NotBuiltIn(file, "zlib");
#endif
    case Compression::kZstd:
#ifdef GT_HAVE_ZSTD
      return std::make_unique<ZstdStream>(file);
#else
      NotBuiltIn(file, "zstd");
#endif
  }
  GT_CHECK(false, "compression {}", static_cast<int>(compression));
}

}  // namespace gt
