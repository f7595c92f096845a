#include "gt/storage/tensor_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"

namespace gt::tensor_pieces_test {
namespace {

using testing::ExpectError;
using Problems = std::vector<std::string>;
using Sizes = std::vector<int64_t>;

// Pieces of tensors of bytes, as files would have them.
class Pieces {
 public:
  explicit Pieces(const TensorIndex& index) : pieces_(index) {}

  void Add(std::string name, Sizes sizes, std::vector<uint8_t> bytes, DType dtype = DType::kUInt8) {
    bytes_.push_back(std::move(bytes));
    const auto stored = std::as_bytes(std::span(bytes_.back()));
    entries_.push_back({.name = std::move(name),
                        .dtype = dtype,
                        .sizes = std::move(sizes),
                        .bytes = stored,
                        .stored_dtype = "U8"});
    pieces_.Add("a file", entries_.back(), problems_);
  }

  // All there is to complain about.
  Problems Finish() {
    pieces_.Finish(problems_);
    return problems_;
  }

  std::vector<uint8_t> Read(const std::string& name, const TensorBox& box) const {
    std::vector<uint8_t> values(static_cast<size_t>(box.elements()));
    pieces_.Read(name, box, std::as_writable_bytes(std::span(values)), "here");
    return values;
  }

  const TensorPieces& pieces() const { return pieces_; }

