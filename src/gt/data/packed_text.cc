#include <nlohmann/json.hpp>
#include <utility>

#include "gt/base/error.h"
#include "gt/data/batch_source.h"
#include "gt/data/packer.h"

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
        is_shuffled_(options.shuffle != LoaderShuffle::kOff),
        packer_(MakeUnits(files, options), {.length = options.length,
                                            .vocab_size = options.vocab_size,
                                            .bos_id = options.bos_id,
                                            .eos_id = options.eos_id,
                                            .encode = options.encode}) {}

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

  std::string Describe() const override { return std::string(EnumName(kind_)); }
  bool is_shuffled() const override { return is_shuffled_; }

 private:
  static std::unique_ptr<UnitSource> MakeUnits(const DataFiles& files,
                                               const LoaderOptions& options) {
    const UnitOrder order{.shuffle = options.shuffle != LoaderShuffle::kOff,
                          .seed = options.seed,
                          .rank = options.rank,
                          .world = options.world};
    return files.IsCompressed() ? MakeStreamedSource(files, order)
                                : MakeIndexedSource(files, order);
  }

  DataKind kind_;
  int64_t rows_, length_;
  bool is_shuffled_;
  Packer packer_;
};

}  // namespace

std::unique_ptr<BatchSource> MakePackedText(const DataFiles& files, const LoaderOptions& options) {
  GT_CHECK(options.encode != nullptr, "text needs a tokenizer");
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
