// How many rows arrive at the experts of a rank, as data: given (--debug.moe_load), measured by the
// ranks of a job, or expected of a rank that is only simulated. A load is relative: 1 is the even
// share, the rows that would arrive if every expert got equally many.
//
// A captured step knows its loads as the hints of data symbols: the counts of arriving rows. Times
// and memory are estimated by hints and nothing else depends on them, so ApplyLoads changes what is
// planned and never what is computed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/sim/moe_load.h"

namespace gt {

struct ModuleLoad {
  double mean = 1.0;  // over ranks
  double max = 1.0;
  friend bool operator==(const ModuleLoad&, const ModuleLoad&) = default;
};

struct RoutingLoads {
  std::map<std::string, ModuleLoad> modules;  // by FQN; a module that is not there has even loads

  // {"modules": {"layers.1.moe": {"mean": 1.0, "max": 1.8}}}
  std::string ToJson() const;
  // Throws BadMoeLoads, which names `file` and the place in it.
  static RoutingLoads FromJson(std::string_view text, std::string_view file);

  friend bool operator==(const RoutingLoads&, const RoutingLoads&) = default;
};

// Largest load over mean load, averaged over modules: 1 when all ranks get equally many rows.
double Imbalance(const RoutingLoads& loads);

// How far loads are from those that a step was planned for, as a share of the rows that its exchanges
// move: the sum over modules of the difference, divided by the larger of both totals. Arriving rows
// are what both the volume of an exchange and the arithmetic of the experts are proportional to. A
// sum of absolute differences, because one layer's growth does not make up for another's loss: the
// schedule has to fill each layer's exchanges by itself. Compares the largest loads: an exchange ends
// when its fullest rank has its rows.
double LoadDrift(const RoutingLoads& planned, const RoutingLoads& now);

// The nodes that read token counts (labelled as count syncs), found once for a graph, whole or in
// chunks. Of each module's counts, those of rows that leave have a sum that a fact fixes: it is the
// even share. Those of rows that arrive have not: they are what a load scales.
class CountReads {
 public:
  explicit CountReads(const Graph& graph);

  struct Read {
    int64_t chunk = 0;
    int64_t even = 0;               // rows that arrive if loads are even
    std::vector<SymbolId> symbols;  // rows that arrive, by the rank they come from
  };
  struct Module {
    std::string fqn;
    std::vector<Read> arriving;  // by chunk
    std::vector<SymbolId> leaving;
  };
  // By FQN. A module whose even share is not known is left out.
  const std::vector<Module>& modules() const { return modules_; }

 private:
  std::vector<Module> modules_;
};

enum class LoadOf { kMean, kMax };

// Sets the hints of all counts of arriving rows, so that those of a module add up to its load times
// its even share. Modules without a load get their even share, whatever was applied before.
void ApplyLoads(Graph& graph, const RoutingLoads& loads, LoadOf which = LoadOf::kMax);

// Load of one module in a run of this rank.
double LoadIn(const CountReads::Module& module, SymbolValues values);

// What one rank has read in a run: its own loads, as mean and maximum alike.
RoutingLoads MeasuredLoads(const Graph& graph, SymbolValues values);

// ---- Loads that are given ----

// The weights of --debug.moe_load zipf:S and of files. A token's k experts are drawn by them without
// replacement, so that no expert gets more than one of a token's rows: loads are proportional to
// weights only as long as all are small.
class ExpertWeights {
 public:
  // Reads the file of kFile; throws BadMoeLoads. kRouter and kBalanced have no weights.
  explicit ExpertWeights(const MoeLoad& load);
  static ExpertWeights FromJson(std::string_view text, std::string_view file);

  // Of each expert of a module. Throws BadMoeLoads if the file has none for it, another number of
  // them, or fewer than `top_k` that are not 0.
  std::vector<double> Of(std::string_view fqn, int64_t experts, int64_t top_k) const;

 private:
  struct Entry {
    std::string pattern;
    std::vector<double> weights;
  };
  ExpertWeights() = default;
  const Entry& EntryOf(std::string_view fqn) const;

  double exponent_ = 0.0;
  std::string file_;  // empty: Zipf
  std::vector<Entry> entries_;
};

// Weight r^-exponent for the r-th most popular of the experts. Which one that is follows from a fixed
// permutation: in the order of their numbers, the first rank would have all popular ones.
std::vector<double> ZipfWeights(int64_t experts, double exponent);

// The draw, in closed form, so that the router (nn/moe.cc) makes it with a few operators and every
// rank, executor and chunk makes the same one. The token at position p takes the k experts e with the
// largest log(u) / weight[e], where u = frac(a * phase[e]) is the noise, a = (p + 1)^2 *
// kDrawMultiplier mod kDrawModulus. (Multiples of p + 1 itself are far from uniform for some phases.)
// With u uniform that is drawing by weight without replacement: -log(u) / weight is the time of the
// first event of a process with this rate.
inline constexpr int64_t kDrawModulus = int64_t{1} << 32;  // leaves noise 21 bits of a float64
inline constexpr int64_t kDrawMultiplier = 1540483477;     // times the modulus: below 2^63
std::vector<double> DrawPhases(int64_t experts);

// Rows of each expert when tokens at positions 0 to `tokens` - 1 draw.
std::vector<int64_t> DrawCounts(std::span<const double> weights, int64_t top_k, int64_t tokens);

// A module with experts, as much of it as routing depends on.
struct ExpertModule {
  std::string fqn;
  int64_t experts = 0;
  int64_t top_k = 0;
};

struct ExpectedRouting {
  RoutingLoads own;         // of the one rank: what it would measure as an emulated one
  RoutingLoads over_ranks;  // mean and maximum over the ranks that share the experts
};

// Loads that --debug.moe_load brings about. `rank` is one of `ranks` ranks that share the experts of
// each module, in the order of their numbers; it has `tokens` tokens at a time. Even loads for kRouter
// and kBalanced: what a router will do is not known before it runs.
ExpectedRouting ExpectedLoads(const MoeLoad& load, std::span<const ExpertModule> modules,
                              int64_t ranks, int64_t rank, int64_t tokens);

}  // namespace gt