 private:
  std::deque<std::vector<uint8_t>> bytes_;
  std::deque<TensorEntry> entries_;
  TensorPieces pieces_;
  Problems problems_;
};

const TensorIndex kOne = {{"x", {DType::kUInt8, {4, 2}}}};

TEST(TensorPiecesTest, NamesSayWhereAPieceBegins) {
  EXPECT_EQ(PieceName("model.x", Sizes{16, 0}), "model.x@16,0");
  const auto place = ParsePieceName("a@b@16,0,3");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->tensor, "a@b");
  EXPECT_EQ(place->offset, (Sizes{16, 0, 3}));
  for (const char* name : {"x", "x@", "x@-1", "x@+1", "x@1,", "x@,1", "x@01", "x@1 ", "x@0x1",
                           "x@99999999999999999999", "x@1,a"}) {
    EXPECT_FALSE(ParsePieceName(name).has_value()) << name;
  }
}

TEST(TensorPiecesTest, ReadsAcrossPieces) {
  Pieces pieces(kOne);
  pieces.Add("x@2,0", {2, 2}, {4, 5, 6, 7});
  pieces.Add("x@0,1", {2, 1}, {1, 3});
  pieces.Add("x@0,0", {2, 1}, {0, 2});
  EXPECT_EQ(pieces.Finish(), Problems{});
  EXPECT_EQ(*pieces.pieces().Info("x"), (TensorInfo{DType::kUInt8, {4, 2}}));
  EXPECT_EQ(pieces.pieces().Info("x@0,0"), nullptr);
  EXPECT_EQ(pieces.Read("x", TensorBox::All({4, 2})),
            (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(pieces.Read("x", {{4, 2}, {1, 1}, {2, 1}}), (std::vector<uint8_t>{3, 5}));
  EXPECT_EQ(pieces.Read("x", {{4, 2}, {4, 0}, {0, 2}}), std::vector<uint8_t>{});
}

// Ranks that hold the same, and ranks whose boxes overlap.
TEST(TensorPiecesTest, OverlapsDoNoHarm) {
  Pieces pieces(kOne);
  pieces.Add("x@0,0", {3, 2}, {0, 1, 2, 3, 4, 5});
  pieces.Add("x@0,0", {3, 2}, {0, 1, 2, 3, 4, 5});
  pieces.Add("x@1,0", {3, 2}, {2, 3, 4, 5, 6, 7});
  EXPECT_EQ(pieces.Finish(), Problems{});
  EXPECT_EQ(pieces.Read("x", TensorBox::All({4, 2})),
            (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// Three overlapping pieces have more elements than the tensor, and yet not all of them.
TEST(TensorPiecesTest, NoticesHoles) {
  Pieces pieces({{"x", {DType::kUInt8, {4, 2}}}, {"y", {DType::kUInt8, {3}}}});
  pieces.Add("x@0,0", {3, 2}, {0, 1, 2, 3, 4, 5});
  pieces.Add("x@1,0", {2, 2}, {2, 3, 4, 5});
  pieces.Add("x@3,0", {1, 1}, {6});
  EXPECT_EQ(pieces.Finish(),
            (Problems{"tensor \"x\", u8 [4, 2]: no file has the range [3:4, 1:2] of it",
                      "tensor \"y\", u8 [3]: no file has the range [0:3] of it"}));
}

TEST(TensorPiecesTest, NothingIsMissingOfAnEmptyTensor) {
  Pieces pieces({{"x", {DType::kUInt8, {0, 2}}}});
  EXPECT_EQ(pieces.Finish(), Problems{});
  EXPECT_EQ(pieces.Read("x", TensorBox::All({0, 2})), std::vector<uint8_t>{});
}

TEST(TensorPiecesTest, RefusesWhatIsNoPiece) {
  const auto problem_of = [](const std::string& name, const Sizes& sizes, DType dtype) {
    Pieces pieces(kOne);
    pieces.Add("x", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
    pieces.Add(name, sizes, {}, dtype);
    const Problems problems = pieces.Finish();
    return problems.size() == 1 ? problems.front() : "not one problem";
  };
  const auto u8 = DType::kUInt8;
  EXPECT_EQ(problem_of("y@0,0", {1, 1}, u8),
            "a file: \"y@0,0\" is a piece of no tensor of the manifest");
  EXPECT_EQ(problem_of("y", {1, 1}, u8), "a file: \"y\" is a piece of no tensor of the manifest");
  EXPECT_EQ(problem_of("x@3,0", {2, 2}, u8),
            "a file: \"x@3,0\" is u8 [2, 2], which is no piece of u8 [4, 2]");
  EXPECT_NE(problem_of("x@9223372036854775807,0", {1, 2}, u8).find("no piece of"),
            std::string::npos);
  EXPECT_NE(problem_of("x@0", {2}, u8).find("no piece of"), std::string::npos);
  EXPECT_NE(problem_of("x@0,0", {8}, u8).find("no piece of"), std::string::npos);
  EXPECT_NE(problem_of("x", {5, 2}, u8).find("no piece of"), std::string::npos);
  EXPECT_NE(problem_of("x@0,0", {1, 2}, DType::kInt8).find("i8 [1, 2], which is no piece of u8"),
            std::string::npos);
}

TEST(TensorPiecesTest, ReadRefusesOtherTensors) {
  Pieces pieces(kOne);
  pieces.Add("x", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(pieces.Finish(), Problems{});
  ExpectError(ErrorCode::kCheckpointMismatch, {"here: there is no tensor \"y\""}, [&] {
    pieces.Read("y", TensorBox::All({4, 2}));
  });
  ExpectError(ErrorCode::kCheckpointMismatch, {"tensor \"x\" is u8 [4, 2]", "[2, 4]"}, [&] {
    pieces.Read("x", TensorBox::All({2, 4}));
  });
  ExpectError(ErrorCode::kInternal, {"[1:5, 0:2]"}, [&] {
    pieces.Read("x", {{4, 2}, {1, 0}, {4, 2}});
  });
}

// The first version of the format has no index: what looks like a piece is a tensor of its own.
TEST(TensorPiecesTest, WithoutIndexEverythingIsWhole) {
  Pieces pieces({});
  pieces.Add("x@1", {2}, {0, 1});
  pieces.Add("x", {1}, {5});
  EXPECT_EQ(pieces.Finish(), Problems{});
  EXPECT_EQ(pieces.Read("x@1", TensorBox::All({2})), (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(pieces.Read("x", TensorBox::All({1})), std::vector<uint8_t>{5});
}

// 10,000 pieces in no order. Were they compared with each other, this would take minutes.
TEST(TensorPiecesTest, ManyPiecesAreNoProblem) {
  constexpr int64_t kSide = 100;
  std::vector<Sizes> offsets;
  for (int64_t i = 0; i < kSide * kSide; ++i) offsets.push_back({i / kSide * 2, i % kSide});
  std::shuffle(offsets.begin(), offsets.end(), std::mt19937(3));
  Pieces pieces({{"x", {DType::kUInt8, {2 * kSide, kSide}}}});
  for (const Sizes& offset : offsets) {
    const auto value = static_cast<uint8_t>(offset[0] + offset[1]);
    pieces.Add(PieceName("x", offset), {2, 1}, {value, static_cast<uint8_t>(value + 1)});
  }
  EXPECT_EQ(pieces.Finish(), Problems{});
  EXPECT_EQ(pieces.Read("x", {{2 * kSide, kSide}, {99, 40}, {2, 2}}),
            (std::vector<uint8_t>{139, 140, 140, 141}));
}

// Every other cell of every other row: no layout leaves such holes, only a made-up file.
TEST(TensorPiecesTest, GivesUpOnTooManyHoles) {
  constexpr int64_t kSide = 100;
  Pieces pieces({{"x", {DType::kUInt8, {kSide, kSide}}}});
  for (int64_t i = 0; i < kSide * kSide; i += 2) {
    if (i / kSide % 2 == 0) pieces.Add(PieceName("x", Sizes{i / kSide, i % kSide}), {1, 1}, {1});
  }
  EXPECT_EQ(pieces.Finish(),
            Problems{"tensor \"x\", u8 [100, 100]: its 2500 pieces are scattered over it with "
                     "too many gaps"});
}

}  // namespace
}  // namespace gt::tensor_pieces_test
