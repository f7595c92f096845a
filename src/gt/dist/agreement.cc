#include "gt/dist/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "gt/base/build_id.h"
#include "gt/base/error.h"
#include "gt/job/config.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

constexpr std::string_view kWait = "wait for ";

std::string HashOf(const std::string& text) {
  Xxh64 hash;
  hash.Update(std::as_bytes(std::span(text)));
  return fmt::format("{:016x}", hash.Digest());
}

// A text that must be equal to that of another rank.
struct Statement {
  std::string name;  // with `writer` unique within the job
  int64_t writer = 0;
  std::string text = {};
};

struct Difference {
  size_t statement = 0;
  int64_t line = 0;
  std::string mine = {}, theirs = {};  // the lines
  std::string my_text, their_text;
};

Difference FirstDifference(size_t statement, const std::string& mine, const std::string& theirs) {
  std::istringstream left(mine), right(theirs);
  Difference difference{.statement = statement, .my_text = mine, .their_text = theirs};
  while (true) {
    ++difference.line;
    bool more_left = static_cast<bool>(std::getline(left, difference.mine));
    bool more_right = static_cast<bool>(std::getline(right, difference.theirs));
    if (!more_left) difference.mine = "(nothing)";
    if (!more_right) difference.theirs = "(nothing)";
    if (difference.mine != difference.theirs || (!more_left && !more_right)) return difference;
  }
}

// The first of this rank's statements that differs from its writer's. If any rank differs, returns
// only there: the others wait for the error with which it ends the job.
std::optional<Difference> Compare(World& world, const std::vector<Statement>& statements) {
  auto key = [](const Statement& statement, const char* kind) {
    return fmt::format("{}/{}/{}", statement.name, statement.writer, kind);
  };
  auto publish = [&](const char* kind, auto&& content) {
    for (const Statement& statement : statements) {
      if (statement.writer == world.rank()) {
        world.Publish(key(statement, kind), content(statement.text));
      }
    }
  };
  // Hashes are written before the barrier and read before the sum, so that none is read that is
  // left over from an earlier comparison.
  publish("hash", HashOf);
  world.Barrier();
  std::optional<size_t> differs;
  for (size_t i = 0; i < statements.size() && !differs; ++i) {
    const Statement& statement = statements[i];
    if (statement.writer == world.rank()) continue;
    if (world.Read(key(statement, "hash"), statement.writer) != HashOf(statement.text)) differs = i;
  }
  if (world.Sum({differs ? 1.0 : 0.0})[0] == 0) return std::nullopt;
  publish("text", [](const std::string& text) { return text; });
  if (differs) {
    const Statement& statement = statements[*differs];
    return FirstDifference(*differs, statement.text,
                           world.Read(key(statement, "text"), statement.writer));
  }
  world.Barrier();
  return std::nullopt;
}

bool HasOthers(const World& world) { return world.size() > 1 && !world.pretended(); }

std::string SizesText(const TensorType& type, const ShapeEnv& shapes) {
  std::string text;
  for (const Dim& size : type.sizes) {
    text += (text.empty() ? "" : ", ") + size.ToString(shapes.Namer());
  }
  return "[" + text + "]";
}

const std::string& GroupOf(const Node& node) {
  return std::get<std::string>(node.arg(node.op().group_arg));
}

bool Launches(const Node& node) {
  const Collective kind = node.op().collective;
  return kind != Collective::kNone && kind != Collective::kWait;
}

// The launches of a sequence, in an order that does not depend on the plan.
std::vector<std::string> SortedLaunches(const std::string& sequence) {
  std::vector<std::string> lines;
  std::istringstream text(sequence);
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(kWait)) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

// The configurations have agreed before: what can differ now is what ranks read from files, and what
// they make of it.
std::string_view SequenceAdvice(const Difference& difference) {
  if (SortedLaunches(difference.my_text) == SortedLaunches(difference.their_text)) {
    return "both have the same collectives and planned different orders: the files that plans are "
           "made from (--compile.costs_file, --comm.cluster) must have the same contents on every "
           "machine; --compile.ep_overlap.schedule structural plans without costs";
  }
  return "their steps have different collectives: files that a model is built from "
         "(--model.hf_path) must have the same contents on every machine, and a model must run the "
         "same collectives on every rank";
}

}  // namespace

