// docs/upstream.md says for each capability of torchtitan's pull requests which option, pass and test is
// its counterpart. All that it names has to exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/job/config.h"
#include "gt/passes/framework/registry.h"

namespace gt::upstream_page_test {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = GT_SOURCE_DIR;

// What is between backticks.
std::vector<std::string> NamesIn(std::string_view text) {
  std::vector<std::string> names;
  const std::vector<std::string> parts = Split(text, '`');
  for (size_t i = 1; i < parts.size(); i += 2) names.push_back(parts[i]);
  return names;
}

struct Row {
  int line = 0;
  std::map<std::string, std::string> cells;  // by the name of their column
};

std::vector<std::string> CellsOf(std::string_view line) {
  std::vector<std::string> cells;
  for (const std::string& cell : Split(line.substr(1, line.rfind('|') - 1), '|')) {
    cells.emplace_back(Trim(cell));
  }
  return cells;
}

// The rows of all tables of the page.
std::vector<Row> RowsOf(const std::string& page) {
  std::vector<Row> rows;
  std::vector<std::string> columns;
  int number = 0;
  for (const std::string& line : Split(page, '\n')) {
    ++number;
    if (!line.starts_with('|')) {
      columns.clear();
    } else if (columns.empty()) {
      columns = CellsOf(line);
    } else if (!line.starts_with("|---")) {
      const std::vector<std::string> cells = CellsOf(line);
      EXPECT_EQ(cells.size(), columns.size()) << "line " << number;
      Row row{number, {}};
      for (size_t i = 0; i < std::min(cells.size(), columns.size()); ++i) {
        row.cells[columns[i]] = cells[i];
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Suite.Name of every TEST, TEST_F and TEST_P of a source file.
void AddTestsOf(const std::string& text, std::set<std::string>& tests) {
  for (size_t at = text.find("\nTEST"); at != std::string::npos; at = text.find("\nTEST", at + 1)) {
    const size_t open = text.find('(', at), comma = text.find(',', at), close = text.find(')', at);
    if (open == std::string::npos || !(open < comma && comma < close)) continue;
    const std::string_view view = text;
    tests.insert(std::string(Trim(view.substr(open + 1, comma - open - 1))) + "." +
                 std::string(Trim(view.substr(comma + 1, close - comma - 1))));
  }
}

class UpstreamPage : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    page_ = new std::string(ReadWholeFile(kSource / "docs/upstream.md"));
    rows_ = new std::vector<Row>(RowsOf(*page_));
  }
  static void TearDownTestSuite() {
    delete page_;
    delete rows_;
  }

  static inline const std::string* page_ = nullptr;
  static inline const std::vector<Row>* rows_ = nullptr;
};

std::set<std::string> OptionsOfJobs() {
  std::set<std::string> options;
  ForEachOption(Config(), [&](const Option& option) { options.insert(option.path()); });
  return options;
}

// `gt place --pin`, a flag of a command.
bool IsFlagOfCommand(const std::string& name) {
  const size_t dashes = name.find(" --");
  if (!name.starts_with("gt ") || dashes == std::string::npos) return false;
  const std::string command = name.substr(3, dashes - 3);
  const std::string source = ReadWholeFile(kSource / "src/gt/cli" / (command + ".cc"));
  return source.find("Flag(\"" + name.substr(dashes + 3) + "\"") != std::string::npos;
}

TEST_F(UpstreamPage, NamesOptionsThatExist) {
  const std::set<std::string> options = OptionsOfJobs();
  for (const Row& row : *rows_) {
    const auto cell = row.cells.find("option");
    if (cell == row.cells.end()) continue;
    for (const std::string& name : NamesIn(cell->second)) {
      EXPECT_TRUE(options.contains(name) || IsFlagOfCommand(name))
          << "docs/upstream.md:" << row.line << ": " << name;
    }
  }
  // In prose and in the other columns as well.
  for (const std::string& name : NamesIn(*page_)) {
    const bool is_option = name.starts_with("compile.") && name.find(' ') == std::string::npos;
    if (is_option) EXPECT_TRUE(options.contains(name)) << name;
  }
}

TEST_F(UpstreamPage, NamesPassesThatExist) {
  const std::vector<std::string> passes = PassNames();
  int named = 0;
  for (const Row& row : *rows_) {
    const auto cell = row.cells.find("pass");
    if (cell == row.cells.end()) continue;
    for (const std::string& name : NamesIn(cell->second)) {
      EXPECT_EQ(std::count(passes.begin(), passes.end(), name), 1)
          << "docs/upstream.md:" << row.line << ": " << name;
      ++named;
    }
  }
  EXPECT_GT(named, 60);
}

// Every row has one: Suite.Name, or the first sentence of a case in a text test of a pass.
TEST_F(UpstreamPage, NamesTestsThatExist) {
  std::set<std::string> tests;
  std::map<std::string, std::string> text_tests;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "src/gt")) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with("_test.cc")) AddTestsOf(ReadWholeFile(entry.path()), tests);
    if (file.ends_with(".gtir")) text_tests[file] = "\n" + ReadWholeFile(entry.path());
  }
  for (const Row& row : *rows_) {
    const std::string where = "docs/upstream.md:" + std::to_string(row.line) + ": ";
    const auto cell = row.cells.find("test");
    ASSERT_NE(cell, row.cells.end()) << where << "a table without tests";
    const std::vector<std::string> names = NamesIn(cell->second);
    EXPECT_FALSE(names.empty()) << where << "no test";
    for (const std::string& name : names) {
      const size_t colon = name.find(".gtir: ");
      if (colon == std::string::npos) {
        EXPECT_TRUE(tests.contains(name)) << where << name;
        continue;
      }
      const std::string file = name.substr(0, colon + 5), sentence = name.substr(colon + 7);
      ASSERT_TRUE(text_tests.contains(file)) << where << file;
      EXPECT_NE(text_tests[file].find("\n// " + sentence), std::string::npos) << where << name;
    }
  }
  EXPECT_GT(rows_->size(), 100u);
}

TEST_F(UpstreamPage, LinksToPagesThatExistAndIsLinkedTo) {
  for (size_t at = page_->find("]("); at != std::string::npos; at = page_->find("](", at + 1)) {
    const std::string target = page_->substr(at + 2, page_->find(')', at) - at - 2);
    EXPECT_TRUE(fs::exists(kSource / "docs" / target)) << target;
  }
  for (const char* page : {"README.md", "docs/torchtitan.md"}) {
    EXPECT_NE(ReadWholeFile(kSource / page).find("upstream.md)"), std::string::npos) << page;
  }
}

}  // namespace
}  // namespace gt::upstream_page_test
