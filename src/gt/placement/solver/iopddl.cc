#include "gt/placement/solver/iopddl.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/base/byte_stream.h"
#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/placement/solver/problem_check.h"

namespace gt::placement {
namespace {

constexpr double kForbiddenFrom = 1e18;
constexpr size_t kLargestProblemFile = size_t{4} << 30;

enum ListKind { kEdgeCosts, kEdgeNodes, kNodeCosts, kNodeIntervals, kNodeUsages, kLists };
constexpr std::array<std::string_view, kLists> kListNames = {
    "problem.edges.costs", "problem.edges.nodes", "problem.nodes.costs", "problem.nodes.intervals",
    "problem.nodes.usages"};
constexpr std::string_view kLimitName = "problem.usage_limit";

// Lists of numbers, of which equal ones can be stored once.
class NumberLists {
 public:
  void Clear() {
    rows_.clear();
    row_of_.clear();
    by_hash_.clear();
  }
  void Add(const std::vector<double>& row, bool share) {
    if (share) {
      const size_t hash = std::hash<std::string_view>{}(
          {reinterpret_cast<const char*>(row.data()), row.size() * sizeof(double)});
      std::vector<size_t>& known = by_hash_[hash];
      for (const size_t i : known) {
        if (rows_[i] == row) return row_of_.push_back(i);
      }
      known.push_back(rows_.size());
    }
    row_of_.push_back(rows_.size());
    rows_.push_back(row);
  }
  size_t size() const { return row_of_.size(); }
  const std::vector<double>& operator[](size_t i) const { return rows_[row_of_[i]]; }
  size_t shared(size_t i) const { return row_of_[i]; }

