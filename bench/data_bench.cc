// How fast training data becomes batches, without and with the background thread. Bytes are the
// tokens, so what is measured is the loader itself: a tokenizer adds to it.
//   text   the text that ships with the program, in shuffled pieces
//   JSONL  the same text as documents
//   rows   .npy of 16-bit tokens, as much as 200 MB
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/data/files.h"
#include "gt/data/loader.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kRows = 8;
constexpr int64_t kLength = 2048;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

fs::path WriteFile(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
  return path;
}

std::string AsJsonl(const std::string& text) {
  std::string lines;
  for (std::size_t at = 0; at < text.size(); at += 4000) {
    lines += nlohmann::json{{"text", text.substr(at, 4000)}, {"id", at}}.dump() + "\n";
  }
  return lines;
}

std::string NpyRows(int64_t rows) {
  std::string header = fmt::format(
      "{{'descr': '<u2', 'fortran_order': False, 'shape': ({}, {}), }}", rows, kLength + 1);
  header.resize(117, ' ');
  header += '\n';
  std::string file = "\x93NUMPY";
  file += '\1';
  file += '\0';
  file += static_cast<char>(header.size());
  file += '\0';
  file += header;
  const int64_t tokens = rows * (kLength + 1);
  file.reserve(file.size() + static_cast<std::size_t>(2 * tokens));
  for (int64_t i = 0; i < tokens; ++i) {
    file += static_cast<char>(i * 7);
    file += static_cast<char>(i % 100);
  }
  return file;
}

// `bytes_per_token` of the file; the best of three tries, since other programs run beside this one.
void Measure(const std::string& what, const fs::path& path, int64_t batches,
             double bytes_per_token) {
  for (const int64_t prefetch : {0, 4}) {
    gt::LoaderOptions options;
    options.paths = {path.string()};
    options.rows = kRows;
    options.length = kLength;
    options.vocab_size = 65536;
    options.prefetch = prefetch;
    options.encode = [](std::string_view text, std::vector<int32_t>& append) {
      append.insert(append.end(), text.begin(), text.end());
    };
    double best = 1e30;
    std::string description;
    for (int attempt = 0; attempt < 3; ++attempt) {
      gt::Loader loader(options);
      description = loader.Describe();
      const Clock::time_point start = Clock::now();
      for (int64_t i = 0; i < batches; ++i) loader.Next();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    const double tokens = static_cast<double>(batches * kRows * kLength);
    fmt::print("{:<6} {:<10} {:>8.1f} M tokens/s {:>9.1f} MB/s of the file   ({})\n", what,
               prefetch ? "prefetched" : "in Next()", tokens / best / 1e6,
               tokens * bytes_per_token / best / 1e6, description);
  }
}

}  // namespace

int main() {
  const fs::path folder = fs::temp_directory_path() / "gt_data_bench";
  fs::create_directories(folder);
  try {
    std::string text = ReadFile(fs::path(GT_SOURCE_DIR) / "data" / "sample.txt");
    GT_CHECK(!text.empty(), "data/sample.txt is missing");
    // The trivial tokenizer takes bytes as they are, and they are signed.
    for (char& c : text) c &= 0x7F;
    const fs::path plain = WriteFile(folder / "sample.txt", text);
    const std::string lines = AsJsonl(text);
    const double bytes_per_token =
        static_cast<double>(lines.size()) / static_cast<double>(text.size());
    const fs::path jsonl = WriteFile(folder / "sample.jsonl", lines);
    const int64_t rows = 50'000;
    const fs::path npy = WriteFile(folder / "rows.npy", NpyRows(rows));
    Measure("text", plain, 1000, 1);
    Measure("JSONL", jsonl, 500, bytes_per_token);
    Measure("rows", npy, rows / kRows, 2);
  } catch (const gt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    fs::remove_all(folder);
    return 1;
  }
  fs::remove_all(folder);
  return 0;
}
