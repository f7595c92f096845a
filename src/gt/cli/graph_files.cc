#include "gt/cli/graph_files.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "gt/base/error.h"
#include "gt/ir/text.h"

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
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) Fail(ErrorCode::kCannotWriteGraph, "cannot write {}", path);
}

}  // namespace gt
