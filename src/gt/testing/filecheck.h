// Tests of passes as text: a .gtir file with the graph, the passes to run, and what to find in the
// result.
//
//   // A dead product is removed, and the sum that feeds it.
//   // RUN: gt opt --pass=dce %s
//   graph @g(%x: input "x" f32[4]) {
//     %unused = aten::neg(%x) : f32[4]      // CHECK-NOT: aten::neg
//     %y = aten::relu(%x) : f32[4]          // CHECK: %y = aten::relu(%x)
//     return result "y" %y
//   }
//   // -----
//   // The next case ...
//
// Each case begins with a sentence that says what it proves. Directives are comments:
//   CHECK: text           is found after the previous match
//   CHECK-NEXT: text      is found on the line after that of the previous match
//   CHECK-NOT: text       is not found between the matches before and after it
//   CHECK-COUNT-3: text   is found on exactly 3 lines of the whole result; does not move the position
//   CHECK-NODES: %a %b    the nodes of the result are these, in this order; several such lines are
//                         one list
//   CHECK-ORDER: %a %b    the result has these nodes in this order, with any others in between
//   CHECK-COUNTER: n = 3  the passes counted 3 of n
//   CHECK-VALUES          each of two ranks computes what it computed before, and no output starts
//                         to share memory (testing/interpreter.h)
//   CHECK-UNCHANGED       the passes report that they changed nothing
//   CHECK-NOT-IDEMPOTENT  the passes on their own result change it, or fail
//   CHECK-ERROR: text     running fails with an error that contains the text; no other directive is
//                         then allowed
// In a text, {{...}} is a regular expression, [[NAME:...]] one whose match is remembered, [[NAME]]
// that match again; runs of spaces are one space. A node is called by its first result; without
// results, by the first symbol that it binds or else by its operator. RUN knows --pass and
// --no-metadata.
//
// CONTEXT: lines are together what a job told the passes, as passes/framework/context_record.h has it:
// costs of nodes, process groups, budgets. Without any the graph is all that is known.
//
// Beyond the directives every case checks that the graph verifies before and after, that the result
// printed and reparsed has the same hash and prints the same, that an equal graph becomes the
// same result, and that running the passes on their own result changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

struct CheckDirective {
  enum class Kind {
    kCheck,
    kNext,
    kNot,
    kCount,
    kNodes,
    kOrder,
    kCounter,
    kValues,
    kUnchanged,
    kNotIdempotent,
    kError
  };
  Kind kind;
  std::string text;
  int64_t count = 0;  // of kCount and kCounter
  int line = 0;       // of the file
};

struct CheckCase {
  std::string file;
  int line = 0;  // of the file where the case begins
  std::string sentence;
  std::string passes;  // as --pass has them
  bool metadata = true;
  std::string context;  // JSON; empty: none
  std::string text;     // the graph, after empty lines so that lines count as in the file
  std::vector<CheckDirective> directives;
};

// Throws if a case has no sentence, no RUN line, no directive, or one that does not exist.
std::vector<CheckCase> ReadCheckCases(std::string_view text, const std::string& file);
std::vector<CheckCase> ReadCheckFile(const std::string& path);

// Compares a printed result with the directives: what was expected, what was found and where, or
// nothing.
std::optional<std::string> MatchDirectives(const CheckCase& test, const std::string& output);

// Compares the names of the nodes, in order, with the directives about nodes in the same way.
std::optional<std::string> MatchNodes(const CheckCase& test, const std::vector<std::string>& names);

// Runs the case. Returns what went wrong, or nothing.
std::optional<std::string> RunCheckCase(const CheckCase& test);

}  // namespace gt
