// Graphs and texts that commands read and write: a file, or - for standard input and output.
#pragma once

#include <memory>
#include <string>

#include "gt/ir/graph.h"

namespace gt {

std::unique_ptr<Graph> ReadGraph(const std::string& path);
void WriteText(const std::string& path, const std::string& text);

}  // namespace gt
