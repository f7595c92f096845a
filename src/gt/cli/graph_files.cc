#include "gt/cli/graph_files.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <sstream>

#include "gt/ir/text.h"
#include "gt/storage/file_writer.h"

namespace gt {

std::unique_ptr<Graph> ReadGraph(const std::string& path) {
  if (path != "-") return ParseFile(path);
  std::ostringstream text;
  text << std::cin.rdbuf();
  return Parse(text.str(), "<stdin>");
}

void WriteText(const std::string& path, const std::string& text) {
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  WriteFile(path, text);
}

}  // namespace gt
