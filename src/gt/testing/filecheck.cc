#include "gt/testing/filecheck.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/context_record.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/testing/interpreter.h"

namespace gt {
namespace {

using Directive = CheckDirective::Kind;

[[noreturn]] void Malformed(const std::string& file, int line, const std::string& why) {
  Fail(ErrorCode::kMalformedCheck, "{}:{}: {}", file, line, why);
}

// The comment of a line, or nothing. Strings in graphs may contain slashes.
std::string_view CommentOf(std::string_view line) {
  bool quoted = false;
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) quoted = !quoted;
    if (!quoted && line[i] == '/' && line[i + 1] == '/') return Trim(line.substr(i + 2));
  }
  return {};
}

int64_t ParseCount(std::string_view digits, const std::string& file, int line) {
  int64_t count = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    Malformed(file, line, fmt::format("{} is no number", Quoted(digits)));
  }
  return count;
}

constexpr std::string_view kCountPrefix = "CHECK-COUNT-";

std::optional<Directive> KindOf(std::string_view name) {
  static constexpr std::pair<std::string_view, Directive> kKinds[] = {
      {"CHECK", Directive::kCheck},
      {"CHECK-NEXT", Directive::kNext},
      {"CHECK-NOT", Directive::kNot},
      {"CHECK-NODES", Directive::kNodes},
      {"CHECK-ORDER", Directive::kOrder},
      {"CHECK-COUNTER", Directive::kCounter},
      {"CHECK-VALUES", Directive::kValues},
      {"CHECK-UNCHANGED", Directive::kUnchanged},
      {"CHECK-NOT-IDEMPOTENT", Directive::kNotIdempotent},
      {"CHECK-ERROR", Directive::kError},
  };
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  if (name.starts_with(kCountPrefix)) return Directive::kCount;
  return std::nullopt;
}

bool NeedsText(Directive kind) {
  return kind != Directive::kValues && kind != Directive::kUnchanged &&
         kind != Directive::kNotIdempotent;
}

// "CHECK-NEXT: text" or nothing if the comment is no directive.
std::optional<CheckDirective> ParseDirective(std::string_view comment, const std::string& file,
                                             int line) {
  if (!comment.starts_with("CHECK")) return std::nullopt;
  const size_t colon = comment.find(':');
  const std::string_view name = Trim(comment.substr(0, colon));
  const std::optional<Directive> kind = KindOf(name);
  if (!kind) Malformed(file, line, fmt::format("there is no directive {}", Quoted(name)));
  CheckDirective directive{*kind, "", 0, line};
  if (colon != std::string_view::npos) directive.text = Trim(comment.substr(colon + 1));
  if (NeedsText(*kind) && directive.text.empty()) {
    Malformed(file, line, fmt::format("{} without text", name));
  }
  if (*kind == Directive::kCount) {
    directive.count = ParseCount(name.substr(kCountPrefix.size()), file, line);
  } else if (*kind == Directive::kCounter) {
    const size_t equals = directive.text.find('=');
    if (equals == std::string::npos) Malformed(file, line, "CHECK-COUNTER: name = number");
    directive.count =
        ParseCount(Trim(std::string_view(directive.text).substr(equals + 1)), file, line);
    directive.text = Trim(std::string_view(directive.text).substr(0, equals));
  }
  return directive;
}

// "gt opt --pass=a,b --no-metadata %s"
void ParseRun(std::string_view command, CheckCase& test, int line) {
  if (!command.starts_with("gt opt")) Malformed(test.file, line, "RUN must begin with gt opt");
  for (const std::string& word : Split(command.substr(6), ' ')) {
    constexpr std::string_view kPass = "--pass=";
    if (word.empty() || word == "%s") continue;
    if (word.starts_with(kPass)) {
      std::string_view passes = std::string_view(word).substr(kPass.size());
      // Quotes are for shells, to which the line may be pasted.
      if (passes.size() >= 2 && passes.front() == '\'' && passes.back() == '\'') {
        passes = passes.substr(1, passes.size() - 2);
      }
      test.passes = passes;
    } else if (word == "--no-metadata") {
      test.metadata = false;
    } else {
      Malformed(test.file, line, fmt::format("RUN does not know {}", Quoted(word)));
    }
  }
}

