// What must hold for any bytes given to the parser. The fuzz target tries it on made-up input, the
// unit test on the inputs kept under tests/fuzz/text.
#pragma once

#include <string>
#include <string_view>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::testing {

// What is wrong, or empty. Text that is no graph is refused with an Error; what is accepted prints
// as text that reads as the same graph. Whether it verifies is open, but even then only an Error
// may come out, and not an internal one.
inline std::string ProblemWithText(std::string_view text) {
  std::unique_ptr<Graph> graph;
  try {
    graph = Parse(text);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kInternal ? error.what() : "";
  }
  std::string printed;
  try {
    printed = Print(*graph);
    const auto again = Parse(printed);
    if (Print(*again) != printed) return "prints differently when read again:\n" + printed;
    if (again->Hash() != graph->Hash()) return "has another hash when read again:\n" + printed;
  } catch (const Error& error) {
    return "cannot be printed and read again: " + std::string(error.what()) + "\n" + printed;
  }
  try {
    Verify(*graph);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) return error.what();
  }
  return "";
}

}  // namespace gt::testing
