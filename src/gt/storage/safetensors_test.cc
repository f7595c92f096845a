#include "gt/storage/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gt/storage/safetensors_layout.h"
#include "gt/testing/temp_folder.h"

namespace gt::safetensors_test {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::ReadText;
using testing::TempFolder;

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file with this header, whatever it says, and that much data.
std::string FileWith(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

void Read(const std::string& file) { SafetensorsFile::FromBytes(BytesOf(file), "f.safetensors"); }

void ExpectBad(std::string_view header, size_t data_bytes,
               std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(header);
  ExpectError(ErrorCode::kBadSafetensors, {"f.safetensors"},
              [&] { Read(FileWith(header, data_bytes)); });
  ExpectError(ErrorCode::kBadSafetensors, parts, [&] { Read(FileWith(header, data_bytes)); });
}

TensorSource Source(std::string name, DType dtype, std::vector<int64_t> sizes,
                    std::string_view data) {
  return SourceOf(std::move(name), dtype, std::move(sizes), BytesOf(data));
}

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string text = FileWith(R"({"__metadata__":{"format":"pt"},)"
                                    R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},)"
                                    R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                                    R"("none":{"dtype":"I64","shape":[0,3],"data_offsets":[4,4]},)"
                                    R"("one":{"dtype":"U8","shape":[],"data_offsets":[12,13]}}   )",
                                    13);
  const auto file = SafetensorsFile::FromBytes(BytesOf(text), "f");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "none");
  EXPECT_EQ(file.tensors()[2].name, "b");
  EXPECT_EQ(file.tensors()[3].name, "one");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));

  const TensorEntry* b = file.Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kFloat32);
  EXPECT_EQ(b->sizes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(TextOf(b->bytes), "\4\5\6\7\10\11\12\13");
  EXPECT_EQ(file.Find("one")->sizes, std::vector<int64_t>{});
  EXPECT_EQ(file.Find("none")->bytes.size(), 0u);
  EXPECT_EQ(file.Find("c"), nullptr);
}

// A dtype that gt lacks spoils its own tensor, not the file.
TEST(SafetensorsTest, UnsupportedDTypesAreErrorsWhenAskedFor) {
  const std::string text = FileWith(R"({"x":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]},)"
                                    R"("y":{"dtype":"U16","shape":[1],"data_offsets":[2,4]},)"
                                    R"("z":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[4,7]}})",
                                    7);
  const auto file = SafetensorsFile::FromBytes(BytesOf(text), "f");
  EXPECT_EQ(file.Find("z")->dtype, DType::kFloat8E4M3);
  EXPECT_EQ(file.tensors()[0].dtype, DType::kUndefined);
  EXPECT_EQ(file.tensors()[0].stored_dtype, "F4");
  ExpectError(ErrorCode::kUnsupportedDType, {"f: tensor \"y\"", "U16"}, [&] { file.Find("y"); });
}

TEST(SafetensorsTest, RefusesDamagedLengths) {
  const auto read = [](const std::string& file) { return [file] { Read(file); }; };
  ExpectError(ErrorCode::kBadSafetensors, {"has 0 bytes"}, read(""));
  ExpectError(ErrorCode::kBadSafetensors, {"has 7 bytes", "cut short"},
              read(std::string("\2\0\0\0\0\0\0", 7)));
  std::string file = FileWith("{}", 0);
  file[0] = 3;
  ExpectError(ErrorCode::kBadSafetensors, {"should have 3 bytes", "only 2 follow"}, read(file));
  file[7] = '\x7f';
  ExpectError(ErrorCode::kBadSafetensors, {"9151314442816847875", "no safetensors file"},
              read(file));
  ExpectError(ErrorCode::kBadSafetensors, {"does not begin with a brace"}, read(FileWith("", 0)));
}

