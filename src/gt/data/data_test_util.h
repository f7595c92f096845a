// Files, tokens and errors for the tests of the data folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"

#ifdef GT_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef GT_HAVE_ZSTD
#include <zstd.h>
#endif

namespace gt::testing {

// Training data for one test, removed afterwards.
class DataFolder {
 public:
  // Path of a new file with these bytes.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path.string();
  }

  std::string path() const { return folder_.path().string(); }

 private:
  TempFolder folder_;
};

// The error that `body` ends with, as "GT-E0713 message"; empty when it does not fail.
template <typename Body>
std::string ErrorOf(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return CodeName(error.code()) + " " + error.message();
  }
  return "";
}

inline void ExpectError(const std::string& error, ErrorCode code,
                        const std::vector<std::string>& parts) {
  EXPECT_TRUE(error.starts_with(CodeName(code) + " ")) << "got: " << error;
  for (const std::string& part : parts) {
    EXPECT_NE(error.find(part), std::string::npos) << "no '" << part << "' in: " << error;
  }
}

#ifdef GT_HAVE_ZLIB
inline std::string Gzip(std::string_view bytes) {
  z_stream zlib = {};
  GT_CHECK(deflateInit2(&zlib, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK,
           "zlib");
  std::string out(deflateBound(&zlib, bytes.size()), '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zlib.avail_in = static_cast<uInt>(bytes.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  GT_CHECK(deflate(&zlib, Z_FINISH) == Z_STREAM_END, "zlib");
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}
#endif

#ifdef GT_HAVE_ZSTD
inline std::string Zstd(std::string_view bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}
#endif

template <typename T>
std::string RawBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A .npy file of version 1 around `data`.
inline std::string Npy(std::string_view descr, std::string_view shape, std::string_view data,
                       bool fortran_order = false) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr,
                                   fortran_order ? "True" : "False", shape);
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += '\1';
  file += '\0';
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(data);
}

// Bytes are tokens; two more ids serve as bos and eos.
inline constexpr int32_t kBos = 256;
inline constexpr int32_t kEos = 257;
inline constexpr int64_t kByteVocabulary = 258;

inline void EncodeBytes(std::string_view text, std::vector<int32_t>& append) {
  for (const char c : text) append.push_back(static_cast<unsigned char>(c));
}

}  // namespace gt::testing
