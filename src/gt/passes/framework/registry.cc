#include "gt/passes/framework/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "gt/base/error.h"
#include "gt/config/option_table.h"
#include "gt/passes/framework/upstream_passes.h"

namespace gt {
namespace {

std::unique_ptr<Pass> MakeByName(std::string_view name) {
  const std::string known = ResolvePassName(name);
  for (const PassEntry& entry : AllPasses()) {
    if (entry.name == known) return entry.make();
  }
  Fail(ErrorCode::kInternal, "the table of passes does not have {}", known);
}

// Reads one list of pass specs from left to right.
class SpecParser {
 public:
  explicit SpecParser(std::string_view text) : text_(text) {}

  PassList Parse() {
    PassList passes;
    SkipSpace();
    while (!AtEnd()) {
      passes.push_back(ParsePass());
      if (AtEnd()) break;
      Expect(',');
      SkipSpace();
      if (AtEnd()) Malformed("the name of a pass");
    }
    return passes;
  }

 private:
  std::unique_ptr<Pass> ParsePass() {
    std::unique_ptr<Pass> pass = MakeByName(Word("the name of a pass"));
    if (!Accept('{')) return pass;
    Problems problems;
    std::vector<std::string_view> seen;
    while (!Accept('}')) {
      if (!seen.empty()) Expect(',');
      std::string_view name = Word("the name of an option");
      Expect('=');
      // The first value of a list replaces its default, the others join it.
      bool again = std::find(seen.begin(), seen.end(), name) != seen.end();
      seen.push_back(name);
      SetOption(*pass, name, ParseValue(), again, problems);
    }
    problems.ThrowIfAny();
    return pass;
  }

  static void SetOption(Pass& pass, std::string_view name, const std::string& value, bool again,
                        Problems& problems) {
    std::vector<std::string> known;
    for (Option& option : pass.options()) {
      if (option.path() == name) {
        auto where = fmt::format("pass {}, option {}", pass.name(), name);
        return option.SetFromText(value, where, again, problems);
      }
      known.push_back(option.path());
    }
    problems.Add(ErrorCode::kUnknownOption, "pass {} has no option {}{}", pass.name(), Quoted(name),
                 known.empty() ? "; it takes none" : DidYouMean(name, known));
  }

  std::string ParseValue() {
    SkipSpace();
    if (!Accept('"')) {
      size_t start = position_;
      while (!AtEnd() && text_[position_] != ',' && text_[position_] != '}') ++position_;
      return std::string(Trim(text_.substr(start, position_ - start)));
    }
    std::string value;
    while (!Accept('"')) {
      if (AtEnd()) Malformed("a closing quote");
      char c = text_[position_++];
      value += c == '\\' ? Escaped() : c;
    }
    SkipSpace();
    return value;
  }

  char Escaped() {
    if (AtEnd()) Malformed("a character after the backslash");
    char c = text_[position_++];
    if (c == 'n') return '\n';
    if (c == 'r') return '\r';
    if (c == 't') return '\t';
    return c;
  }

  std::string_view Word(std::string_view what) {
    SkipSpace();
    size_t start = position_;
    while (!AtEnd() && text_.substr(position_, 1).find_first_of(",{}=\" \t\r\n") != 0) ++position_;
    if (position_ == start) Malformed(what);
    std::string_view word = text_.substr(start, position_ - start);
    SkipSpace();
    return word;
  }

