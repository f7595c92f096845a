// Chunked steps of which only ties, queues and times matter: for tests of orders.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/analysis/dependencies.h"
#include "gt/base/text.h"
#include "gt/ir/verifier.h"
#include "gt/sim/cost_model.h"
#include "gt/testing/random_graph.h"

namespace gt::testing {

// Times by the name of a node's first result; `rest` for those that are not listed and take time.
class NamedCosts : public CostModel {
 public:
  NamedCosts(const Graph& graph, std::map<std::string, double> costs, double host_read = 0,
             double rest = 1)
      : graph_(graph), costs_(std::move(costs)), rest_(rest) {
    device_.host_read_us = host_read;
  }
  double Microseconds(const Node& node) const override {
    if (!TakesTime(node, graph_.shapes().Hints())) return 0;
    auto found = node.result_count() == 0 ? costs_.end() : costs_.find(node.result()->name());
    return found == costs_.end() ? rest_ : found->second;
  }
  const DeviceSpeed& device() const override { return device_; }

 private:
  const Graph& graph_;
  std::map<std::string, double> costs_;
  double rest_;
  DeviceSpeed device_;
};

// Nodes are written "name=time kind: operands" and separated by ';'. The last digit of the name is the
// chunk. %x is an input of eight numbers, %w0 to %w3 are shares of parameters, four numbers each. Where
// two operands are given and the second is a read, the node computes with the number that was read.
// Kinds:
//   compute, or nothing   again   compute that the backward does a second time   part   half of it
//   dispatch, combine   exchanges of tokens   count   an exchange of counts   wait   for any of them
//   gather, scatter, reduce   in the group of parameters   join, share   gather and scatter of
//   activations in another group   copy   to the host   fetch   back from it   arrive   the end of either
//   read   of numbers   view   draw   random numbers   check   a side effect
class TimedStep {
 public:
  explicit TimedStep(Device device = Device()) : device_(device) {
    values_["x"] = graph_->AddInput(InputRole::kInput, "x", TypeOf(8), "x");
    for (int i = 0; i < 4; ++i) {
      const std::string name = "w" + std::to_string(i);
      values_[name] = graph_->AddInput(InputRole::kParameter, name, TypeOf(4), name);
    }
  }

  // The bodies of a region's chunks.
  TimedStep& Forward(std::string_view region, std::string_view nodes) {
    return Add(region, false, nodes);
  }
  TimedStep& Backward(std::string_view region, std::string_view nodes) {
    return Add(region, true, nodes);
  }
  // Nodes of no chunk.
  TimedStep& Outside(std::string_view nodes) { return Add("", false, nodes); }
  TimedStep& MadeBy(ChunkProducer producer) {
    producer_ = producer;
    return *this;
  }
  // Gradients are those of %w0, %w1 and so on, as they come.
  TimedStep& Return(std::string_view name, OutputRole role = OutputRole::kResult) {
    const bool gradient = role == OutputRole::kGradient;
    const std::string output = gradient ? "w" + std::to_string(gradients_++) : "r";
    graph_->AddOutput(role, output, values_.at(std::string(name)));
    return *this;
  }

  Graph& graph() const { return *graph_; }
  std::map<std::string, double>& times() { return times_; }
  double host_read = 0;

  NamedCosts Costs() const { return {*graph_, times_, host_read}; }
  bool Knows(std::string_view name) const { return nodes_.contains(std::string(name)); }
  Node* NodeOf(std::string_view name) const { return nodes_.at(std::string(name)); }
  Value* ValueOf(std::string_view name) const { return values_.at(std::string(name)); }
  const std::string& NameOf(const Node* node) const { return names_.at(node); }

  // Names as they are in the graph now; nodes that passes added are called by their operator.
  std::string Names() const {
    std::vector<std::string> names;
    for (const Node* node : graph_->nodes()) {
      auto found = names_.find(node);
      names.push_back(found == names_.end() ? node->op().name.str() : found->second);
    }
    return Join(names, " ");
  }
  std::string Names(std::span<const int32_t> order, const Dependencies& dependencies) const {
    std::vector<std::string> names;
    for (int32_t number : order) names.push_back(names_.at(dependencies.node(number)));
    return Join(names, " ");
  }

 private:
  TensorType TypeOf(int64_t count) const {
    return ContiguousType(DType::kInt64, device_, {count}, graph_->shapes());
  }

  TimedStep& Add(std::string_view region, bool backward, std::string_view nodes) {
    for (const std::string& statement : Split(nodes, ';')) {
      const size_t colon = statement.find(':');
      std::istringstream left(statement.substr(0, colon)), right(statement.substr(colon + 1));
      std::string name, kind = "compute", operand;
      left >> name >> kind;
      if (const size_t equals = name.find('='); equals != std::string::npos) {
        times_[name.substr(0, equals)] = std::stod(name.substr(equals + 1));
        name.resize(equals);
      }
      std::vector<std::string> operands;
      while (right >> operand) operands.push_back(operand);
      Node* node = Insert(name, kind, operands, MetaOf(region, backward, name, kind));
      names_[node] = name;
      nodes_[name] = node;
      if (node->result_count() > 0) values_[name] = node->result();
    }
    return *this;
  }