constexpr std::string_view kContext = "CONTEXT:";

CheckCase ReadCase(std::span<const std::string> lines, const std::string& file, int first_line) {
  CheckCase test;
  test.file = file;
  test.text.assign(static_cast<size_t>(first_line - 1), '\n');
  bool has_run = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    int line = first_line + static_cast<int>(i);
    test.text += lines[i] + "\n";
    std::string_view comment = CommentOf(lines[i]);
    if (comment.empty()) continue;
    if (test.sentence.empty()) {
      if (comment.starts_with("RUN:") || comment.starts_with("CHECK")) {
        Malformed(file, line, "a case begins with a sentence that says what it proves");
      }
      test.sentence = comment;
      test.line = line;
    } else if (comment.starts_with("RUN:")) {
      ParseRun(Trim(comment.substr(4)), test, line);
      has_run = true;
    } else if (comment.starts_with(kContext)) {
      test.context += std::string(comment.substr(kContext.size())) + "\n";
    } else if (auto directive = ParseDirective(comment, file, line)) {
      test.directives.push_back(std::move(*directive));
    }
  }
  if (test.sentence.empty()) Malformed(file, first_line, "a case without a sentence");
  if (!has_run) Malformed(file, test.line, "a case without a RUN line");
  if (test.directives.empty()) Malformed(file, test.line, "a case that checks nothing");
  return test;
}

std::string OneSpace(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '\t') c = ' ';
    if (c == ' ' && !result.empty() && result.back() == ' ') continue;
    result += c;
  }
  return std::string(Trim(result));
}

// A directive's text as a regular expression, given what its variables hold.
class Pattern {
 public:
  Pattern(const CheckCase& test, const CheckDirective& directive,
          const std::map<std::string, std::string>& variables) {
    std::string text = OneSpace(directive.text);
    std::string_view rest = text;
    std::string regex;
    int groups = 0;
    while (!rest.empty()) {
      size_t begin = std::min(rest.find("{{"), rest.find("[["));
      regex += Escaped(rest.substr(0, begin));
      if (begin == std::string_view::npos) break;
      std::string_view close = rest[begin] == '{' ? "}}" : "]]";
      size_t end = rest.find(close, begin);
      if (end == std::string_view::npos) {
        Malformed(test.file, directive.line,
                  fmt::format("{} is not closed", rest.substr(begin, 2)));
      }
      std::string_view inside = rest.substr(begin + 2, end - begin - 2);
      size_t colon = inside.find(':');
      if (close == "}}") {
        regex += fmt::format("(?:{})", inside);
      } else if (colon != std::string_view::npos) {
        names_.emplace_back(inside.substr(0, colon), ++groups);
        regex += fmt::format("({})", inside.substr(colon + 1));
      } else {
        auto value = variables.find(std::string(inside));
        if (value == variables.end()) {
          Malformed(test.file, directive.line, fmt::format("[[{}]] is not set yet", inside));
        }
        regex += Escaped(value->second);
      }
      rest.remove_prefix(end + 2);
    }
    regex_ = std::regex(regex, std::regex::ECMAScript);
  }

  bool Matches(const std::string& line) const { return std::regex_search(line, regex_); }

  // Where the match ends, or npos; sets the variables of the text.
  size_t Match(const std::string& line, size_t from,
               std::map<std::string, std::string>& variables) const {
    std::smatch match;
    std::string rest = line.substr(from);
    if (!std::regex_search(rest, match, regex_)) return std::string::npos;
    for (const auto& [name, group] : names_) variables[name] = match[static_cast<size_t>(group)];
    return from + static_cast<size_t>(match.position(0) + match.length(0));
  }

 private:
  static std::string Escaped(std::string_view text) {
    std::string result;
    for (char c : text) {
      if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) result += '\\';
      result += c;
    }
    return result;
  }

  std::regex regex_;
  std::vector<std::pair<std::string, int>> names_;
};

