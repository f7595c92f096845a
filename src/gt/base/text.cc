#include "gt/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace gt {
namespace {

template <typename Parts>
std::string JoinParts(const Parts& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

// ASCII only: option and pass names are ASCII, and std::tolower would depend on the locale.
std::string Normalized(std::string_view name) {
  std::string result(name);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// A dot between two digits belongs to a number: 1.7B is one component.
std::string_view LastComponent(std::string_view name) {
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] != '.') continue;
    const bool in_number =
        i > 0 && i + 1 < name.size() && IsDigit(name[i - 1]) && IsDigit(name[i + 1]);
    if (!in_number) return name.substr(i + 1);
  }
  return name;
}

// The numbers in a name, separated by spaces.
std::string NumbersIn(std::string_view name) {
  std::string numbers;
  for (const char c : name) {
    if (IsDigit(c)) {
      numbers += c;
    } else if (!numbers.empty() && numbers.back() != ' ') {
      numbers += ' ';
    }
  }
  return std::string(Trim(numbers));
}

// Leaving out numbers, or the end of a name, is not another number: h10 for h100, 30B for 30B-A3B.
bool HasOtherNumbers(std::string_view name, std::string_view candidate) {
  const std::string numbers = NumbersIn(name), others = NumbersIn(candidate);
  return !numbers.empty() && !others.empty() && numbers != others && !candidate.starts_with(name);
}

bool Negates(std::string_view component) {
  return component.starts_with("disable") || component.starts_with("no_");
}

constexpr std::size_t kFar = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kMostEdits = 3;

// More than one edit per `letters_per_edit` letters, and a suggestion does more harm than good.
std::size_t DistanceIfNear(std::string_view a, std::string_view b, std::size_t letters_per_edit) {
  const std::size_t tolerance =
      a.size() < 3 ? 0 : std::min(kMostEdits, (a.size() + 1) / letters_per_edit);
  const std::size_t distance = EditDistance(a, b);
  return distance <= tolerance ? distance : kFar;
}

// Doubled, so that a match of the last component alone ranks between two matches of the whole name.
std::size_t Remoteness(std::string_view name, std::string_view candidate) {
  const std::string_view last = LastComponent(name);
  const std::string_view candidate_last = LastComponent(candidate);
  if (HasOtherNumbers(name, candidate) || Negates(last) != Negates(candidate_last)) return kFar;
  std::size_t best = kFar;
  if (const std::size_t whole = DistanceIfNear(name, candidate, 3); whole != kFar) {
    best = 2 * whole;
  }
  if (const std::size_t part = DistanceIfNear(last, candidate_last, 4); part != kFar) {
    best = std::min(best, 2 * part + 1);
  }
  constexpr std::size_t kShortestPrefix = 3;
  if (last.size() >= kShortestPrefix && candidate_last.starts_with(last)) {
    best = std::min<std::size_t>(best, 5);
  }
  return best;
}

}  // namespace

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string Join(std::span<const std::string> parts, std::string_view separator) {
  return JoinParts(parts, separator);
}

std::string Join(std::span<const std::string_view> parts, std::string_view separator) {
  return JoinParts(parts, separator);
}

std::string WithThousands(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 4 : 3;
  for (size_t i = digits.size(); i > first; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string Counted(int64_t number, std::string_view noun) {
  return WithThousands(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string Quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
          result += fmt::format("\\u{:04X}", byte);
        } else {
          result += c;
        }
      }
    }
  }
  result += '"';
  return result;
}

std::string ShellWord(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-+./:,=@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string Wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  bool line_empty = true;
  for (const std::string& word : Split(text, ' ')) {
    if (!line_empty && column + 1 + word.size() > width) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
      line_empty = true;
    }
    if (!line_empty) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    line_empty = false;
  }
  return result;
}

std::optional<bool> BooleanFromText(std::string_view text) {
  const std::string lower = Normalized(text);
  if (lower == "true") return true;
  if (lower == "false") return false;
  return std::nullopt;
}

std::string LocalTimeText(std::time_t time) {
  std::tm parts = {};
  localtime_r(&time, &parts);
  std::array<char, 32> text = {};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts)};
}

std::size_t EditDistance(std::string_view a, std::string_view b) {
  // Rows of the dynamic program; a swap of neighbours looks two rows back.
  std::vector<std::size_t> two_back(b.size() + 1);
  std::vector<std::size_t> previous(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(two_back, previous);
    std::swap(previous, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substitution, previous[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_back[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string> NearestName(std::string_view name,
                                       std::span<const std::string> candidates) {
  // The edit distance is quadratic, and no name of ours comes near this length.
  constexpr std::size_t kLongestName = 256;
  if (name.empty() || name.size() > kLongestName) return std::nullopt;
  const std::string wanted = Normalized(name);
  const std::string* nearest = nullptr;
  std::size_t nearest_remoteness = kFar;
  for (const std::string& candidate : candidates) {
    const std::size_t remoteness = Remoteness(wanted, Normalized(candidate));
    if (remoteness < nearest_remoteness) {
      nearest_remoteness = remoteness;
      nearest = &candidate;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  return *nearest;
}

std::string DidYouMean(std::string_view name, std::span<const std::string> candidates,
                       std::string_view prefix) {
  const std::optional<std::string> nearest = NearestName(name, candidates);
  return nearest ? fmt::format("; did you mean {}{}?", prefix, *nearest) : "";
}

}  // namespace gt