  Meta MetaOf(std::string_view region, bool backward, const std::string& name,
              const std::string& kind) const {
    Meta meta;
    meta.module = Name(region);
    meta.phase = backward ? Phase::kBackward : Phase::kForward;
    if (kind == "again") meta.recompute = Recompute::kMustRecompute;
    if (kind == "dispatch" || kind == "combine") meta.exchange = TokenExchange::kExchange;
    if (kind == "count") meta.exchange = TokenExchange::kCountExchange;
    if (kind == "dispatch" || kind == "count") meta.ep_role = EpRole::kDispatch;
    if (kind == "combine") meta.ep_role = EpRole::kCombine;
    if (region.empty()) return meta;
    auto chunk = std::make_shared<ChunkMeta>();
    chunk->id = name.back() - '0';
    chunk->region = Name(region);
    chunk->role = ChunkRole::kBody;
    chunk->producer = producer_;
    chunk->backward = backward;
    meta.chunk = std::move(chunk);
    return meta;
  }

  Node* Insert(const std::string& name, const std::string& kind,
               const std::vector<std::string>& operands, const Meta& meta) {
    auto make = [&](std::string_view op) {
      NodeBuilder builder(*graph_, op);
      builder.Named(name).With(meta);
      return builder;
    };
    auto value = [&](size_t i) { return values_.at(operands.at(i)); };
    if (kind == "wait") {
      return make("_c10d_functional::wait_tensor").Set("tensor", value(0)).Insert();
    }
    if (kind == "dispatch" || kind == "combine" || kind == "count") {
      return make("_c10d_functional::all_to_all_single")
          .Set("input", value(0))
          .Set("output_split_sizes", Argument(Shape{4, 4}))
          .Set("input_split_sizes", Argument(Shape{4, 4}))
          .Set("group_name", Argument(kind == "count" ? "counts" : "ep"))
          .Insert();
    }
    if (kind == "gather" || kind == "join") {
      return make("_c10d_functional::all_gather_into_tensor")
          .Set("input", value(0))
          .Set("group_size", Argument(Dim(2)))
          .Set("group_name", Argument(kind == "gather" ? "fsdp" : "tp"))
          .Insert();
    }
    if (kind == "scatter" || kind == "share") {
      return make("_c10d_functional::reduce_scatter_tensor")
          .Set("input", value(0))
          .Set("reduce_op", Argument("sum"))
          .Set("group_size", Argument(Dim(2)))
          .Set("group_name", Argument(kind == "scatter" ? "fsdp" : "tp"))
          .Insert();
    }
    if (kind == "reduce") {
      return make("_c10d_functional::all_reduce")
          .Set("input", value(0))
          .Set("reduce_op", Argument("sum"))
          .Set("group_name", Argument("fsdp"))
          .Insert();
    }
    if (kind == "part") {
      return make("aten::slice.Tensor").Set("self", value(0)).Set("end", Argument(Dim(4))).Insert();
    }
    if (kind == "read") return make("gt::read_ints").Set("self", value(0)).Insert();
    if (kind == "copy") return make("gt::offload").Set("self", value(0)).Insert();
    if (kind == "fetch") {
      return make("gt::reload").Set("self", value(0)).Set("device", Argument(device_)).Insert();
    }
    if (kind == "arrive") {
      return make("gt::wait_transfer").Set("moved", value(0)).Set("source", value(1)).Insert();
    }
    if (kind == "view") return make("aten::detach").Set("self", value(0)).Insert();
    if (kind == "draw") return make("aten::random").Set("self", value(0)).Insert();
    if (kind == "check") return make("aten::_assert_async").Set("self", value(0)).Insert();
    GT_CHECK(kind == "compute" || kind == "again", "no kind {}", kind);
    if (operands.size() == 1) return make("aten::neg").Set("self", value(0)).Insert();
    GT_CHECK(operands.size() == 2, "{} has {} operands", name, operands.size());
    if (const Node* read = nodes_.contains(operands[1]) ? nodes_.at(operands[1]) : nullptr;
        read != nullptr && !read->bound_symbols().empty()) {
      return make("aten::add.Scalar")
          .Set("self", value(0))
          .Set("other", Argument(Dim::Symbol(read->bound_symbols()[0])))
          .Insert();
    }
    return make("aten::add.Tensor").Set("self", value(0)).Set("other", value(1)).Insert();
  }