// Walks the lines of an output along the directives.
class Matcher {
 public:
  Matcher(const CheckCase& test, const std::string& output) : test_(test), output_(output) {
    for (const std::string& line : Split(output, '\n')) lines_.push_back(OneSpace(line));
  }

  std::optional<std::string> Run() {
    for (const CheckDirective& directive : test_.directives) {
      if (!Apply(directive)) return failure_;
    }
    if (!CheckForbidden(lines_.size())) return failure_;
    return std::nullopt;
  }

 private:
  bool Apply(const CheckDirective& directive) {
    switch (directive.kind) {
      case Directive::kCheck:
        return Find(directive);
      case Directive::kNext:
        return FindNext(directive);
      case Directive::kNot:
        forbidden_.push_back(&directive);
        return true;
      case Directive::kCount:
        return Count(directive);
      default:
        return true;
    }
  }

  bool Find(const CheckDirective& directive) {
    Pattern pattern(test_, directive, variables_);
    for (size_t line = line_; line < lines_.size(); ++line) {
      if (MatchAt(pattern, line, line == line_ ? column_ : 0)) return CheckForbidden(line);
    }
    return Report(directive, "not found after this line", line_);
  }

  bool FindNext(const CheckDirective& directive) {
    if (between_ == 0) return Report(directive, "CHECK-NEXT needs a CHECK before it", 0);
    Pattern pattern(test_, directive, variables_);
    size_t next = line_ + 1;
    if (next < lines_.size() && MatchAt(pattern, next, 0)) return CheckForbidden(next);
    return Report(directive, "not found on this line", next);
  }

  bool MatchAt(const Pattern& pattern, size_t line, size_t from) {
    size_t end = pattern.Match(lines_[line], from, variables_);
    if (end == std::string::npos) return false;
    line_ = line;
    column_ = end;
    return true;
  }

  // The lines between the match before and that at `line` must hold none of the CHECK-NOTs that
  // are between the two.
  bool CheckForbidden(size_t line) {
    for (const CheckDirective* directive : forbidden_) {
      Pattern pattern(test_, *directive, variables_);
      for (size_t i = between_; i < line; ++i) {
        if (pattern.Matches(lines_[i])) return Report(*directive, "found on this line", i);
      }
    }
    forbidden_.clear();
    between_ = line + 1;
    return true;
  }

  bool Count(const CheckDirective& directive) {
    Pattern pattern(test_, directive, variables_);
    auto matches = [&](const std::string& line) { return pattern.Matches(line); };
    auto found = std::count_if(lines_.begin(), lines_.end(), matches);
    if (found == directive.count) return true;
    return Report(directive, fmt::format("found on {} lines, not {}", found, directive.count),
                  line_);
  }

  bool Report(const CheckDirective& directive, const std::string& why, size_t line) {
    failure_ =
        fmt::format("{}:{}: {}\n  expected: {}\n", test_.file, directive.line, why, directive.text);
    for (const auto& [name, value] : variables_)
      failure_ += fmt::format("  [[{}]] is {}\n", name, value);
    failure_ += "  output:\n";
    std::vector<std::string> raw = Split(output_, '\n');
    for (size_t i = 0; i < raw.size(); ++i) {
      failure_ += fmt::format("{} {:>4} | {}\n", i == line ? "->" : "  ", i + 1, raw[i]);
    }
    return false;
  }

  const CheckCase& test_;
  const std::string& output_;
  std::vector<std::string> lines_;
  std::map<std::string, std::string> variables_;
  std::vector<const CheckDirective*> forbidden_;
  size_t line_ = 0, column_ = 0;  // where the last match ends
  size_t between_ = 0;            // the line after it; 0: nothing has matched yet
  std::string failure_;
};

bool Expects(const CheckCase& test, Directive kind) {
  return std::any_of(test.directives.begin(), test.directives.end(),
                     [kind](const CheckDirective& directive) { return directive.kind == kind; });
}

std::string Place(const CheckCase& test) {
  return fmt::format("{}:{}: {}", test.file, test.line, test.sentence);
}

std::string NameOf(const Node& node, const ShapeEnv& shapes) {
  if (node.result_count() > 0) return "%" + node.result()->name();
  if (!node.bound_symbols().empty()) return shapes.NameOf(node.bound_symbols()[0]);
  return node.op().name.str();
}

