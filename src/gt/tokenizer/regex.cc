#include "gt/tokenizer/regex.h"

#include <algorithm>
#include <array>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/regex_syntax.h"

#ifdef GT_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace gt {

#ifdef GT_HAVE_PCRE2
namespace {

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 256> buffer = {};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

template <auto kFree>
struct Freeing {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Freeing<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freeing<pcre2_compile_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freeing<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freeing<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freeing<pcre2_jit_stack_free>>;

}  // namespace

struct RegexScratch::Data {
  MatchData match{pcre2_match_data_create(1, nullptr)};  // only the whole match is of interest
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack;
};

struct Regex::Data {
  std::string pattern;  // as the user wrote it
  bool is_literal = false;
  Code code;
  bool compiled_to_machine_code = false;
};

RegexScratch::RegexScratch() : data_(std::make_unique<Data>()) {
  GT_CHECK(data_->match != nullptr && data_->context != nullptr, "out of memory");
  // Repeated groups take machine stack for each repetition; it grows up to this much as needed.
  constexpr std::size_t kStackAtFirst = 32 << 10;
  constexpr std::size_t kStackAtMost = 64 << 20;
  data_->stack.reset(pcre2_jit_stack_create(kStackAtFirst, kStackAtMost, nullptr));
  if (data_->stack != nullptr) {
    pcre2_jit_stack_assign(data_->context.get(), nullptr, data_->stack.get());
  }
}

Regex Regex::FromPattern(std::string_view pattern) {
  const std::string translated = PatternFromOniguruma(pattern);
  CompileContext context(pcre2_compile_context_create(nullptr));
  GT_CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto data = std::make_unique<Data>();
  data->pattern = pattern;
  // Never \C: it would stop in the middle of a character.
  data->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                 &error, &offset, context.get()));
  if (data->code == nullptr) {
    Fail(ErrorCode::kBadTokenizer, "the pattern {} is not a regular expression: {} (at {} of {})",
         Quoted(pattern), ErrorText(error), offset, Quoted(translated));
  }
  data->compiled_to_machine_code = pcre2_jit_compile(data->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(data));
}

std::optional<Match> Regex::SearchPattern(std::string_view text, std::size_t from,
                                          RegexScratch& scratch) const {
  pcre2_match_data* match = scratch.data_->match.get();
  pcre2_match_context* context = scratch.data_->context.get();
  // Enough for patterns that look at each character a few dozen times. A pattern that tries
  // exponentially many ways is stopped after some tenths of a second.
  const std::size_t steps = 10'000'000 + std::min<std::size_t>(64 * text.size(), 4'000'000'000);
  pcre2_set_match_limit(context, static_cast<uint32_t>(steps));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  constexpr uint32_t kOptions =
      PCRE2_NO_UTF_CHECK;  // the text is valid, and checking costs as much
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (data_->compiled_to_machine_code) {
    result =
        pcre2_jit_match(data_->code.get(), subject, text.size(), from, kOptions, match, context);
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
    result = pcre2_match(data_->code.get(), subject, text.size(), from, kOptions | PCRE2_NO_JIT,
                         match, context);
  }
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    Fail(
        ErrorCode::kBadTokenizer,
        "the pattern {} cannot be matched against a text of {} bytes: {}; simplify the pattern, or "
        "encode the text in smaller pieces",
        Quoted(data_->pattern), text.size(), ErrorText(result));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
  return Match{bounds[0], bounds[1]};
}

#else

struct RegexScratch::Data {};
struct Regex::Data {
  std::string pattern;
  bool is_literal = false;
};

RegexScratch::RegexScratch() = default;

Regex Regex::FromPattern(std::string_view pattern) {
  Fail(ErrorCode::kBadTokenizer,
       "the tokenizer splits text by the pattern {}, but this gt was built without PCRE2; install "
       "libpcre2-dev and build it again",
       Quoted(pattern));
}

std::optional<Match> Regex::SearchPattern(std::string_view, std::size_t, RegexScratch&) const {
  return std::nullopt;
}

#endif

RegexScratch::~RegexScratch() = default;

Regex::Regex(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::FromLiteral(std::string_view text) {
  auto data = std::make_unique<Data>();
  data->pattern = text;
  data->is_literal = true;
  return Regex(std::move(data));
}

std::optional<Match> Regex::Search(std::string_view text, std::size_t from,
                                   RegexScratch& scratch) const {
  if (!data_->is_literal) return SearchPattern(text, from, scratch);
  const std::size_t begin = text.find(data_->pattern, from);
  if (begin == std::string_view::npos) return std::nullopt;
  return Match{begin, begin + data_->pattern.size()};
}

std::size_t Regex::AfterCharacter(std::string_view text, std::size_t position) {
  return position < text.size() ? position + Utf8Length(text[position]) : position + 1;
}

}  // namespace gt