void AgreeOnText(World& world, const std::string& what, const std::string& text,
                 std::string_view advice) {
  if (!HasOthers(world)) return;
  if (auto difference = Compare(world, {{.name = what, .text = text}})) {
    Fail(ErrorCode::kRanksDisagree,
         "the {} of rank {} differs from that of rank 0 in line {}: '{}' here, '{}' there; {}",
         what, world.rank(), difference->line, difference->mine, difference->theirs, advice);
  }
}

void AgreeOnConfig(World& world, const Config& config) { AgreeOnConfig(world, config, BuildId()); }

void AgreeOnConfig(World& world, const Config& config, std::string_view version) {
  AgreeOnText(world, "version of the program", std::string(version),
              "run the same build on every machine");
  AgreeOnText(world, "configuration", ToToml(config),
              "start every rank with the same flags and config files");
}

std::string CollectiveSequence(const Graph& graph) {
  std::string text;
  std::unordered_map<const Node*, int64_t> numbers;
  for (const Node* node : graph.nodes()) {
    const Operator& op = node->op();
    if (Launches(*node)) {
      numbers.emplace(node, static_cast<int64_t>(numbers.size()) + 1);
      text += fmt::format("{} on '{}'", op.name.str(), GroupOf(*node));
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        text += fmt::format(" {}", DTypeName(node->operand(i)->type().dtype));
      }
      text += fmt::format(" of {}\n", node->meta().module.str());
    } else if (op.collective == Collective::kWait) {
      const Value& awaited = *node->operand(0);
      auto launch = numbers.find(awaited.producer());
      if (launch == numbers.end()) {  // waiting for what has arrived takes no communication
        text += fmt::format("{}no collective\n", kWait);
        continue;
      }
      text += fmt::format("{}collective {}, {} on '{}' of {}, result {}\n", kWait, launch->second,
                          launch->first->op().name.str(), GroupOf(*launch->first),
                          launch->first->meta().module.str(), awaited.index());
    }
  }
  return text;
}

std::map<std::string, std::string> CollectiveSizes(const Graph& graph) {
  std::map<std::string, std::string> texts;
  int64_t number = 0;
  for (const Node* node : graph.nodes()) {
    if (!Launches(*node)) continue;
    std::string& text = texts[GroupOf(*node)];
    text += fmt::format("collective {}, {} of {}:", ++number, node->op().name.str(),
                        node->meta().module.str());
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      text += " " + SizesText(node->operand(i)->type(), graph.shapes());
    }
    text += '\n';
  }
  return texts;
}

void AgreeOnCollectives(World& world, const Graph& graph) {
  if (!HasOthers(world)) return;
  Statement sequence{.name = "sequence of collectives", .text = CollectiveSequence(graph)};
  if (auto difference = Compare(world, {std::move(sequence)})) {
    Fail(
        ErrorCode::kRanksDisagree,
        "the sequence of collectives of rank {} differs from that of rank 0 in line {}: '{}' here, "
        "'{}' there; {}",
        world.rank(), difference->line, difference->mine, difference->theirs,
        SequenceAdvice(*difference));
  }
  std::vector<Statement> sizes;
  std::vector<std::string> groups;
  for (auto& [group, text] : CollectiveSizes(graph)) {
    const Group* known = world.Find(group);
    if (known == nullptr) {
      Fail(ErrorCode::kNoBackend,
           "the graph names a process group '{}' that this job does not have", group);
    }
    sizes.push_back({"sizes of collectives on " + group, known->ranks[0], text});
    groups.push_back(group);
  }
  if (auto difference = Compare(world, sizes)) {
    Fail(ErrorCode::kRanksDisagree,
         "ranks {} and {} of group '{}' bring different sizes to one collective: '{}' on rank {}, "
         "'{}' on rank {}; files that decide sizes (tokenizer, --model.hf_path) must have the same "
         "contents on every machine, and a model must give a collective the same sizes on every "
         "rank of its group",
         world.rank(), sizes[difference->statement].writer, groups[difference->statement],
         difference->mine, world.rank(), difference->theirs, sizes[difference->statement].writer);
  }
}

}  // namespace gt