std::vector<std::string> NodeNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node* node : graph.nodes()) names.push_back(NameOf(*node, graph.shapes()));
  return names;
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::vector<std::string> words = Split(OneSpace(text), ' ');
  std::erase(words, "");
  return words;
}

std::string NodeFailure(const CheckCase& test, int line, std::string_view why,
                        const std::vector<std::string>& expected,
                        const std::vector<std::string>& actual) {
  return fmt::format("{}:{}: {}\n  expected: {}\n  actual:   {}", test.file, line, why,
                     Join(expected, " "), Join(actual, " "));
}

std::optional<std::string> CheckOrder(const CheckCase& test, const CheckDirective& directive,
                                      const std::vector<std::string>& names) {
  const std::vector<std::string> words = WordsOf(directive.text);
  auto from = names.begin();
  for (const std::string& word : words) {
    const auto found = std::find(from, names.end(), word);
    if (found == names.end()) {
      const bool exists = std::find(names.begin(), names.end(), word) != names.end();
      const std::string why = exists ? word + " is too early" : "there is no node " + word;
      return NodeFailure(test, directive.line, why, words, names);
    }
    from = found + 1;
  }
  return std::nullopt;
}

std::optional<std::string> CheckCounter(const CheckCase& test, const CheckDirective& directive,
                                        const PipelineReport& report) {
  std::optional<int64_t> counted;
  for (const PassRun& run : report.runs) {
    for (const auto& [name, value] : run.counters) {
      if (name == directive.text) counted = counted.value_or(0) + value;
    }
  }
  if (!counted) {
    Malformed(test.file, directive.line,
              fmt::format("no pass of the case counts {}", Quoted(directive.text)));
  }
  if (*counted == directive.count) return std::nullopt;
  return fmt::format("{}:{}: {} is {}, not {}", test.file, directive.line, directive.text, *counted,
                     directive.count);
}

// Of one run: passes leave notes in it.
PipelineReport RunPasses(const CheckCase& test, PassManager& manager, Graph& graph) {
  if (test.context.empty()) return manager.Run(graph);
  PassContext context(ContextRecord::FromJson(test.context, Place(test)));
  return manager.Run(graph, context);
}

PassManager ManagerFor(const CheckCase& test) {
  PassManagerOptions options;
  options.write_reproducer = false;  // the case is one
  return PassManager(ParsePipeline(test.passes), std::move(options));
}

// What is wrong with the result beyond what the directives ask, or nothing.
std::optional<std::string> CheckRoundTrip(const Graph& graph, const std::string& text) {
  std::unique_ptr<Graph> again = Parse(text, "<printed again>");
  Verify(*again);
  if (again->Hash() != graph.Hash()) {
    return "the result, printed and parsed again, has another hash:\n" + text;
  }
  if (std::string printed = Print(*again); printed != text) {
    return fmt::format("the result prints differently after parsing:\n{}\n--- and again ---\n{}",
                       text, printed);
  }
  return std::nullopt;
}

// The passes on an equal graph give an equal result, and on their own result nothing new.
std::optional<std::string> CheckRepeated(const CheckCase& test, PassManager& manager,
                                         std::unique_ptr<Graph> given, Graph& result) {
  const std::string once = Print(result);
  RunPasses(test, manager, *given);
  if (std::string other = Print(*given); other != once) {
    return fmt::format("{}\n  an equal graph becomes another result\n{}\n--- and ---\n{}",
                       Place(test), once, other);
  }
  bool changed = true;
  try {
    changed = RunPasses(test, manager, result).changed;
  } catch (const Error&) {
    if (!Expects(test, Directive::kNotIdempotent)) throw;
  }
  if (changed == Expects(test, Directive::kNotIdempotent)) return std::nullopt;
  if (!changed) return Place(test) + "\n  CHECK-NOT-IDEMPOTENT, but a second run changes nothing";
  return fmt::format(
      "{}\n  a second run of the passes changes their own result\n{}\n--- to ---\n{}", Place(test),
      once, Print(result));
}

