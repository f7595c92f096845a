// A tokenizer.json for models whose tokens are bytes, for other programs: token i is the byte i.
// Valid UTF-8 is encoded as its bytes and decoded back exactly. Other bytes become U+FFFD, as that
// format demands; gt itself keeps them, because config.json tells it that tokens are bytes.
#pragma once

#include <string>

namespace gt {

// tokenizer.json: a byte-level vocabulary of the 256 bytes, without merges and special tokens.
std::string ByteTokenizerJson();

// The tokenizer_config.json beside it: makes transformers use tokenizer.json as it is, whatever the
// model family, and keep the spaces of decoded text.
std::string ByteTokenizerConfigJson();

}  // namespace gt