TEST(SafetensorsTest, RefusesHeadersThatAreNotTables) {
  ExpectBad(" {}", 0, {"does not begin with a brace"});
  ExpectBad("[]", 0, {"does not begin with a brace"});
  ExpectBad("{", 0, {"not JSON", "byte 9"});
  ExpectBad("{}x", 0, {"not JSON", "byte 10"});
  ExpectBad(std::string_view("{}\0", 3), 0, {"zero at byte 10"});
  ExpectBad("{\"a\xff\":1}", 0, {"not JSON"});
  ExpectBad(R"({"a":1})", 0, {"has 1 in place of an object for \"a\""});
  ExpectBad(R"({"a":[[]]})", 0, {"has a list in place of an object for \"a\""});
  ExpectBad(R"({"a":{},"a":{}})", 0, {"tensor \"a\" has no dtype"});
  ExpectBad(R"({"__metadata__":{"k":1}})", 0, {"metadata \"k\" is 1"});
  ExpectBad(R"({"__metadata__":{"k":{}}})", 0, {"metadata \"k\" is an object"});
  ExpectBad(R"({"__metadata__":{"k":"1","k":"2"}})", 0, {"metadata \"k\" occurs twice"});
  ExpectBad(R"({"__metadata__":{},"__metadata__":{}})", 0, {"\"__metadata__\" occurs twice"});
}

TEST(SafetensorsTest, RefusesDamagedFields) {
  ExpectBad(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, {"\"a\"", "\"F33\""});
  ExpectBad(R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4,
            {"dtype of tensor \"a\"", "4"});
  ExpectBad(R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, {"a list"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, {"shape", "-1"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, {"shape", "1.5"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[null],"data_offsets":[0,4]}})", 4, {"shape", "null"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, {"shape", "a list"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", 4, {"shape", "\"1\""});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
            {"shape", "18446744073709551615"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, {"3 data_offsets"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, {"1 data_offsets"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[true,4]}})", 4, {"true"});
  ExpectBad(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"\"a\" has no shape"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1]}})", 4, {"\"a\" has no data_offsets"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4,
            {"\"a\" has the field shape twice"});
  ExpectBad(R"({"a":{"dtype":"F32","strides":[1]}})", 4, {"\"a\" has the field \"strides\""});
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  ExpectBad(R"({"a":{"dtype":"F32","data_offsets":[0,4],"shape":[)" + ones + "]}}", 4,
            {"more than 64 numbers"});
}

TEST(SafetensorsTest, RefusesNamesThatOccurTwice) {
  const std::string a = R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]})";
  ExpectBad("{" + a + "," + a + "}", 1, {"\"a\" occurs twice"});
}

TEST(SafetensorsTest, RefusesRangesThatDoNotFit) {
  ExpectBad(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
            {"\"a\" is F32 [2]", "takes 8 bytes", "bytes 0 to 4"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
            {"\"a\"", "bytes 4 to 0", "before the beginning"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
            {"\"a\" ends at byte 8", "only 4", "cut short"});
  ExpectBad(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 6,
            {"end at byte 4", "there are 6", "the last 2 belong to none"});
  ExpectBad(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, {"no whole number"});
  ExpectBad(R"({"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
            {"\"a\"", "too large"});
  ExpectBad("{}", 1, {"end at byte 0", "there are 1"});
}

TEST(SafetensorsTest, RefusesHolesAndOverlaps) {
  const auto two = [](int begin) {
    return R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[)" + std::to_string(begin) + "," +
           std::to_string(begin + 4) + R"(]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  };
  Read(FileWith(two(4), 8));
  ExpectBad(two(3), 8, {"\"b\" begins at byte 3", "\"a\" ends at 4", "overlap"});
  ExpectBad(two(0), 8, {"\"b\" begins at byte 0", "\"a\" ends at 4", "overlap"});
  ExpectBad(two(5), 9, {"\"b\" begins at byte 5", "\"a\" ends at 4", "hole"});
  ExpectBad(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5,
            {"\"a\" begins at byte 1", "hole"});
  // An empty tensor inside another one.
  ExpectBad(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
            R"("b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
            4, {"\"b\" begins at byte 2", "overlap"});
}

// A cut at any place is noticed.
TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string file = FileWith(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  Read(file);
  for (size_t length = 0; length < file.size(); ++length) {
    ExpectError(ErrorCode::kBadSafetensors, {}, [&] { Read(file.substr(0, length)); });
  }
}

TEST(SafetensorsTest, WritesTheLayoutOfTheReferenceImplementation) {
  const TempFolder folder;
  const std::vector<TensorSource> tensors = {
      Source("z", DType::kUInt8, {3}, "xyz"),
      Source("w\"", DType::kBFloat16, {2, 1}, "abcd"),
      Source("a", DType::kBFloat16, {}, "ef"),
      Source("empty", DType::kFloat64, {0}, ""),
  };
  WriteSafetensors(folder / "f", tensors, {{"format", "pt"}});
  const std::string text = ReadText(folder / "f");
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("empty":{"dtype":"F64","shape":[0],"data_offsets":[0,0]},)"
                             R"("w\"":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},)"
                             R"("z":{"dtype":"U8","shape":[3],"data_offsets":[6,9]}})";
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof(length));
  EXPECT_EQ(length % 8, 0u);
  EXPECT_LT(length - header.size(), 8u);
  EXPECT_EQ(text.substr(8), header + std::string(length - header.size(), ' ') + "abcdefxyz");
  EXPECT_EQ(SafetensorsFile(folder / "f").Find("w\"")->sizes, (std::vector<int64_t>{2, 1}));
}

