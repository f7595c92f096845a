#include "gt/tokenizer/byte_tokenizer.h"

#include <nlohmann/json.hpp>

#include "gt/tokenizer/byte_level.h"

namespace gt {

std::string ByteTokenizerJson() {
  using Json = nlohmann::ordered_json;
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[std::string(CharacterOfByte(static_cast<unsigned char>(byte)))] = byte;
  }
  const auto byte_level = [](bool option) {
    return Json{{"type", "ByteLevel"},
                {"add_prefix_space", option},
                {"trim_offsets", option},
                {"use_regex", option}};
  };
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", Json::array()},
                          {"normalizer", nullptr},
                          // The text is one word: words would only matter to merges.
                          {"pre_tokenizer", byte_level(false)},
                          {"post_processor", nullptr},
                          // Decoders have no use for these, but the format has them.
                          {"decoder", byte_level(true)},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false},
                            {"vocab", vocabulary},
                            {"merges", Json::array()}}}};
  return tokenizer.dump(2) + "\n";
}

std::string ByteTokenizerConfigJson() {
  const nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                         {"clean_up_tokenization_spaces", false}};
  return config.dump(2) + "\n";
}

}  // namespace gt