  Device device_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::unordered_map<std::string, Value*> values_;
  std::unordered_map<std::string, Node*> nodes_;
  std::unordered_map<const Node*, std::string> names_;
  std::map<std::string, double> times_;
  ChunkProducer producer_ = ChunkProducer::kGraph;
  int gradients_ = 0;
};

// The nodes of all chunks, one chunk after the other: '#' stands for the chunk, '@' for the block, '$'
// for what the block is given.
inline std::string Chunks(std::string_view nodes, const std::vector<int>& ids,
                          const std::string& block = "", const std::string& given = "x") {
  std::vector<std::string> bodies;
  for (int id : ids) {
    std::string body;
    for (char c : nodes) {
      if (c == '$') {
        for (char g : given) body += g == '#' ? std::to_string(id) : std::string(1, g);
      } else {
        body += c == '#' ? std::to_string(id) : c == '@' ? block : std::string(1, c);
      }
    }
    bodies.push_back(body);
  }
  return Join(bodies, ";");
}

// Steps with bodies of every kind of node, some regions forward and some backward, and with gathers and
// scatters of parameters around them if asked for.
inline std::unique_ptr<TimedStep> RandomTimedStep(uint64_t seed, int regions, int chunks, int nodes,
                                                  bool parameters, Device device = Device()) {
  std::mt19937_64 random(seed);
  auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  auto step = std::make_unique<TimedStep>(device);
  step->host_read = static_cast<double>(below(4));
  int made = 0;
  std::vector<std::string> whole = {"x"}, reads;
  auto time = [&] { return "=" + std::to_string(1 + below(40)); };
  auto name = [&](char kind, int chunk) {
    return std::string(1, kind) + std::to_string(made++) + "_" + std::to_string(chunk);
  };
  for (int region = 0; region < regions; ++region) {
    const bool backward = 2 * region >= regions;
    std::vector<std::string> results;
    if (parameters) {
      const std::string cast = name('p', 0), gather = name('G', 0), wait = name('g', 0);
      const std::string source = "w" + std::to_string(below(4));
      step->Outside(cast + time() + ": " + source + "; " + gather + time() + " gather: " + cast +
                    "; " + wait + " wait: " + gather);
      whole.push_back(wait);
    }
    for (int c = 0; c < chunks; ++c) {
      const int chunk = backward ? chunks - 1 - c : c;
      std::vector<std::string> values = {whole[below(whole.size())]}, in_flight;
      auto any = [&] {
        const size_t last = std::min<size_t>(values.size(), 4);
        return below(6) == 0 ? whole[below(whole.size())] : values[values.size() - 1 - below(last)];
      };
      auto add = [&](const std::string& text) {
        const std::string body = "layers." + std::to_string(region);
        backward ? step->Backward(body, text) : step->Forward(body, text);
      };
      auto land = [&] {
        std::swap(in_flight[below(in_flight.size())], in_flight.back());
        const std::string wait = name('w', chunk);
        add(wait + " wait: " + in_flight.back());
        values.push_back(wait);
        in_flight.pop_back();
      };
      for (int i = 0; i < nodes; ++i) {
        const std::string next = name('n', chunk);
        switch (below(14)) {
          case 0:
          case 1:
          case 2:
            in_flight.push_back(next);
            add(next + time() + (below(3) == 0 ? " count: " : " dispatch: ") + any());
            break;
          case 3:
          case 4:
            if (!in_flight.empty()) land();
            break;
          case 5: {
            const std::string copy = name('o', chunk);
            if (below(2) == 0) {
              add(next + " read: " + any());
            } else {
              add(copy + time() + " copy: " + any() + "; " + next + " read: " + copy);
            }
            reads.push_back(next);
            break;
          }
          case 6:
            if (reads.empty()) break;
            add(next + time() + ": " + any() + " " + reads[below(reads.size())]);
            values.push_back(next);
            break;
          case 7:
            add(next + " view: " + any());
            values.push_back(next);
            break;
          case 8:
            add(next + time() + " draw: " + any());
            values.push_back(next);
            break;
          case 9:
            add(next + " check: " + any());
            break;
          default:
            add(next + time() + ": " + any() + (below(2) == 0 ? "" : " " + any()));
            values.push_back(next);
        }
      }
      while (!in_flight.empty()) land();
      if (parameters && backward && c < 2 && region < regions / 2 + 2) {
        const std::string scatter = name('S', 0), wait = name('s', 0), sum = name('q', 0);
        step->Outside(scatter + time() + " scatter: " + any() + "; " + wait + " wait: " + scatter +
                      "; " + sum + time() + ": " + wait);
        step->Return(sum, OutputRole::kGradient);
      }
      results.push_back(values.back());
    }
    whole.insert(whole.end(), results.begin(), results.end());
  }
  step->Return(whole.back());
  return step;
}

}  // namespace gt::testing