TEST(SafetensorsTest, WhatIsWrittenIsRead) {
  const TempFolder folder;
  std::string data(3 << 20, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 3);
  std::vector<TensorSource> tensors;
  const auto rows = static_cast<int64_t>(data.size() / 8);
  for (const DType dtype :
       {DType::kBool, DType::kUInt8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64,
        DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kFloat16, DType::kBFloat16, DType::kFloat32,
        DType::kFloat64, DType::kComplex64, DType::kUInt64}) {
    tensors.push_back(
        Source(std::string(DTypeName(dtype)), dtype, {rows, 8 / ItemSize(dtype)}, data));
  }
  // Pieces of any length, as they come from a device.
  tensors[3].write = [&](const ByteSink& sink) {
    for (size_t i = 0; i < data.size(); i += 70001)
      sink(BytesOf(data).subspan(i, std::min<size_t>(70001, data.size() - i)));
  };
  WriteSafetensors(folder / "f", tensors);
  const SafetensorsFile file(folder / "f");
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const TensorSource& tensor : tensors) {
    const TensorEntry* entry = file.Find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->dtype, tensor.dtype);
    EXPECT_EQ(entry->sizes, tensor.sizes);
    EXPECT_EQ(TextOf(entry->bytes), data) << tensor.name;
    file.WillNeed(entry->bytes);
    file.DontNeed(entry->bytes);
  }
}

// Whatever goes wrong, the old file stays and no temporary one does.
TEST(SafetensorsTest, FailedWritesLeaveNothingBehind) {
  const TempFolder folder;
  const std::vector<TensorSource> good = {Source("a", DType::kUInt8, {3}, "xyz")};
  WriteSafetensors(folder / "f", good);
  const std::string before = ReadText(folder / "f");

  const auto write = [&](TensorSource tensor) {
    return [&folder, tensor = std::move(tensor)] {
      WriteSafetensors(folder / "f",
                       std::vector<TensorSource>{Source("extra", DType::kUInt8, {1}, "x"), tensor});
    };
  };
  ExpectError(ErrorCode::kInternal, {"\"b\"", "more than its 2"},
              write(Source("b", DType::kUInt8, {2}, "xyz")));
  ExpectError(ErrorCode::kInternal, {"\"b\"", "3 of its 4"},
              write(Source("b", DType::kUInt8, {4}, "xyz")));
  ExpectError(ErrorCode::kInternal, {"two tensors", "\"extra\""},
              write(Source("extra", DType::kUInt8, {3}, "xyz")));
  ExpectError(ErrorCode::kUnsupportedDType, {"\"b\"", "c128"},
              write(Source("b", DType::kComplex128, {0}, "")));
  ExpectError(ErrorCode::kCannotWrite, {"UTF-8"}, write(Source("\xff", DType::kUInt8, {3}, "xyz")));
  TensorSource broken = Source("b", DType::kUInt8, {3}, "xyz");
  broken.write = [](const ByteSink&) { Fail(ErrorCode::kKernelFailed, "the device is gone"); };
  ExpectError(ErrorCode::kKernelFailed, {"the device is gone"}, write(broken));
  EXPECT_EQ(ReadText(folder / "f"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);

  ExpectError(ErrorCode::kCannotWrite, {"Not a directory", "a part of the path is a file"},
              [&] { WriteSafetensors(folder / "f/g", good); });
}

}  // namespace
}  // namespace gt::safetensors_test
