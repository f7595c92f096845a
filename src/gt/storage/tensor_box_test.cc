#include "gt/storage/tensor_box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"

namespace gt::tensor_box_test {
namespace {

using testing::ExpectError;
using Sizes = std::vector<int64_t>;

class RandomBoxes {
 public:
  explicit RandomBoxes(unsigned seed) : random_(seed) {}

  int64_t Number(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  Sizes Whole() {
    Sizes sizes(static_cast<size_t>(Number(0, 4)));
    for (int64_t& size : sizes) size = Number(1, 12);
    return sizes;
  }

  TensorBox In(const Sizes& whole) {
    TensorBox box = TensorBox::All(whole);
    for (size_t i = 0; i < whole.size(); ++i) {
      const bool is_all = Number(0, 2) == 0;  // often, since that makes longer runs
      const bool is_empty = Number(0, 15) == 0;
      if (is_all) continue;
      box.offset[i] = Number(0, whole[i] - 1);
      box.sizes[i] = is_empty ? 0 : Number(1, whole[i] - box.offset[i]);
    }
    return box;
  }

 private:
  std::mt19937 random_;
};

// The numbers, in the whole tensor, of the elements of the box, in its own order.
std::vector<int32_t> ElementsOf(const TensorBox& box) {
  std::vector<int32_t> elements;
  for (int64_t i = 0; i < box.elements(); ++i) {
    int64_t rest = i;
    int64_t stride = 1;
    int64_t element = 0;
    for (size_t dim = box.whole.size(); dim-- > 0;) {
      element += (box.offset[dim] + rest % box.sizes[dim]) * stride;
      rest /= box.sizes[dim];
      stride *= box.whole[dim];
    }
    elements.push_back(static_cast<int32_t>(element));
  }
  return elements;
}

TEST(TensorBoxTest, AllIsWhole) {
  const TensorBox box = TensorBox::All({4, 6});
  EXPECT_TRUE(box.IsWhole());
  EXPECT_TRUE(box.IsInside());
  EXPECT_EQ(box.elements(), 24);
  EXPECT_EQ(BoxText(box), "[0:4, 0:6]");
  EXPECT_EQ(TensorBox::All({}).elements(), 1);
  EXPECT_EQ(BoxText(TensorBox::All({})), "[]");
}

TEST(TensorBoxTest, KnowsWhatIsInside) {
  EXPECT_TRUE((TensorBox{{4, 6}, {4, 0}, {0, 6}}.IsInside()));
  for (const TensorBox& box :
       {TensorBox{{4, 6}, {3, 0}, {2, 6}}, TensorBox{{4, 6}, {-1, 0}, {2, 6}},
        TensorBox{{4, 6}, {0, 0}, {2, -1}}, TensorBox{{4, 6}, {0}, {2, 6}},
        TensorBox{{4, 6}, {0, 0}, {2}}, TensorBox{{4}, {INT64_MAX}, {1}},
        TensorBox{{4}, {1}, {INT64_MAX}}}) {
    EXPECT_FALSE(box.IsInside()) << BoxText(box);
  }
}

TEST(TensorBoxTest, IntersectHasWhatBothHave) {
  const TensorBox rows = {{4, 6}, {1, 0}, {2, 6}};
  const TensorBox columns = {{4, 6}, {0, 4}, {4, 2}};
  EXPECT_EQ(rows.Intersect(columns), (TensorBox{{4, 6}, {1, 4}, {2, 2}}));
  const TensorBox last_row = {{4, 6}, {3, 0}, {1, 6}};
  EXPECT_EQ(rows.Intersect(last_row).elements(), 0);
}

// What is left and what was taken out are the box, each element once.
TEST(TensorBoxTest, WithoutLeavesTheRest) {
  RandomBoxes random(1);
  for (int round = 0; round < 500; ++round) {
    const Sizes whole = random.Whole();
    const TensorBox box = random.In(whole);
    const TensorBox other = random.In(whole);
    std::vector<int32_t> found = ElementsOf(box.Intersect(other));
    const std::vector<TensorBox> left = box.Without(other);
    EXPECT_LE(left.size(), std::max<size_t>(2 * whole.size(), 1));
    for (const TensorBox& rest : left) {
      EXPECT_GT(rest.elements(), 0);
      const auto elements = ElementsOf(rest);
      found.insert(found.end(), elements.begin(), elements.end());
    }
    std::sort(found.begin(), found.end());
    ASSERT_EQ(found, ElementsOf(box)) << BoxText(box) << " without " << BoxText(other);
  }
}

// The elements of the pieces, one after another, are those of the box in its own order: so each piece
// is one run of its memory.
TEST(TensorBoxTest, PiecesAreTheBoxInOrder) {
  RandomBoxes random(3);
  size_t most_pieces = 0;
  for (int round = 0; round < 500; ++round) {
    const TensorBox box = random.In(random.Whole());
    const int64_t most = random.Number(1, 50);
    std::vector<int32_t> found;
    const std::vector<TensorBox> pieces = SplitBox(box, most);
    for (const TensorBox& piece : pieces) {
      EXPECT_TRUE(piece.IsInside());
      EXPECT_LE(piece.elements(), most);
      EXPECT_GT(piece.elements(), 0);
      const auto elements = ElementsOf(piece);
      found.insert(found.end(), elements.begin(), elements.end());
    }
    ASSERT_EQ(found, ElementsOf(box)) << BoxText(box) << " in pieces of " << most;
    most_pieces = std::max(most_pieces, pieces.size());
  }
  EXPECT_GT(most_pieces, 100);
}

template <typename T>
void ExpectCopiesLikeElementByElement(const TensorBox& from, const TensorBox& to) {
  const auto have = ElementsOf(from);
  const auto want = ElementsOf(to);
  const std::vector<T> source(have.begin(), have.end());
  std::vector<T> expected(want.begin(), want.end());
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::binary_search(have.begin(), have.end(), want[i])) expected[i] = T(-1);
  }
  std::vector<T> copied(want.size(), T(-1));
  CopyBox(from, std::as_bytes(std::span(source)), to, std::as_writable_bytes(std::span(copied)),
          sizeof(T));
  ASSERT_EQ(copied, expected) << BoxText(from) << " to " << BoxText(to);
}

TEST(TensorBoxTest, CopiesWhatBoxesHaveInCommon) {
  RandomBoxes random(2);
  int64_t copied = 0;
  for (int round = 0; round < 1000; ++round) {
    const Sizes whole = random.Whole();
    const TensorBox from = random.In(whole);
    const TensorBox to = random.In(whole);
    ExpectCopiesLikeElementByElement<int16_t>(from, to);
    ExpectCopiesLikeElementByElement<double>(from, to);
    copied += from.Intersect(to).elements();
  }
  EXPECT_GT(copied, 5000);
}

TEST(TensorBoxTest, CopyRefusesWhatDoesNotFit) {
  std::vector<std::byte> bytes(24);
  const TensorBox box = TensorBox::All({4, 6});
  const auto copy = [&](const TensorBox& from, const TensorBox& to, size_t item_bytes) {
    std::vector<std::byte> target(24);
    CopyBox(from, bytes, to, target, item_bytes);
  };
  copy(box, box, 1);
  ExpectError(ErrorCode::kInternal, {"[0:4, 0:6]", "24 bytes"}, [&] { copy(box, box, 2); });
  ExpectError(ErrorCode::kInternal, {"[6, 4]"}, [&] { copy(box, TensorBox::All({6, 4}), 1); });
  const TensorBox outside = {{4, 6}, {1, 0}, {4, 6}};
  ExpectError(ErrorCode::kInternal, {"[1:5, 0:6] is not inside"}, [&] { copy(outside, box, 1); });
}

}  // namespace
}  // namespace gt::tensor_box_test
