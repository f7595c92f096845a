// The tokenizer that belongs to a model in a Hugging Face folder: leaving it there, and finding out
// which one it is. Text that is encoded by another tokenizer than the model was trained with gives
// plausible nonsense, so both ends go by what is written in the folder.
#pragma once

#include <string>

#include "gt/train/job_data.h"

namespace gt {

// Makes `folder`, which has the exported weights and config.json, say that the model's tokens are those
// of `codec`: as tokenizer.json, whatever the file was called, and the files that belong to it. If
// tokens are bytes, tokenizer.json is made, and a note in config.json says so. Nothing of a tokenizer
// that was there before stays.
// `original` is the Hugging Face folder the model came from, or empty.
void ExportTokenizer(const TextCodec& codec, const std::string& original,
                     const std::string& folder);

// The tokenizer of a Hugging Face folder, as --model.tokenizer_path would name it: the folder itself, or
// "bytes". Empty: it does not say.
std::string ExportedTokenizer(const std::string& folder);

}  // namespace gt
