#include "gt/sim/routing_loads.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/json_text.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"

namespace gt {
namespace {

// The first pattern that fits a module counts, so keys stay in order.
nlohmann::ordered_json ParseLoads(std::string_view text, std::string_view file) {
  try {
    return ParseOrderedJson(text, {.keys = 1 << 14});
  } catch (const BadJson& problem) {
    Fail(ErrorCode::kBadMoeLoads, "{}: is not JSON: {}", file, problem.what());
  }
}

double NumberAt(const nlohmann::ordered_json& value, std::string_view file,
                const std::string& place) {
  const double number = value.is_number() ? value.get<double>() : -1.0;
  if (!(number >= 0 && std::isfinite(number))) {
    Fail(ErrorCode::kBadMoeLoads, "{}: {}: a number of at least 0 is expected, not {}", file, place,
         ShortJson(value));
  }
  return number;
}

const nlohmann::ordered_json& MemberOf(const nlohmann::ordered_json& object, const char* name,
                                       std::string_view file, const std::string& place) {
  if (!object.is_object()) {
    Fail(ErrorCode::kBadMoeLoads, "{}: {}: an object is expected, not {}", file, place,
         object.type_name());
  }
  auto found = object.find(name);
  if (found == object.end()) {
    Fail(ErrorCode::kBadMoeLoads, "{}: {}: '{}' is missing", file, place, name);
  }
  return *found;
}

}  // namespace

std::string RoutingLoads::ToJson() const {
  nlohmann::ordered_json json;
  nlohmann::ordered_json& by_name = json["modules"] = nlohmann::ordered_json::object();
  for (const auto& [fqn, load] : modules) by_name[fqn] = {{"mean", load.mean}, {"max", load.max}};
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

RoutingLoads RoutingLoads::FromJson(std::string_view text, std::string_view file) {
  const nlohmann::ordered_json json = ParseLoads(text, file);
  const nlohmann::ordered_json& modules = MemberOf(json, "modules", file, "the file");
  if (!modules.is_object()) {
    Fail(ErrorCode::kBadMoeLoads, "{}: modules: an object is expected, not {}", file,
         modules.type_name());
  }
  RoutingLoads loads;
  for (const auto& [fqn, load] : modules.items()) {
    auto number = [&, &fqn = fqn, &load = load](const char* name) {
      return NumberAt(MemberOf(load, name, file, fqn), file, fmt::format("{}.{}", fqn, name));
    };
    loads.modules[fqn] = {.mean = number("mean"), .max = number("max")};
  }
  return loads;
}

double Imbalance(const RoutingLoads& loads) {
  double sum = 0;
  for (const auto& [fqn, load] : loads.modules) sum += load.mean > 0 ? load.max / load.mean : 1.0;
  return loads.modules.empty() ? 1.0 : sum / static_cast<double>(loads.modules.size());
}

double LoadDrift(const RoutingLoads& planned, const RoutingLoads& now) {
  double difference = 0, before = 0, after = 0;
  auto add = [&](double a, double b) {
    difference += std::abs(a - b);
    before += a;
    after += b;
  };
  for (const auto& [fqn, load] : now.modules) {
    auto found = planned.modules.find(fqn);
    add(found == planned.modules.end() ? 1.0 : found->second.max, load.max);
  }
  for (const auto& [fqn, load] : planned.modules) {
    if (!now.modules.contains(fqn)) add(load.max, 1.0);
  }
  const double volume = std::max(before, after);
  return volume > 0 ? difference / volume : 0.0;
}

CountReads::CountReads(const Graph& graph) {
  struct Found {
    const Node* node;
    std::optional<int64_t> sum;  // that a fact fixes
  };
  std::vector<Found> reads;
  const ShapeEnv& shapes = graph.shapes();
  constexpr int32_t kNobody = -1;
  std::vector<int32_t> reader(shapes.symbols().size(), kNobody);  // by symbol
  for (const Node* node : graph.nodes()) {
    if (!node->op().reads_data || node->meta().exchange != TokenExchange::kCountSync) continue;
    for (SymbolId id : node->bound_symbols()) reader[id] = static_cast<int32_t>(reads.size());
    reads.push_back({node, std::nullopt});
  }
  if (reads.empty()) return;
  // Sums of counts have as many terms as there are ranks, so they are evaluated and never rearranged.
  std::vector<int64_t> values(shapes.Hints().begin(), shapes.Hints().end());
  for (const auto& [left, right] : shapes.facts()) {
    int32_t owner = kNobody;
    bool single = true;
    size_t mentioned = 0;
    auto look = [&](SymbolId id) {
      if (shapes.symbol(id).kind != Symbol::Kind::kData) return;
      if (mentioned++ == 0) owner = reader[id];
      single = single && owner != kNobody && reader[id] == owner;
    };
    left.ForEachSymbol(look);
    right.ForEachSymbol(look);
    if (!single || owner == kNobody) continue;
    Found& read = reads[static_cast<size_t>(owner)];
    const auto symbols = read.node->bound_symbols();
    if (mentioned != symbols.size()) continue;
    for (SymbolId id : symbols) values[id] = 0;
    read.sum = std::abs(left.Evaluate(values) - right.Evaluate(values));
    for (SymbolId id : symbols) values[id] = shapes.symbol(id).hint;
  }

  struct Chunk {
    int64_t even = 0;
    std::vector<const Node*> arriving;
  };
  struct Parts {
    std::map<int64_t, Chunk> chunks;
    std::vector<SymbolId> leaving;
  };
  std::map<std::string, Parts> modules;
  for (const Found& read : reads) {
    const Meta& meta = read.node->meta();
    Parts& parts = modules[meta.module.str()];
    Chunk& chunk = parts.chunks[meta.chunk == nullptr ? 0 : meta.chunk->id];
    const auto symbols = read.node->bound_symbols();
    if (read.sum) {
      chunk.even += *read.sum;
      parts.leaving.insert(parts.leaving.end(), symbols.begin(), symbols.end());
    } else {
      chunk.arriving.push_back(read.node);
    }
  }
  for (auto& [fqn, parts] : modules) {
    Module module{fqn, {}, std::move(parts.leaving)};
    for (const auto& [id, chunk] : parts.chunks) {
      // A module that is called several times in a step has as many reads, of equally many rows.
      const auto calls = static_cast<int64_t>(chunk.arriving.size());
      for (const Node* node : chunk.arriving) {
        const auto symbols = node->bound_symbols();
        module.arriving.push_back({id, chunk.even / calls, {symbols.begin(), symbols.end()}});
      }
    }
    if (!module.arriving.empty() && !module.leaving.empty()) modules_.push_back(std::move(module));
  }
}

void ApplyLoads(Graph& graph, const RoutingLoads& loads, LoadOf which) {
  ShapeEnv& shapes = graph.shapes();
  const CountReads reads(graph);
  for (const CountReads::Module& module : reads.modules()) {
    auto found = loads.modules.find(module.fqn);
    const ModuleLoad load = found == loads.modules.end() ? ModuleLoad{} : found->second;
    const double factor = which == LoadOf::kMax ? load.max : load.mean;
    double even = 0;
    int64_t given = 0;
    for (const CountReads::Read& read : module.arriving) {
      even += static_cast<double>(read.even);
      // What is lost by rounding in one chunk is made up for in the next.
      int64_t left = std::llround(factor * even) - given;
      given += left;
      auto count = static_cast<int64_t>(read.symbols.size());
      for (SymbolId id : read.symbols) {
        const int64_t share = left / count--;
        left -= share;
        const Symbol& symbol = shapes.symbol(id);
        shapes.SetDataHint(id, std::clamp(share, symbol.low, symbol.high));
      }
    }
  }
}

double LoadIn(const CountReads::Module& module, SymbolValues values) {
  int64_t arrived = 0, left = 0;
  for (const CountReads::Read& read : module.arriving) {
    for (SymbolId id : read.symbols) arrived += values[id];
  }
  for (SymbolId id : module.leaving) left += values[id];
  return left > 0 ? static_cast<double>(arrived) / static_cast<double>(left) : 1.0;
}

RoutingLoads MeasuredLoads(const Graph& graph, SymbolValues values) {
  RoutingLoads loads;
  const CountReads reads(graph);
  for (const CountReads::Module& module : reads.modules()) {
    const double load = LoadIn(module, values);
    loads.modules[module.fqn] = {load, load};
  }
  return loads;
}

namespace {

// SplitMix64: neighbours have nothing in common.
uint64_t Scrambled(uint64_t seed, int64_t number) {
  uint64_t x = seed + (static_cast<uint64_t>(number) + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t kPopularitySeed = 0x706f70756c617269ull;
constexpr uint64_t kPhaseSeed = 0x7068617365730000ull;

std::vector<double> WeightsIn(const nlohmann::ordered_json& json, std::string_view file,
                              const std::string& place) {
  if (!json.is_array() || json.empty()) {
    Fail(ErrorCode::kBadMoeLoads, "{}: {}: a list with the weight of every expert is expected",
         file, place);
  }
  std::vector<double> weights;
  for (size_t i = 0; i < json.size(); ++i) {
    weights.push_back(NumberAt(json[i], file, fmt::format("{}[{}]", place, i)));
  }
  return weights;
}

std::string ContentOf(const std::string& path) {
  try {
    return ReadWholeFile(path);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kBadMoeLoads, "cannot read the loads of experts in {} (--debug.moe_load): {}",
         path, problem.what());
  }
}

}  // namespace

ExpertWeights::ExpertWeights(const MoeLoad& load) {
  switch (load.kind) {
    case MoeLoad::Kind::kZipf:
      exponent_ = load.exponent;
      return;
    case MoeLoad::Kind::kFile:
      *this = FromJson(ContentOf(load.path), load.path);
      return;
    case MoeLoad::Kind::kRouter:
    case MoeLoad::Kind::kBalanced:
      break;
  }
  GT_CHECK(false, "loads that the router or nobody decides have no weights");
}

ExpertWeights ExpertWeights::FromJson(std::string_view text, std::string_view file) {
  const nlohmann::ordered_json json = ParseLoads(text, file);
  ExpertWeights weights;
  weights.file_ = file;
  if (json.is_array()) {
    weights.entries_.push_back({"**", WeightsIn(json, file, "the file")});
    return weights;
  }
  if (!json.is_object()) {
    Fail(ErrorCode::kBadMoeLoads,
         "{}: a list of weights, or an object with such a list for each module, is expected, not "
         "{}",
         file, json.type_name());
  }
  for (const auto& [pattern, list] : json.items()) {
    if (std::string why = FqnPatternProblem(pattern); !why.empty()) {
      Fail(ErrorCode::kBadMoeLoads, "{}: {} names no module: {}", file, Quoted(pattern), why);
    }
    weights.entries_.push_back({pattern, WeightsIn(list, file, pattern)});
  }
  return weights;
}

const ExpertWeights::Entry& ExpertWeights::EntryOf(std::string_view fqn) const {
  for (const Entry& entry : entries_) {
    if (entry.pattern == fqn) return entry;
  }
  for (const Entry& entry : entries_) {
    if (MatchesFqn(entry.pattern, fqn)) return entry;
  }
  Fail(ErrorCode::kBadMoeLoads, "{}: no entry is for module {}; add one, or \"**\" for all others",
       file_, fqn);
}

std::vector<double> ExpertWeights::Of(std::string_view fqn, int64_t experts, int64_t top_k) const {
  if (file_.empty()) return ZipfWeights(experts, exponent_);
  const Entry& entry = EntryOf(fqn);
  const auto count = static_cast<int64_t>(entry.weights.size());
  if (count != experts) {
    Fail(ErrorCode::kBadMoeLoads, "{}: {} has {} weights, but module {} has {} experts", file_,
         entry.pattern, count, fqn, experts);
  }
  const auto usable = std::count_if(entry.weights.begin(), entry.weights.end(),
                                    [](double weight) { return weight > 0; });
  if (usable < top_k) {
    Fail(ErrorCode::kBadMoeLoads,
         "{}: {} gives {} experts a weight above 0, but every token of module {} goes to {}", file_,
         entry.pattern, usable, fqn, top_k);
  }
  return entry.weights;
}

std::vector<double> ZipfWeights(int64_t experts, double exponent) {
  std::vector<int64_t> by_popularity(static_cast<size_t>(experts));
  std::iota(by_popularity.begin(), by_popularity.end(), 0);
  std::sort(by_popularity.begin(), by_popularity.end(), [](int64_t a, int64_t b) {
    return Scrambled(kPopularitySeed, a) < Scrambled(kPopularitySeed, b);
  });
  std::vector<double> weights(by_popularity.size());
  for (size_t i = 0; i < by_popularity.size(); ++i) {
    weights[static_cast<size_t>(by_popularity[i])] =
        std::pow(static_cast<double>(i + 1), -exponent);
  }
  return weights;
}

std::vector<double> DrawPhases(int64_t experts) {
  std::vector<double> phases;
  for (int64_t expert = 0; expert < experts; ++expert) {
    // 53 random bits and a last one that is set: strictly between 0 and 1.
    const uint64_t bits = Scrambled(kPhaseSeed, expert) >> 11 | 1;
    phases.push_back(static_cast<double>(bits) * 0x1p-53);
  }
  return phases;
}

std::vector<int64_t> DrawCounts(std::span<const double> weights, int64_t top_k, int64_t tokens) {
  const std::vector<double> phases = DrawPhases(static_cast<int64_t>(weights.size()));
  std::vector<int64_t> counts(weights.size(), 0);
  std::vector<std::pair<double, size_t>> race(weights.size());
  for (int64_t position = 0; position < tokens; ++position) {
    const int64_t square = (position + 1) * (position + 1) % kDrawModulus;
    const auto a = static_cast<double>(square * kDrawMultiplier % kDrawModulus);
    for (size_t expert = 0; expert < weights.size(); ++expert) {
      const double product = a * phases[expert];
      const double noise = std::log(product - std::trunc(product));
      race[expert] = {noise * (1.0 / weights[expert]), expert};
    }
    std::nth_element(race.begin(), race.begin() + (top_k - 1), race.end(), std::greater<>());
    for (int64_t i = 0; i < top_k; ++i) ++counts[race[static_cast<size_t>(i)].second];
  }
  return counts;
}

ExpectedRouting ExpectedLoads(const MoeLoad& load, std::span<const ExpertModule> modules,
                              int64_t ranks, int64_t rank, int64_t tokens) {
  ExpectedRouting expected;
  if (load.kind == MoeLoad::Kind::kRouter || load.kind == MoeLoad::Kind::kBalanced) {
    for (const ExpertModule& module : modules) {
      expected.own.modules[module.fqn] = expected.over_ranks.modules[module.fqn] = ModuleLoad{};
    }
    return expected;
  }
  // Shares of experts change by a percent at most from here on, and 671B has 58 such modules.
  constexpr int64_t kEnough = 8192;
  tokens = std::clamp<int64_t>(tokens, 1, kEnough);
  const ExpertWeights weights(load);
  using Key = std::pair<int64_t, std::vector<double>>;
  std::map<Key, std::vector<double>> known;  // top_k and weights -> loads by rank
  for (const ExpertModule& module : modules) {
    GT_CHECK(module.experts % ranks == 0 && rank < ranks, "{} experts of {} on {} ranks",
             module.experts, module.fqn, ranks);
    Key key{module.top_k, weights.Of(module.fqn, module.experts, module.top_k)};
    auto [found, is_new] = known.try_emplace(std::move(key));
    std::vector<double>& by_rank = found->second;
    if (is_new) {
      const std::vector<int64_t> counts = DrawCounts(found->first.second, module.top_k, tokens);
      const int64_t here = module.experts / ranks;
      for (auto at = counts.begin(); at != counts.end(); at += here) {
        const auto rows = static_cast<double>(std::accumulate(at, at + here, int64_t{0}));
        by_rank.push_back(rows * static_cast<double>(ranks) /
                          static_cast<double>(tokens * module.top_k));
      }
    }
    const double own = by_rank[static_cast<size_t>(rank)];
    const double sum = std::accumulate(by_rank.begin(), by_rank.end(), 0.0);
    expected.own.modules[module.fqn] = {own, own};
    expected.over_ranks.modules[module.fqn] = {sum / static_cast<double>(ranks),
                                               *std::max_element(by_rank.begin(), by_rank.end())};
  }
  return expected;
}

}  // namespace gt