 private:
  std::vector<std::vector<double>> rows_;
  std::vector<size_t> row_of_;
  std::unordered_map<size_t, std::vector<size_t>> by_hash_;
};

struct IopddlContent {
  std::array<NumberLists, kLists> lists;
  std::array<bool, kLists> present{};
  double limit = -1;
};

// Takes the numbers out of the file as it is read: a tree of a hundred megabytes of JSON would need
// gigabytes. Whatever the format does not have is skipped.
class IopddlReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  IopddlReader(std::string_view file, IopddlContent& content) : file_(file), content_(content) {}

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool string(string_t&) override { return Unexpected("a string"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }

  bool start_object(size_t) override {
    if (list_ >= 0) return Unexpected("an object");
    path_lengths_.push_back(path_.size());
    return true;
  }
  bool key(string_t& name) override {
    path_.resize(path_lengths_.back());
    if (skipped_ == 0) path_ += path_.empty() ? name : "." + name;
    return true;
  }
  bool end_object() override {
    path_.resize(path_lengths_.back());
    path_lengths_.pop_back();
    return true;
  }

  bool start_array(size_t) override {
    if (list_ < 0) return StartList();
    if (++depth_ > 2) return Unexpected("a list");
    row_.clear();
    return true;
  }
  bool end_array() override {
    if (skipped_ > 0) {
      --skipped_;
    } else if (--depth_ == 1) {
      content_.lists[static_cast<size_t>(list_)].Add(row_, list_ == kEdgeCosts);
    } else {
      list_ = -1;
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    Fail(ErrorCode::kBadPlacementProblem, "{}: byte {}: {}", file_, position, error.what());
  }

 private:
  bool StartList() {
    const auto* const found = std::ranges::find(kListNames, path_);
    if (skipped_ > 0 || found == kListNames.end()) {
      ++skipped_;
      return true;
    }
    list_ = static_cast<int>(found - kListNames.begin());
    depth_ = 1;
    content_.lists[static_cast<size_t>(list_)].Clear();
    content_.present[static_cast<size_t>(list_)] = true;
    return true;
  }

  bool Number(double value) {
    if (list_ >= 0) {
      if (depth_ != 2) return Unexpected("a number");
      if (!(value >= 0)) return Unexpected("a number below 0");
      row_.push_back(value);
    } else if (skipped_ == 0 && path_ == kLimitName) {
      if (!(value >= 0)) return Unexpected("a number below 0");
      content_.limit = value;
    }
    return true;
  }

  bool Unexpected(std::string_view what) const {
    if (list_ < 0) return true;
    Fail(ErrorCode::kBadPlacementProblem,
         "{}: {}[{}]: lists of numbers of at least 0 are expected here, not {}", file_, path_,
         content_.lists[static_cast<size_t>(list_)].size(), what);
  }

  const std::string_view file_;
  IopddlContent& content_;
  std::string path_;                  // keys from the top to here, with dots
  std::vector<size_t> path_lengths_;  // of the path around each open object
  int list_ = -1;                     // the list that is being read
  int depth_ = 0;                     // arrays that are open in it
  int skipped_ = 0;                   // arrays that are open around what is skipped
  std::vector<double> row_;
};

// Makes the problem of what was read, or says what in it does not go together.
class IopddlAssembly {
 public:
  IopddlAssembly(std::string_view file, const IopddlContent& content)
      : file_(file), content_(content) {}

  LabelProblem Make() {
    for (size_t kind = 0; kind < kLists; ++kind) {
      Require(content_.present[kind], "'{}' is missing", kListNames[kind]);
    }
    Require(content_.limit >= 0, "'{}' is missing", kLimitName);
    const size_t nodes = List(kNodeCosts).size();
    Require(List(kNodeIntervals).size() == nodes && List(kNodeUsages).size() == nodes,
            "problem.nodes: costs of {} nodes, intervals of {}, usages of {}", nodes,
            List(kNodeIntervals).size(), List(kNodeUsages).size());
    Require(List(kEdgeNodes).size() == List(kEdgeCosts).size(),
            "problem.edges: nodes of {} edges, costs of {}", List(kEdgeNodes).size(),
            List(kEdgeCosts).size());
    problem_.usage_limit = ToBytes(content_.limit);
    for (size_t v = 0; v < nodes; ++v) AddNode(v);
    for (size_t e = 0; e < List(kEdgeNodes).size(); ++e) AddEdge(e);
    return std::move(problem_);
  }

 private:
  template <typename... Args>
  void Require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (condition) return;
    Fail(ErrorCode::kBadPlacementProblem, "{}: {}", file_,
         fmt::format(format, std::forward<Args>(args)...));
  }
  const NumberLists& List(ListKind kind) const { return content_.lists[kind]; }

  static int64_t ToBytes(double value) {
    return value < 9e18 ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::max();
  }
  static double ToCost(double value) { return value >= kForbiddenFrom ? kForbidden : value; }

  void AddNode(size_t v) {
    Variable variable;
    const std::vector<double>& interval = List(kNodeIntervals)[v];
    constexpr double kLastTick = std::numeric_limits<int32_t>::max();
    Require(interval.size() == 2 && interval[0] <= interval[1] && interval[1] <= kLastTick,
            "problem.nodes.intervals[{}]: a begin and an end that is not before it are expected",
            v);
    for (const double cost : List(kNodeCosts)[v]) variable.costs.push_back(ToCost(cost));
    for (const double usage : List(kNodeUsages)[v]) variable.usage.push_back(ToBytes(usage));
    Require(!variable.costs.empty(), "problem.nodes.costs[{}]: a node has no strategies", v);
    Require(variable.usage.size() == variable.costs.size(),
            "problem.nodes.usages[{}]: {} strategies, but the usages of {}", v,
            variable.costs.size(), variable.usage.size());
    Require(std::ranges::max(variable.usage) <= kLargestUsage,
            "problem.nodes.usages[{}]: more than {} bytes", v, kLargestUsage);
    if (interval[0] < interval[1]) {
      variable.live.push_back(
          {static_cast<int32_t>(interval[0]), static_cast<int32_t>(interval[1]), 1});
    }
    problem_.variables.push_back(std::move(variable));
  }

  int32_t NodeOf(size_t e, size_t end) const {
    const double node = List(kEdgeNodes)[e][end];
    Require(node < static_cast<double>(problem_.variables.size()),
            "problem.edges.nodes[{}]: there are {} nodes only", e, problem_.variables.size());
    return static_cast<int32_t>(node);
  }

  void AddEdge(size_t e) {
    Require(List(kEdgeNodes)[e].size() == 2, "problem.edges.nodes[{}]: two nodes are expected", e);
    Edge edge{NodeOf(e, 0), NodeOf(e, 1), 0, 1};
    Require(edge.from != edge.to, "problem.edges.nodes[{}]: both are node {}", e, edge.from);
    const size_t rows = problem_.variables[static_cast<size_t>(edge.from)].costs.size();
    const size_t columns = problem_.variables[static_cast<size_t>(edge.to)].costs.size();
    Require(List(kEdgeCosts)[e].size() == rows * columns,
            "problem.edges.costs[{}]: {} costs, but its nodes have {} and {} strategies", e,
            List(kEdgeCosts)[e].size(), rows, columns);
    const auto [known, fresh] = matrices_.emplace(std::pair(List(kEdgeCosts).shared(e), rows),
                                                  static_cast<int32_t>(matrices_.size()));
    if (fresh) AddMatrix(List(kEdgeCosts)[e], rows, columns);
    edge.matrix = known->second;
    problem_.edges.push_back(edge);
  }

  void AddMatrix(const std::vector<double>& costs, size_t rows, size_t columns) {
    CostMatrix& matrix = problem_.matrices.emplace_back();
    matrix.rows = static_cast<int32_t>(rows);
    matrix.columns = static_cast<int32_t>(columns);
    for (const double cost : costs) matrix.values.push_back(static_cast<float>(ToCost(cost)));
  }

  const std::string_view file_;
  const IopddlContent& content_;
  LabelProblem problem_;
  std::map<std::pair<size_t, size_t>, int32_t> matrices_;  // by shared list and rows
};

// Problems are published as .json.gz.
std::string Decompressed(const std::filesystem::path& path) {
  constexpr size_t kPart = size_t{1} << 22;
  const std::unique_ptr<ByteStream> stream = OpenByteStream(path, CompressionOf(path));
  std::string text;
  for (size_t got = kPart; got > 0;) {
    const size_t size = text.size();
    if (size > kLargestProblemFile) throw UnreadableFile("it is larger than any problem");
    text.resize(size + kPart);
    got = stream->Read(text.data() + size, kPart);
    text.resize(size + got);
  }
  return text;
}

}  // namespace

LabelProblem ParseIopddl(std::string_view text, std::string_view file) {
  IopddlContent content;
  IopddlReader reader(file, content);
  nlohmann::json::sax_parse(text, &reader);
  return IopddlAssembly(file, content).Make();
}

LabelProblem ReadIopddl(const std::filesystem::path& path) {
  try {
    return ParseIopddl(CompressionOf(path) == Compression::kNone
                           ? ReadWholeFile(path, kLargestProblemFile)
                           : Decompressed(path),
                       path.string());
  } catch (const UnreadableFile& error) {
    Fail(ErrorCode::kBadPlacementProblem, "cannot read '{}': {}", path.string(), error.what());
  }
}

}  // namespace gt::placement
