#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gt/base/error.h"
#include "gt/data/batch_source.h"
#include "gt/data/document_check.h"
#include "gt/data/packer.h"
#include "gt/data/text_epoch.h"

namespace gt {
namespace {

void CheckSpecialId(std::optional<int32_t> id, const char* name, int64_t vocab_size) {
  if (!id || (*id >= 0 && *id < vocab_size)) return;
  Fail(ErrorCode::kTokenOutOfVocabulary,
       "the {} token of the tokenizer has the id {}, but the model's vocabulary has {} entries",
       name, *id, vocab_size);
}

class PackedText : public BatchSource {
 public:
  PackedText(const DataFiles& files, const LoaderOptions& options)
      : kind_(files.kind),
        rows_(options.rows),
        length_(options.length),
        order_{.shuffle = options.shuffle != LoaderShuffle::kOff,
               .seed = options.seed,
               .rank = options.rank,
               .world = options.world},
        files_(static_cast<double>(std::count_if(files.files.begin(), files.files.end(),
                                                 [](const DataFile& f) { return f.size > 0; }))),
        is_divided_(options.split.divides()),
        options_{.length = options.length,
                 .vocab_size = options.vocab_size,
                 .bos_id = options.bos_id,
                 .eos_id = options.eos_id,
                 .encode = options.encode},
        packer_(MakeUnits(files, options), options_) {}

  void Fill(TokenBatch& batch) override {
    for (int64_t at = 0; at < rows_ * length_; at += length_) {
      packer_.NextRow(batch.tokens.data() + at, batch.labels.data() + at,
                      batch.positions.data() + at);
    }
  }

  nlohmann::json Place() const override {
    const PackerPlace& place = packer_.place();
    return {{"epoch", place.unit.epoch}, {"unit", place.unit.unit},
            {"file", place.unit.file},   {"block", place.unit.block},
            {"token", place.token},      {"block_begin", place.unit.block_begin}};
  }

  void Seek(const nlohmann::json& place) override {
    packer_.Seek({.unit = {.epoch = PlaceNumber(place, "epoch"),
                           .unit = PlaceNumber(place, "unit"),
                           .file = PlaceNumber(place, "file"),
                           .block = PlaceNumber(place, "block"),
                           .block_begin = PlaceNumber(place, "block_begin")},
                  .token = PlaceNumber(place, "token")});
  }

  EpochSize MeasureEpoch() const override {
    // If pieces continue, a file is one document, or several if some of its pieces are held out.
    const bool joins_pieces = kind_ == DataKind::kText && order_.ContinuesFiles();
    std::optional<double> documents;
    if (joins_pieces && !is_divided_) documents = files_;
    EpochSize size = MeasureText(packer_.source().Sample(kSampleBytes), options_, documents);
    if (joins_pieces && is_divided_) size.tokens_are_counted = false;
    size.what = UnitsText(kind_);
    return size;
  }

  std::string Describe() const override { return std::string(EnumName(kind_)); }
  bool is_shuffled() const override { return order_.shuffle; }

 private:
  static constexpr std::size_t kSampleBytes = std::size_t{128} << 10;

  std::unique_ptr<UnitSource> MakeUnits(const DataFiles& files,
                                        const LoaderOptions& options) const {
    const UnitChoice choice{.split = options.split, .text_field = options.text_field};
    // The loader of the training part has checked the lines already.
    const bool is_checked = options.split.part == DataPart::kHeldOut;
    if (files.kind == DataKind::kJsonl && !is_checked) CheckDocuments(files, options.text_field);
    return files.IsCompressed() ? MakeStreamedSource(files, order_, choice)
                                : MakeIndexedSource(files, order_, choice);
  }

  DataKind kind_;
  int64_t rows_, length_;
  UnitOrder order_;
  double files_;  // that are not empty
  bool is_divided_;
  PackerOptions options_;
  Packer packer_;
};

}  // namespace

std::unique_ptr<BatchSource> MakePackedText(const DataFiles& files, const LoaderOptions& options) {
  GT_CHECK(options.encode != nullptr, "text needs a tokenizer");
  if (options.tokenizer_size > options.vocab_size) {
    Fail(ErrorCode::kTokenOutOfVocabulary,
         "the tokenizer makes ids up to {}, but the model's vocabulary has {} entries; use the "
         "tokenizer that the model was made for (--model.tokenizer_path), or a larger "
         "--model.vocab_size",
         options.tokenizer_size - 1, options.vocab_size);
  }
  CheckSpecialId(options.bos_id, "bos", options.vocab_size);
  CheckSpecialId(options.eos_id, "eos", options.vocab_size);
  return std::make_unique<PackedText>(files, options);
}

int64_t PlaceNumber(const nlohmann::json& place, const char* key) {
  const auto found = place.find(key);
  if (found != place.end() && found->is_number_integer()) {
    // Numbers beyond 63 bits would turn negative.
    const auto value = found->get<int64_t>();
    if (value >= 0) return value;
  }
  Fail(ErrorCode::kCheckpointMismatch,
       "the saved place in the data has no usable \"{}\"; it was not saved by this kind of data",
       key);
}

}  // namespace gt
