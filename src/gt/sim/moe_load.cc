#include "gt/sim/moe_load.h"

#include <charconv>
#include <optional>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

constexpr std::string_view kZipf = "zipf:";
// Beyond it the second expert gets a thousandth of the first one's tokens.
constexpr double kMaxExponent = 10.0;

std::optional<double> ExponentIn(std::string_view text) {
  text.remove_prefix(kZipf.size());
  double exponent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  // Written so that it refuses nan, too.
  if (!whole || !(exponent >= 0 && exponent <= kMaxExponent)) return std::nullopt;
  return exponent;
}

}  // namespace

std::string MoeLoadProblem(std::string_view text) {
  if (text == "router" || text == "balanced") return {};
  if (text.starts_with(kZipf)) {
    if (ExponentIn(text)) return {};
    return fmt::format("the exponent after zipf: must be a number from 0 to {}, such as zipf:1.0",
                       kMaxExponent);
  }
  if (text.ends_with(".json")) return {};
  return "expected router, balanced, zipf:S with an exponent S, or the path of a .json file";
}

MoeLoad ParseMoeLoad(std::string_view text) {
  if (std::string why = MoeLoadProblem(text); !why.empty()) {
    Fail(ErrorCode::kBadOptionValue, "debug.moe_load {}: {}", Quoted(text), why);
  }
  if (text == "router") return {};
  if (text == "balanced") return {.kind = MoeLoad::Kind::kBalanced};
  if (text.starts_with(kZipf)) return {.kind = MoeLoad::Kind::kZipf, .exponent = *ExponentIn(text)};
  return {.kind = MoeLoad::Kind::kFile, .path = std::string(text)};
}

}  // namespace gt
