#include "gt/tokenizer/post_processor.h"

#include <array>

#include "gt/base/text.h"
#include "gt/tokenizer/vocabulary.h"

namespace gt {
namespace {

constexpr std::array<std::string_view, 5> kKnownPostProcessors = {
    "Sequence", "TemplateProcessing", "ByteLevel", "RobertaProcessing", "BertProcessing"};

int32_t IdOf(const JsonPart& part) {
  return static_cast<int32_t>(part.AsInteger(0, kLargestTokenId));
}

// ["<s>", 1] of the older processors.
int32_t IdOfPair(const JsonPart& part) {
  const std::vector<JsonPart> items = part.Items();
  if (items.size() != 2) part.Refuse("must be a token and its id");
  return IdOf(items[1]);
}

// A template lists special tokens and, once, the text itself.
void AddTemplate(const JsonPart& part, PostProcessor& around) {
  PostProcessor added;
  bool seen_text = false;
  for (const JsonPart& piece : part.At("single").Items()) {
    if (piece.Has("Sequence")) {
      if (seen_text || piece.At("Sequence").String("id") != "A") {
        piece.Refuse("a template for one text must hold the sequence A once and no other");
      }
      seen_text = true;
      continue;
    }
    const std::string name = piece.At("SpecialToken").String("id");
    const JsonPart special = part.At("special_tokens").At(name);
    std::vector<int32_t>& ids = seen_text ? added.after : added.before;
    for (const JsonPart& id : special.At("ids").Items()) ids.push_back(IdOf(id));
  }
  if (!seen_text) part.At("single").Refuse("the template has no place for the text itself");
  around.before.insert(around.before.begin(), added.before.begin(), added.before.end());
  around.after.insert(around.after.end(), added.after.begin(), added.after.end());
}

void Add(const JsonPart& part, int depth, PostProcessor& around) {
  const std::string type = part.Type(kKnownPostProcessors);
  if (type == "Sequence") {
    if (depth >= kDeepestSequence) part.Refuse("sequences are nested too deeply");
    for (const JsonPart& item : part.At("processors").Items()) Add(item, depth + 1, around);
  } else if (type == "TemplateProcessing") {
    AddTemplate(part, around);
  } else if (type != "ByteLevel") {  // which only moves offsets
    around.before.insert(around.before.begin(), IdOfPair(part.At("cls")));
    around.after.push_back(IdOfPair(part.At("sep")));
  }
}

}  // namespace

PostProcessor PostProcessor::FromJson(const JsonPart& part) {
  PostProcessor around;
  if (!part.IsNull()) Add(part, 0, around);
  return around;
}

}  // namespace gt
