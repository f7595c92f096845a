#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "gt/base/error.h"
#include "gt/data/batch_source.h"
#include "gt/data/permutation.h"
#include "gt/data/token_file.h"

namespace gt {
namespace {

// The order of the rows: a pure function of the step, so that any place can be entered directly.
class RowOrder {
 public:
  RowOrder(int64_t rows_of_epoch, bool shuffle, uint64_t seed)
      : rows_of_epoch_(rows_of_epoch), shuffle_(shuffle), seed_(seed), permutation_(0, 0) {}

  int64_t RowAt(int64_t position) {
    const int64_t epoch = position / rows_of_epoch_;
    const int64_t row = position % rows_of_epoch_;
    if (!shuffle_) return row;
    if (epoch != epoch_) {
      epoch_ = epoch;
      permutation_ = Permutation(rows_of_epoch_, CombineSeeds(seed_, static_cast<uint64_t>(epoch)));
    }
    return permutation_(row);
  }

 private:
  int64_t rows_of_epoch_;
  bool shuffle_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // that permutation_ is of
  Permutation permutation_;
};

// Several files as one line of tokens.
class TokenFiles {
 public:
  TokenFiles(const DataFiles& files, int64_t vocab_size) : vocab_size_(vocab_size) {
    for (const DataFile& file : files.files) {
      TokenFile opened(file, files.kind, vocab_size);
      if (opened.size() == 0) continue;
      begins_.push_back(size_);
      size_ += opened.size();
      files_.push_back(std::move(opened));
    }
    if (size_ == 0) {
      Fail(ErrorCode::kDataUnreadable, "the data in '{}' is empty: it has no tokens", files.name);
    }
  }

  int64_t size() const { return size_; }
  const std::vector<TokenFile>& files() const { return files_; }

  // Reads `count` tokens from `begin` on, around the end. The places in `out` where a file begins,
  // other than the first place, are added to `file_begins`.
  void Read(int64_t begin, int64_t count, int64_t* out, std::vector<int64_t>& file_begins) const {
    auto file = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) -
                                         begins_.begin() - 1);
    int64_t in_file = begin - begins_[file];
    for (int64_t done = 0; done < count;) {
      if (done > 0 && in_file == 0) file_begins.push_back(done);
      const int64_t part = std::min(count - done, files_[file].size() - in_file);
      files_[file].Read(in_file, part, vocab_size_, out + done);
      done += part;
      in_file = 0;
      file = (file + 1) % files_.size();
    }
  }

 private:
  int64_t vocab_size_;
  std::vector<TokenFile> files_;
  std::vector<int64_t> begins_;
  int64_t size_ = 0;
};

class TokenRows : public BatchSource {
 public:
  TokenRows(const DataFiles& data, const LoaderOptions& options)
      : name_(data.name),
        rows_(options.rows),
        length_(options.length),
        rank_(options.rank),
        world_(options.world),
        eos_id_(options.eos_id),
        files_(data, options.vocab_size),
        come_as_rows_(files_.files()[0].row_width() > 0),
        is_shuffled_(options.shuffle == LoaderShuffle::kOn ||
                     (options.shuffle == LoaderShuffle::kAuto && !come_as_rows_)),
        split_(options.split),
        rows_of_part_(Divide()),
        order_(std::max<int64_t>(1, rows_of_part_.size()), is_shuffled_, options.seed),
        row_(static_cast<std::size_t>(length_ + 1)) {
    CheckWidths();
    CheckSizes();
  }

  void Fill(TokenBatch& batch) override {
    const int64_t first = (step_ * world_ + rank_) * rows_;
    for (int64_t r = 0; r < rows_; ++r) {
      ReadRow(BeginOf(first + r));
      const int64_t at = r * length_;
      std::copy(row_.begin(), row_.end() - 1, batch.tokens.begin() + at);
      std::copy(row_.begin() + 1, row_.end(), batch.labels.begin() + at);
      WritePositions(batch.positions.data() + at);
    }
    ++step_;
  }

  nlohmann::json Place() const override { return {{"step", step_}}; }

  void Seek(const nlohmann::json& place) override {
    const int64_t step = PlaceNumber(place, "step");
    // Beyond this the number of the token would overflow.
    const double most = 4e18 / (static_cast<double>(world_) * static_cast<double>(rows_) *
                                static_cast<double>(length_ + 1));
    if (static_cast<double>(step) > most) {
      Fail(ErrorCode::kCheckpointMismatch,
           "the saved place in the data is step {}, which no run "
           "reaches",
           step);
    }
    step_ = step;
  }

