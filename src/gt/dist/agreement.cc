#include "gt/dist/agreement.h"

#include <fmt/format.h>

#include <sstream>

#include "gt/base/build_id.h"
#include "gt/base/error.h"
#include "gt/storage/checksum.h"

namespace gt {
namespace {

uint64_t HashOf(const std::string& text) {
  Xxh64 hash;
  hash.Update(std::as_bytes(std::span(text)));
  return hash.Digest();
}

struct Difference {
  int64_t line = 0;
  std::string mine, theirs;
};

Difference FirstDifference(const std::string& mine, const std::string& theirs) {
  std::istringstream left(mine), right(theirs);
  Difference difference;
  while (true) {
    ++difference.line;
    bool more_left = static_cast<bool>(std::getline(left, difference.mine));
    bool more_right = static_cast<bool>(std::getline(right, difference.theirs));
    if (!more_left) difference.mine = "(nothing)";
    if (!more_right) difference.theirs = "(nothing)";
    if (difference.mine != difference.theirs || (!more_left && !more_right)) return difference;
  }
}

std::string SizesText(const TensorType& type, const ShapeEnv& shapes) {
  std::string text;
  for (const Dim& size : type.sizes) {
    text += (text.empty() ? "" : ", ") + size.ToString(shapes.Namer());
  }
  return "[" + text + "]";
}

}  // namespace

// Hashes travel first: the texts themselves are read only when they differ.
void AgreeOnText(World& world, const std::string& what, const std::string& text) {
  if (world.size() == 1 || world.pretended()) return;
  world.Barrier();  // from here on, all notice at once when a rank that disagrees leaves
  std::string hash = fmt::format("{:016x}", HashOf(text));
  if (world.first()) {
    world.Publish(what + "/text", text);
    world.Publish(what + "/hash", hash);
  } else if (world.Read(what + "/hash", 0) != hash) {
    Difference difference = FirstDifference(text, world.Read(what + "/text", 0));
    Fail(ErrorCode::kRanksDisagree,
         "the {} of rank {} differs from that of rank 0 in line {}: '{}' here, '{}' there; start "
         "every rank with the same program, flags and config files",
         what, world.rank(), difference.line, difference.mine, difference.theirs);
  }
  world.Barrier();  // nobody goes on before everybody has agreed
}

void AgreeOnConfig(World& world, const Config& config) { AgreeOnConfig(world, config, BuildId()); }

void AgreeOnConfig(World& world, const Config& config, std::string_view version) {
  AgreeOnText(world, "configuration", fmt::format("version = {}\n{}", version, ToToml(config)));
}

std::string CollectiveSequence(const Graph& graph) {
  std::string text;
  for (const Node* node : graph.nodes()) {
    const Operator& op = node->op();
    if (op.collective == Collective::kNone || op.collective == Collective::kWait) continue;
    text +=
        fmt::format("{} on '{}'", op.name.str(), std::get<std::string>(node->arg(op.group_arg)));
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      const TensorType& type = node->operand(i)->type();
      text += fmt::format(" {}{}", DTypeName(type.dtype), SizesText(type, graph.shapes()));
    }
    text += fmt::format(" of {}\n", node->meta().module.str());
  }
  return text;
}

void AgreeOnCollectives(World& world, const Graph& graph) {
  if (world.size() == 1) return;
  AgreeOnText(world, "sequence of collectives", CollectiveSequence(graph));
}

}  // namespace gt
