// Arbitrary bytes as a tokenizer.json: an error, or a tokenizer that encodes and decodes anything.
// Run with ./gt fuzz tokenizer 600.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/tokenizer.h"

namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void Use(const gt::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.Encode(text, true);
  Require(tokenizer.Encode(text, true) == ids, "the second time gives other ids");
  for (const bool skip : {true, false}) {
    Require(gt::IsValidUtf8(tokenizer.Decode(ids, skip)), "decoded text is not UTF-8");
  }
  gt::StreamDecoder stream(tokenizer);
  for (const int32_t id : ids) {
    Require(gt::IsValidUtf8(stream.Push(id)), "a streamed piece is not UTF-8");
  }
  Require(gt::IsValidUtf8(stream.Finish()), "the last streamed piece is not UTF-8");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const gt::Tokenizer tokenizer = gt::Tokenizer::FromJson(bytes, "fuzz");
    constexpr std::size_t kTextBytes = 48;
    Use(tokenizer, bytes.substr(0, kTextBytes));
    Use(tokenizer, bytes.substr(size - std::min(size, kTextBytes)));
    Use(tokenizer, "ab abab <s>\xE4\xBD\xA0 12'S\n\n  \xFF");
  } catch (const gt::Error& error) {
    Require(error.code() != gt::ErrorCode::kInternal, error.what());
  }
  return 0;
}