  std::string Describe() const override {
    const std::string_view type = EnumName(files_.files()[0].type());
    if (!come_as_rows_) return fmt::format("a stream of {} tokens ({})", files_.size(), type);
    return fmt::format("{} rows of {} tokens ({})", AllRows(), length_ + 1, type);
  }

  EpochSize MeasureEpoch() const override {
    const auto rows = static_cast<double>(rows_of_part_.size());
    EpochSize size;
    size.what = come_as_rows_ ? "rows" : "windows";
    size.samples = rows;
    // In order, a stream goes on across its end.
    const bool is_endless = !come_as_rows_ && !is_shuffled_ && !split_.divides();
    size.tokens = come_as_rows_ || split_.divides() ? rows * static_cast<double>(length_)
                                                    : static_cast<double>(files_.size());
    size.sequences = is_endless ? size.tokens / static_cast<double>(length_) : rows;
    return size;
  }

  bool is_shuffled() const override { return is_shuffled_; }

 private:
  // The windows of a stream have every token but the first as a label. The last window wraps around
  // to the first tokens; with a split it is left out, because those may be of the other part.
  int64_t AllRows() const {
    if (come_as_rows_) return files_.size() / (length_ + 1);
    if (split_.divides()) return (files_.size() - 1) / length_;
    return std::max<int64_t>(1, (files_.size() - 1 + length_ - 1) / length_);
  }

  PartNumbers Divide() const {
    std::vector<int64_t> held_out;
    const int64_t rows = AllRows();
    for (int64_t row = 0; split_.divides() && row < rows; ++row) {
      const bool is_own = split_.HasRow(row);
      if (is_own == (split_.part == DataPart::kHeldOut)) held_out.push_back(row);
    }
    return {split_.part, rows, std::move(held_out)};
  }

  void CheckWidths() const {
    for (const TokenFile& file : files_.files()) {
      if ((file.row_width() > 0) != come_as_rows_) {
        Fail(ErrorCode::kBadData, "the files in '{}' are partly rows and partly streams: {} and {}",
             name_, files_.files()[0].path(), file.path());
      }
      if (come_as_rows_ && file.row_width() != length_ + 1) {
        Fail(ErrorCode::kBadData,
             "{}: its rows have {} tokens, but sequences of {} need rows of {} (one more, for the "
             "last label); set the sequence length to {}, or store the tokens as one stream",
             file.path(), file.row_width(), length_, length_ + 1, file.row_width() - 1);
      }
    }
  }

  void CheckSizes() const {
    if (files_.size() < 2) {
      Fail(ErrorCode::kDataUnreadable,
           "the data in '{}' is {} token, and predicting one from another needs at least 2", name_,
           files_.size());
    }
    RequireItems(split_, rows_of_part_.size(), AllRows(), world_,
                 fmt::format("rows of {} tokens", length_ + 1), name_);
  }

  // The first token of the row at `position` in the order of all epochs.
  int64_t BeginOf(int64_t position) {
    // In order, a stream goes on across its end, so that no row is repeated or cut.
    if (!come_as_rows_ && !is_shuffled_ && !split_.divides()) {
      return position * length_ % files_.size();
    }
    return rows_of_part_(order_.RowAt(position)) * (come_as_rows_ ? length_ + 1 : length_);
  }

  void ReadRow(int64_t begin) {
    document_begins_.clear();
    files_.Read(begin, length_ + 1, row_.data(), document_begins_);
  }

  void WritePositions(int64_t* positions) {
    auto next_begin = document_begins_.begin();
    int64_t position = 0;
    for (int64_t i = 0; i < length_; ++i) {
      if (!come_as_rows_ && i > 0 && eos_id_ && row_[i - 1] == *eos_id_) position = 0;
      if (next_begin != document_begins_.end() && *next_begin == i) {
        position = 0;
        ++next_begin;
      }
      positions[i] = position++;
    }
  }

  std::string name_;
  int64_t rows_, length_, rank_, world_;
  std::optional<int32_t> eos_id_;
  TokenFiles files_;
  bool come_as_rows_;
  bool is_shuffled_;
  DataSplit split_;
  PartNumbers rows_of_part_;
  RowOrder order_;
  int64_t step_ = 0;
  std::vector<int64_t> row_;
  std::vector<int64_t> document_begins_;  // in row_, where a file begins
};

}  // namespace

std::unique_ptr<BatchSource> MakeTokenRows(const DataFiles& files, const LoaderOptions& options) {
  return std::make_unique<TokenRows>(files, options);
}

}  // namespace gt
