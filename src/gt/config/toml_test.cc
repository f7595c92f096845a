#include "gt/config/toml.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"

namespace gt::toml::toml_test {
namespace {

template <typename T>
T ValueOf(const std::string& text) {
  const Document document = Parse("key = " + text, "t.toml");
  return std::get<T>(document.entries.at(0).value.data);
}

std::string ErrorOf(const std::string& text, ErrorCode code = ErrorCode::kMalformedToml) {
  try {
    Parse(text, "t.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(Toml, ReadsScalars) {
  EXPECT_EQ(ValueOf<bool>("true"), true);
  EXPECT_EQ(ValueOf<bool>("false # comment"), false);
  EXPECT_EQ(ValueOf<std::int64_t>("-12"), -12);
  EXPECT_EQ(ValueOf<std::int64_t>("+1_000"), 1000);
  EXPECT_EQ(ValueOf<std::int64_t>("0"), 0);
  EXPECT_EQ(ValueOf<std::int64_t>("0x1F"), 31);
  EXPECT_EQ(ValueOf<std::int64_t>("0o17"), 15);
  EXPECT_EQ(ValueOf<std::int64_t>("0b101"), 5);
  EXPECT_EQ(ValueOf<std::int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(ValueOf<std::int64_t>("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(ValueOf<double>("8e-4"), 8e-4);
  EXPECT_EQ(ValueOf<double>("-0.5"), -0.5);
  EXPECT_EQ(ValueOf<double>("1e-08"), 1e-8);
}

TEST(Toml, ReadsStrings) {
  EXPECT_EQ(ValueOf<std::string>(R"("a # b")"), "a # b");
  EXPECT_EQ(ValueOf<std::string>(R"("\"\\\n\t\u00e9\U0001F600")"), "\"\\\n\té😀");
  EXPECT_EQ(ValueOf<std::string>(R"('C:\new')"), "C:\\new");
  EXPECT_EQ(ValueOf<std::string>(R"("")"), "");
}

TEST(Toml, ReadsListsOverSeveralLines) {
  const Array list = ValueOf<Array>("[ # why\n  \"a\", # first\n  'b',\n]");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(std::get<std::string>(list[1].data), "b");
  EXPECT_TRUE(ValueOf<Array>("[]").empty());
}

TEST(Toml, PathsIncludeSectionsAndLinesCountFromOne) {
  const Document document = Parse(
      "\xEF\xBB\xBFtop = 1\r\n"
      "# comment\r\n"
      "a.b = 2\n"
      "[ x . y ] # comment\n"
      "\"c\" = [\n1,\n2]\n"
      "t = { d = 3, e.f = 4 }",
      "t.toml");
  ASSERT_EQ(document.entries.size(), 5u);
  EXPECT_EQ(document.entries[0].path, "top");
  EXPECT_EQ(document.entries[0].line, 1);
  EXPECT_EQ(document.entries[1].path, "a.b");
  EXPECT_EQ(document.entries[1].line, 3);
  EXPECT_EQ(document.entries[2].path, "x.y.c");
  EXPECT_EQ(document.entries[2].line, 5);
  EXPECT_EQ(document.entries[3].path, "x.y.t.d");
  EXPECT_EQ(document.entries[4].path, "x.y.t.e.f");
  EXPECT_EQ(document.entries[4].line, 8);
  ASSERT_EQ(document.sections.size(), 1u);
  EXPECT_EQ(document.sections[0].line, 4);
}

TEST(Toml, SaysWhereAndWhatIsMalformed) {
  EXPECT_EQ(ErrorOf("a = 1\nb"), "t.toml:2: expected = after the key b, found the end of the file");
  EXPECT_EQ(ErrorOf("\n= 1"), "t.toml:2: expected a key, found \"= 1\"");
  EXPECT_EQ(ErrorOf("a ="), "t.toml:1: expected a value for a, found the end of the file");
  EXPECT_EQ(ErrorOf("a = 1 2"), "t.toml:1: expected the end of the line, found \"2\"");
  EXPECT_EQ(ErrorOf("a = \"x\nb = 1"),
            "t.toml:1: a string is not closed; add \" before the end of the line");
  EXPECT_EQ(ErrorOf("[a\nb = 1"),
            "t.toml:1: expected ] after the section name a, found the end of the line");
  EXPECT_EQ(ErrorOf("[]"), "t.toml:1: expected a section name, found \"]\"");
  EXPECT_EQ(ErrorOf("a = [1,\n2"),
            "t.toml:2: expected , or ] in the list a, found the end of the file");
  EXPECT_EQ(ErrorOf("a = [1,\n"), "t.toml:2: the list a opened in line 1 is not closed; add ]");
  EXPECT_EQ(ErrorOf("name = llama3"),
            "t.toml:1: name = llama3 is not a TOML value; a string needs quotes: name = "
            "\"llama3\"");
  EXPECT_EQ(ErrorOf("name = True"),
            "t.toml:1: name = True is not a TOML value; write name = true, in lower case");
  EXPECT_EQ(ErrorOf("name = FALSE"),
            "t.toml:1: name = FALSE is not a TOML value; write name = false, in lower case");
  EXPECT_EQ(ErrorOf("name = None"),
            "t.toml:1: name = None is not a TOML value; leave the line out to keep the default");
  EXPECT_EQ(ErrorOf("a = \"\\q\""),
            "t.toml:1: unknown escape \\q in a string; use single quotes for text with "
            "backslashes");
}

TEST(Toml, RefusesWhatItDoesNotSupportByName) {
  EXPECT_NE(ErrorOf("[[a]]").find("arrays of tables"), std::string::npos);
  EXPECT_NE(ErrorOf("a = \"\"\"x\"\"\"").find("multi-line strings"), std::string::npos);
  EXPECT_NE(ErrorOf("a = [{b = 1}]").find("tables inside of lists"), std::string::npos);
  ErrorOf("a = 2024-01-01");
  ErrorOf("a = inf");
  ErrorOf("a = -nan");
}

TEST(Toml, RefusesBadNumbers) {
  for (const char* number : {"1_", "_1", "1__0", "01", "1.", ".5", "1e", "0x", "-0x1", "0xg", "+",
                             "-", "1.2.3", "--1", "1.e3", "+-1"}) {
    ErrorOf(std::string("a = ") + number);
  }
  EXPECT_EQ(ErrorOf("a = 9223372036854775808"),
            "t.toml:1: a = 9223372036854775808 does not fit in 64 bits");
  EXPECT_NE(ErrorOf("a = 1e999").find("does not fit in a double"), std::string::npos);
}

TEST(Toml, RefusesDuplicatesAndNamesTheFirst) {
  EXPECT_EQ(ErrorOf("[t]\na = 1\na = 2", ErrorCode::kDuplicateKey),
            "t.toml:3: t.a was already set in line 2");
  EXPECT_EQ(ErrorOf("t.a = 1\n[t]\na = 2", ErrorCode::kDuplicateKey),
            "t.toml:3: t.a was already set in line 1");
  EXPECT_EQ(ErrorOf("[t]\n[u]\n[t]", ErrorCode::kDuplicateKey),
            "t.toml:3: section [t] was already opened in line 1");
}

// No file may overflow the stack.
TEST(Toml, NestingIsBounded) {
  ErrorOf("a = " + std::string(100000, '['));
  std::string tables = "a = ";
  for (int i = 0; i < 100000; ++i) tables += "{b=";
  ErrorOf(tables);
}

// Every prefix of a valid file, and the file with any byte replaced, is read or refused, never
// worse.
TEST(Toml, SurvivesDamage) {
  const std::string text =
      "[a.b]\nc = \"x\\u00e9\" # d\ne = [1, 2.5, 'f']\ng = { h = true, i = 0x1F }\r\n";
  const auto survive = [](const std::string& damaged) {
    try {
      Parse(damaged, "t.toml");
    } catch (const Error&) {
    }
  };
  for (std::size_t i = 0; i <= text.size(); ++i) survive(text.substr(0, i));
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(byte);
      survive(damaged);
    }
  }
}

}  // namespace
}  // namespace gt::toml::toml_test
