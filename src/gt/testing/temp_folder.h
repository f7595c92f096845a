// A folder for one test, removed afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "gt/base/error.h"

namespace gt::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "gt_test_XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = path;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // NOLINTNEXTLINE(google-explicit-constructor): a folder is given wherever a path is asked for.
  operator const std::filesystem::path&() const { return path_; }
  std::string string() const { return path_.string(); }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteText(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Expects an error of that code whose message contains all of `parts`.
template <typename Call>
void ExpectError(ErrorCode code, std::initializer_list<std::string_view> parts, Call call) {
  try {
    call();
    ADD_FAILURE() << "expected " << CodeName(code);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string_view part : parts) {
      EXPECT_NE(error.message().find(part), std::string::npos)
          << "expected \"" << part << "\" in: " << error.what();
    }
  }
}

}  // namespace gt::testing
