#include "gt/placement/device_mesh.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "gt/base/error.h"

namespace gt::device_mesh_test {
namespace {

using namespace placement;

TEST(DeviceMesh, ReadsAndPrintsSizes) {
  for (const char* text : {"1", "8", "4x8", "2x3x4", "2x2x2x2"}) {
    EXPECT_EQ(DeviceMesh::Parse(text).ToString(), text);
  }
  const DeviceMesh mesh = DeviceMesh::Parse("2x3x4");
  EXPECT_EQ(mesh.axes(), 3);
  EXPECT_EQ(mesh.size(1), 3);
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_EQ(mesh.Size(0b101), 8);
  EXPECT_EQ(mesh.Size(0), 1);
}

TEST(DeviceMesh, RejectsWhatIsNoMesh) {
  for (const char* text : {"", "x", "8x", "x8", "8x8x", "8 x 8", "8X8", "-8", "0", "0x8", "8x1",
                           "2x2x2x2x2", "2000000", "4096x4096", "99999999999999999999"}) {
    EXPECT_THROW(DeviceMesh::Parse(text), Error) << text;
  }
}

// Neighbours along the last axis are on one node as long as it has room.
TEST(DeviceMesh, FindsWhereGroupsAre) {
  const DeviceMesh nodes = DeviceMesh::Parse("4x8");
  EXPECT_EQ(nodes.Span(0b10, 8), (GroupSpan{1, 8}));
  EXPECT_EQ(nodes.Span(0b01, 8), (GroupSpan{4, 1}));
  EXPECT_EQ(nodes.Span(0b11, 8), (GroupSpan{4, 8}));
  const DeviceMesh inside = DeviceMesh::Parse("2x4");
  EXPECT_EQ(inside.Span(0b01, 8), (GroupSpan{1, 2}));
  EXPECT_EQ(inside.Span(0b10, 8), (GroupSpan{1, 4}));
  const DeviceMesh across = DeviceMesh::Parse("4x4");
  EXPECT_EQ(across.Span(0b01, 8), (GroupSpan{2, 2}));
}

// All factorizations in every order, and no more axes than allowed.
TEST(DeviceMesh, EnumeratesMeshes) {
  auto texts = [](int64_t ranks, int max_axes) {
    std::set<std::string> all;
    for (const DeviceMesh& mesh : MeshesOf(ranks, max_axes)) {
      EXPECT_EQ(mesh.ranks(), ranks);
      EXPECT_TRUE(all.insert(mesh.ToString()).second) << "twice: " << mesh.ToString();
    }
    return all;
  };
  EXPECT_EQ(texts(8, 2), (std::set<std::string>{"8", "2x4", "4x2"}));
  EXPECT_EQ(texts(8, 3), (std::set<std::string>{"8", "2x4", "4x2", "2x2x2"}));
  EXPECT_EQ(texts(12, 2), (std::set<std::string>{"12", "2x6", "6x2", "3x4", "4x3"}));
  EXPECT_EQ(texts(7, 4), (std::set<std::string>{"7"}));
  EXPECT_EQ(texts(1, 4), (std::set<std::string>{"1"}));
}

}  // namespace
}  // namespace gt::device_mesh_test