std::optional<std::string> RunWithoutError(const CheckCase& test) {
  std::unique_ptr<Graph> graph = Parse(test.text, test.file);
  Verify(*graph);
  std::unique_ptr<Graph> given = graph->Clone();
  PassManager manager = ManagerFor(test);
  PipelineReport report = RunPasses(test, manager, *graph);
  Verify(*graph);
  if (Expects(test, Directive::kError)) {
    return fmt::format("{}\n  expected an error, but got:\n{}", Place(test), Print(*graph));
  }
  if (report.changed && Expects(test, Directive::kUnchanged)) {
    return fmt::format("{}\n  expected no change, but got:\n{}", Place(test), Print(*graph));
  }
  if (auto failure = CheckRoundTrip(*graph, Print(*graph))) return Place(test) + "\n" + *failure;
  if (auto failure = MatchDirectives(test, Print(*graph, {.metadata = test.metadata})))
    return failure;
  if (auto failure = MatchNodes(test, NodeNames(*graph))) return failure;
  for (const CheckDirective& directive : test.directives) {
    if (directive.kind != Directive::kCounter) continue;
    if (auto failure = CheckCounter(test, directive, report)) return failure;
  }
  if (Expects(test, Directive::kValues)) {
    const testing::Interpreter before(*given, /*ranks=*/2), after(*graph, /*ranks=*/2);
    if (auto failure = DifferenceOf(before, after)) {
      return fmt::format("{}\n  {}:\n{}", Place(test), *failure, Print(*graph));
    }
  }
  return CheckRepeated(test, manager, std::move(given), *graph);
}

}  // namespace

std::vector<CheckCase> ReadCheckCases(std::string_view text, const std::string& file) {
  std::vector<CheckCase> cases;
  std::vector<std::string> lines = Split(text, '\n');
  size_t begin = 0;
  for (size_t i = 0; i <= lines.size(); ++i) {
    if (i < lines.size() && Trim(lines[i]) != "// -----") continue;
    std::span<const std::string> own(lines.data() + begin, i - begin);
    cases.push_back(ReadCase(own, file, static_cast<int>(begin) + 1));
    begin = i + 1;
  }
  return cases;
}

std::vector<CheckCase> ReadCheckFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) Fail(ErrorCode::kMalformedCheck, "cannot read {}", path);
  return ReadCheckCases(text.str(), path);
}

std::optional<std::string> MatchDirectives(const CheckCase& test, const std::string& output) {
  try {
    return Matcher(test, output).Run();
  } catch (const std::regex_error& error) {
    return fmt::format("{}\n  a regular expression is wrong: {}", Place(test), error.what());
  }
}

std::optional<std::string> MatchNodes(const CheckCase& test,
                                      const std::vector<std::string>& names) {
  std::vector<std::string> all;
  int line = 0;
  for (const CheckDirective& directive : test.directives) {
    if (directive.kind == Directive::kOrder) {
      if (auto failure = CheckOrder(test, directive, names)) return failure;
    } else if (directive.kind == Directive::kNodes) {
      if (line == 0) line = directive.line;
      const std::vector<std::string> words = WordsOf(directive.text);
      all.insert(all.end(), words.begin(), words.end());
    }
  }
  if (line == 0 || all == names) return std::nullopt;
  return NodeFailure(test, line, "other nodes, or in another order", all, names);
}

std::optional<std::string> RunCheckCase(const CheckCase& test) {
  try {
    return RunWithoutError(test);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformedCheck) return error.what();
    if (!Expects(test, Directive::kError)) {
      return fmt::format("{}\n  failed with {}", Place(test), error.what());
    }
    std::string text = OneSpace(error.what());
    for (const CheckDirective& directive : test.directives) {
      if (directive.kind != Directive::kError) {
        return fmt::format("{}:{}: beside CHECK-ERROR no other directive has a meaning", test.file,
                           directive.line);
      }
      if (!Pattern(test, directive, {}).Matches(text)) {
        return fmt::format("{}:{}: another error than expected\n  expected: {}\n  actual:   {}",
                           test.file, directive.line, directive.text, error.what());
      }
    }
    return std::nullopt;
  }
}

}  // namespace gt
