// How fast text becomes tokens on one thread, and beside the `tokenizers` package in the same run:
//   tokenizer_bench [PYTHON [TOKENIZER [TEXT]]]
// PYTHON is an interpreter that has the package, or "-" for none; then ids are compared as well.
// The defaults are the tokenizer and the text that ship with gt, the text often enough for 20 MB.
// Texts are cut at blank lines, as documents would be.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/error.h"
#include "gt/tokenizer/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) gt::Fail(gt::ErrorCode::kDataUnreadable, "{} cannot be read", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Of documents as bench/tokenizers_package.py cuts them.
std::vector<std::string_view> DocumentsOf(std::string_view text) {
  std::vector<std::string_view> documents;
  constexpr std::string_view kBlankLine = "\n\n";
  for (std::size_t end = 0; (end = text.find(kBlankLine)) != std::string_view::npos;) {
    documents.push_back(text.substr(0, end));
    text.remove_prefix(end + kBlankLine.size());
  }
  documents.push_back(text);
  return documents;
}

uint64_t ChecksumOf(const std::vector<int32_t>& ids) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const int32_t id : ids) value = (value ^ static_cast<uint64_t>(id)) * 0x100000001B3u;
  return value;
}

struct Measured {
  double seconds = std::numeric_limits<double>::infinity();
  uint64_t count = 0;
  uint64_t checksum = 0;
};

Measured MeasureGt(const gt::Tokenizer& tokenizer, const std::string& text) {
  Measured measured;
  const std::vector<std::string_view> documents = DocumentsOf(text);
  std::vector<int32_t> ids;
  for (int i = 0; i < kTries; ++i) {
    ids.clear();
    const Clock::time_point start = Clock::now();
    for (const std::string_view document : documents) tokenizer.Encode(document, ids);
    measured.seconds =
        std::min(measured.seconds, std::chrono::duration<double>(Clock::now() - start).count());
  }
  measured.count = ids.size();
  measured.checksum = ChecksumOf(ids);
  return measured;
}

bool MeasurePackage(const std::string& python, const std::string& tokenizer,
                    const std::string& text, Measured* measured) {
  const std::string command =
      fmt::format("'{}' '{}' '{}' '{}' {}", python, GT_SOURCE_DIR "/bench/tokenizers_package.py",
                  tokenizer, text, kTries);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return false;
  unsigned long long count = 0, checksum = 0;
  const bool read = std::fscanf(pipe, "%lf %llu %llu", &measured->seconds, &count, &checksum) == 3;
  pclose(pipe);
  measured->count = count;
  measured->checksum = checksum;
  return read;
}

void Report(std::string_view what, double value, std::string_view unit) {
  fmt::print("{:<58} {:>9.3f} {}\n", what, value, unit);
}

void ReportSpeed(std::string_view who, const Measured& measured, double bytes) {
  Report(fmt::format("{}, one thread", who), bytes / measured.seconds * 1e-6, "MB/s");
  Report(fmt::format("{}, one thread", who),
         static_cast<double>(measured.count) / measured.seconds * 1e-6, "Mtokens/s");
}

// A file with `text` as often as it takes to measure something.
std::string WriteRepeated(const std::string& text) {
  constexpr std::size_t kEnough = 20'000'000;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("gt_tokenizer_bench_{}.txt", getpid());
  std::ofstream file(path, std::ios::binary);
  for (std::size_t size = 0; size < kEnough; size += text.size()) file << text << "\n\n";
  return path.string();
}

int Run(const std::string& python, const std::string& tokenizer_path,
        const std::string& text_path) {
  const Clock::time_point start = Clock::now();
  const gt::Tokenizer tokenizer = gt::Tokenizer::FromFile(tokenizer_path);
  Report("reading the tokenizer", std::chrono::duration<double>(Clock::now() - start).count() * 1e3,
         "ms");
  const std::string path =
      text_path.empty() ? WriteRepeated(ReadText(GT_SOURCE_DIR "/data/sample.txt")) : text_path;
  const std::string text = ReadText(path);
  const auto bytes = static_cast<double>(text.size());
  const Measured ours = MeasureGt(tokenizer, text);
  ReportSpeed("gt", ours, bytes);
  int result = 0;
  if (python != "-") {
    Measured theirs;
    if (!MeasurePackage(python, tokenizer_path, path, &theirs)) {
      fmt::print("the tokenizers package could not be run with '{}'\n", python);
      result = 1;
    } else {
      ReportSpeed("tokenizers package", theirs, bytes);
      Report("  gt against the package", theirs.seconds / ours.seconds, "x as fast");
      const bool equal = ours.count == theirs.count && ours.checksum == theirs.checksum;
      fmt::print("{:<58} {:>9} {} ids\n", "  the ids are the same", equal ? "yes" : "NO",
                 ours.count);
      if (!equal) result = 1;
    }
  }
  if (text_path.empty()) std::filesystem::remove(path);
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  const auto argument = [&](int i, const char* otherwise) {
    return std::string(count > i ? arguments[i] : otherwise);
  };
  try {
    return Run(argument(1, "-"), argument(2, GT_SOURCE_DIR "/data/tokenizer/tokenizer.json"),
               argument(3, ""));
  } catch (const gt::Error& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