  bool AtEnd() const { return position_ >= text_.size(); }
  void SkipSpace() {
    while (!AtEnd() && (text_[position_] == ' ' || text_[position_] == '\t')) ++position_;
  }
  bool Accept(char c) {
    if (AtEnd() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void Expect(char c) {
    SkipSpace();
    if (!Accept(c)) Malformed(fmt::format("'{}'", c));
    SkipSpace();
  }
  [[noreturn]] void Malformed(std::string_view expected) const {
    Fail(ErrorCode::kMalformedPassSpec,
         "pass list {}: expected {} at column {}, got {}; write name,name{{option=value}}",
         Quoted(text_), expected, position_ + 1,
         AtEnd() ? "the end" : Quoted(text_.substr(position_, 20)));
  }

  std::string_view text_;
  size_t position_ = 0;
};

std::string CountersTable(const Pass& pass) {
  if (pass.counters().empty()) return "";
  std::string table = "\n| statistic | |\n|---|---|\n";
  for (const Counter* counter : pass.counters()) {
    table += fmt::format("| `{}` | {} |\n", counter->name(), counter->help());
  }
  return table;
}

std::string PassSection(const Pass& pass) {
  const PassInfo& info = pass.info();
  return fmt::format("\n## {}\n{}\n\n{}\n\n- Reads: {}\n- Writes: {}\n- Never: {}\n{}{}", info.name,
                     info.summary, info.description, info.reads, info.writes, info.never,
                     OptionTable(pass.options()), CountersTable(pass));
}

constexpr std::string_view kMarkdownHead = R"(# Passes

Made by `gt docs passes`; do not edit. How to write a pass: [adding_a_pass.md](adding_a_pass.md).

A pass rewrites the graph of a train step. `gt opt --pass='dce,cse{cross_phase=none}' step.gtir` runs
passes on a stored graph, `--compile.disable_passes=cse` leaves one out of a training run,
`--compile.passes=+cse` adds one, and `--compile.debug_graph_passes` shows what each one did. Lists of
passes also take torchtitan's names ([torchtitan.md](torchtitan.md)).

All passes keep to this, unless their own section says otherwise:
- The outputs of the graph keep their bits.
- Random operators and collectives keep their number and order. Dropping a random operator would
  shift what the later ones draw; dropping a collective on one rank makes the others wait for it.
- An output never starts to share memory with another output or with an input. The caller owns what
  a step returns: it scales gradients in place and copies updates over buffers.
- A node that takes another's place carries its metadata; of two nodes that become one, the earlier
  keeps its own.
- Values that stay keep their names, so that dumps of successive passes can be compared.
- Time is linear in the number of nodes, 3 us a node at most.
)";

}  // namespace

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const PassEntry& entry : AllPasses()) names.emplace_back(entry.name);
  return names;
}

std::string ResolvePassName(std::string_view name) {
  const std::vector<std::string> names = PassNames();
  if (std::find(names.begin(), names.end(), name) != names.end()) return std::string(name);
  if (const UpstreamPass* upstream = FindUpstreamPass(name)) {
    if (!upstream->pass.empty()) return std::string(upstream->pass);
    Fail(ErrorCode::kUnknownPass, "{}", WhyNoPass(*upstream));
  }
  std::vector<std::string> all = names;
  for (const UpstreamPass& upstream : UpstreamPasses()) all.emplace_back(upstream.name);
  const std::string hint = DidYouMean(name, all);
  Fail(ErrorCode::kUnknownPass, "there is no pass {}{}", Quoted(name),
       hint.empty() ? "; gt opt --list shows them all" : hint);
}

PassList ParsePipeline(std::string_view specs) { return SpecParser(specs).Parse(); }

std::vector<std::string> SplitPipeline(std::string_view specs) {
  std::vector<std::string> parts;
  bool in_options = false, in_quotes = false;
  std::string part;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const char c = specs[i];
    if (c == ',' && !in_options) {
      parts.emplace_back(Trim(part));
      part.clear();
      continue;
    }
    part += c;
    if (in_quotes && c == '\\' && i + 1 < specs.size()) part += specs[++i];
    if (c == '"') in_quotes = !in_quotes;
    if (!in_quotes && c == '{') in_options = true;
    if (!in_quotes && c == '}') in_options = false;
  }
  if (!part.empty() || !parts.empty()) parts.emplace_back(Trim(part));
  return parts;
}

std::unique_ptr<Pass> MakePass(std::string_view spec) {
  PassList passes = ParsePipeline(spec);
  if (passes.size() != 1) {
    Fail(ErrorCode::kMalformedPassSpec, "{} names {} passes where one is wanted", Quoted(spec),
         passes.size());
  }
  return std::move(passes.front());
}

std::string PrintPipeline(std::span<const std::unique_ptr<Pass>> passes) {
  std::vector<std::string> specs;
  for (const auto& pass : passes) specs.push_back(pass->Spec());
  return Join(specs, ",");
}

std::string PassesMarkdown() {
  std::string text(kMarkdownHead);
  for (const PassEntry& entry : AllPasses()) text += PassSection(*entry.make());
  return text;
}

}  // namespace gt
