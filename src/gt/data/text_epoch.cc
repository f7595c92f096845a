#include "gt/data/text_epoch.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gt/base/utf8.h"

namespace gt {
namespace {

std::size_t CountOf(std::string_view part, std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

bool IsOddCharacter(char c) {
  constexpr std::string_view kUsual = "\t\n\v\f\r\b\x1B";  // 1B begins the colors of terminals
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 || byte == 0x7F) && kUsual.find(c) == std::string_view::npos;
}

std::size_t CountOdd(std::string_view bytes) {
  std::size_t odd =
      static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), IsOddCharacter));
  if (!IsValidUtf8(bytes)) {
    odd += CountOf(kReplacementUtf8, ToValidUtf8(bytes)) - CountOf(kReplacementUtf8, bytes);
  }
  return odd;
}

void FindOddestFile(const UnitSample& sample, EpochSize& size) {
  struct Counts {
    std::size_t odd = 0, all = 0;
  };
  std::map<std::string, Counts> files;
  for (const UnitSample::Text& text : sample.texts) {
    Counts& counts = files[text.file];
    counts.odd += CountOdd(text.text);
    counts.all += text.text.size();
  }
  for (const auto& [file, counts] : files) {
    if (counts.all == 0) continue;
    const double share = static_cast<double>(counts.odd) / static_cast<double>(counts.all);
    if (share <= size.odd_share) continue;
    size.odd_share = share;
    size.oddest_file = file;
  }
}

}  // namespace

double ShareOfNoText(std::string_view bytes) {
  if (bytes.empty()) return 0;
  return static_cast<double>(CountOdd(bytes)) / static_cast<double>(bytes.size());
}

EpochSize MeasureText(const UnitSample& sample, const PackerOptions& options,
                      std::optional<double> documents) {
  EpochSize size;
  size.samples = sample.units;
  size.samples_are_counted = sample.units_are_counted;
  double tokens = 0, bytes = 0, texts = 0;
  std::vector<int32_t> encoded;
  for (const UnitSample::Text& text : sample.texts) {
    bytes += text.bytes;
    if (text.text.empty()) continue;  // the packer skips it
    texts += 1;
    encoded.clear();
    options.encode(text.text, encoded);
    tokens += static_cast<double>(encoded.size());
  }
  const double around = (options.bos_id ? 1.0 : 0.0) + (options.eos_id ? 1.0 : 0.0);
  size.tokens_are_counted = sample.is_everything;
  if (sample.is_everything) {
    size.tokens = tokens + around * documents.value_or(texts);
  } else if (bytes > 0) {
    const double share = texts / static_cast<double>(sample.texts.size());
    size.tokens = sample.bytes * tokens / bytes + around * documents.value_or(sample.units * share);
  }
  size.sequences = size.tokens / static_cast<double>(options.length);
  FindOddestFile(sample, size);
  return size;
}

}  // namespace gt
