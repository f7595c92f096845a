// Buckets of parameters and gradients: what is packed with what, where it starts and ends, and that
// every rank computes what it computed before. An interpreter of two ranks is the judge of that.
#include "gt/passes/fsdp/bucket_fsdp.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "gt/analysis/aliasing.h"
#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"

namespace gt::bucket_fsdp_test {
namespace {

constexpr int kRanks = 2;

std::vector<int64_t> Numbers(const Shape& shape) {
  std::vector<int64_t> numbers;
  for (const Dim& dim : shape) numbers.push_back(*dim.as_const());
  return numbers;
}

int64_t Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

// Elements in row-major order, for each rank. Inputs are small whole numbers, so that the order of
// sums does not show.
using Elements = std::vector<double>;
using OfRanks = std::vector<Elements>;

class Interpreter {
 public:
  explicit Interpreter(const Graph& graph) {
    for (const auto& input : graph.inputs()) {
      OfRanks& ranks = values_[&input->value];
      for (int r = 0; r < kRanks; ++r) {
        ranks.emplace_back(static_cast<size_t>(Product(Numbers(input->value.type().sizes))));
        for (double& element : ranks.back()) element = Draw();
      }
    }
    for (const Node* node : graph.nodes()) Run(*node);
  }

  OfRanks Of(const Value* value) const { return values_.at(value); }

 private:
  double Draw() { return static_cast<double>(std::uniform_int_distribution<int>(-3, 3)(random_)); }

  const OfRanks& In(const Node& node, int32_t i = 0) { return values_.at(node.operand(i)); }

  void Run(const Node& node) {
    const std::string& op = node.op().name.str();
    if (node.op().collective != Collective::kNone) {
      values_[node.result()] = Exchange(node);
    } else if (op.starts_with("aten::split_with_sizes")) {
      Split(node);
    } else {
      for (int r = 0; r < kRanks; ++r) {
        values_[node.result()].push_back(Compute(node, op, static_cast<size_t>(r)));
      }
    }
  }

  OfRanks Exchange(const Node& node) {
    const OfRanks& in = In(node);
    OfRanks out(kRanks);
    Elements all, sum(in[0].size());
    for (const Elements& part : in) {
      all.insert(all.end(), part.begin(), part.end());
      for (size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
    }
    const size_t share = sum.size() / kRanks;
    for (size_t r = 0; r < kRanks; ++r) {
      switch (node.op().collective) {
        case Collective::kAllGather:
          out[r] = all;
          break;
        case Collective::kAllReduce:
          out[r] = sum;
          break;
        case Collective::kReduceScatter: {
          auto begin = sum.begin() + static_cast<std::ptrdiff_t>(r * share);
          out[r].assign(begin, begin + static_cast<std::ptrdiff_t>(share));
          break;
        }
        default:
          out[r] = in[r];
          break;
      }
    }
    return out;
  }

  // A result's element at (outer, inner) is the operand's at (outer, offset + inner).
  void Split(const Node& node) {
    const std::vector<int64_t> sizes = Numbers(node.operand(0)->type().sizes);
    const auto dim = static_cast<size_t>(*std::get<Dim>(node.arg(2)).as_const());
    int64_t outer = 1, inner = 1, offset = 0;
    for (size_t d = 0; d < dim; ++d) outer *= sizes[d];
    for (size_t d = dim + 1; d < sizes.size(); ++d) inner *= sizes[d];
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const int64_t length = Numbers(node.result(i)->type().sizes)[dim] * inner;
      for (const Elements& in : In(node)) {
        Elements out;
        for (int64_t o = 0; o < outer; ++o) {
          auto begin = in.begin() + o * sizes[dim] * inner + offset;
          out.insert(out.end(), begin, begin + length);
        }
        values_[node.result(i)].push_back(out);
      }
      offset += length;
    }
  }

  Elements Compute(const Node& node, const std::string& op, size_t r) {
    const Elements& a = In(node)[r];
    if (op == "aten::cat") return Cat(node, r);
    if (op == "aten::sum") {
      double sum = 0;
      for (double element : a) sum += element;
      return {sum};
    }
    Elements out = a;
    if (op == "aten::neg") {
      for (double& element : out) element = -element;
    } else if (op == "aten::mul.Tensor" || op == "aten::add.Tensor") {
      const Elements& b = In(node, 1)[r];
      for (size_t i = 0; i < out.size(); ++i) {
        const double other = b.size() == 1 ? b[0] : b[i];
        out[i] = op == "aten::add.Tensor" ? out[i] + other : out[i] * other;
      }
    } else if (op == "aten::t") {
      const std::vector<int64_t> sizes = Numbers(node.operand(0)->type().sizes);
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t rows = static_cast<size_t>(sizes[0]), columns = static_cast<size_t>(sizes[1]);
        out[i] = a[i % rows * columns + i / rows];
      }
    } else if (op == "aten::constant_pad_nd" || op == "aten::slice.Tensor") {
      // Rows at the end come and go.
      out.resize(static_cast<size_t>(Product(Numbers(node.result()->type().sizes))));
    } else {
      static const std::set<std::string> kSame = {"aten::view", "aten::clone", "aten::_to_copy",
                                                  "aten::alias", "aten::contiguous"};
      GT_CHECK(kSame.contains(op), "{} is not known here", op);
    }
    return out;
  }

  Elements Cat(const Node& node, size_t r) {
    const int64_t rows =
        std::get<Dim>(node.arg(1)).Is(0) ? 1 : Numbers(node.operand(0)->type().sizes)[0];
    Elements out;
    for (int64_t row = 0; row < rows; ++row) {
      for (int32_t i = 0; i < node.operand_count(); ++i) {
        const Elements& in = In(node, i)[r];
        const auto width = static_cast<std::ptrdiff_t>(in.size()) / rows;
        out.insert(out.end(), in.begin() + row * width, in.begin() + (row + 1) * width);
      }
    }
    return out;
  }

  std::mt19937_64 random_{7};
  std::map<const Value*, OfRanks> values_;
};

std::vector<OfRanks> Outputs(const Graph& graph) {
  Interpreter ranks(graph);
  std::vector<OfRanks> all;
  for (const auto& output : graph.outputs()) all.push_back(ranks.Of(output->value()));
  return all;
}

// The value that was allocated to hold an output, for each.
std::vector<const Value*> Storages(const Graph& graph) {
  std::vector<const Value*> storages;
  for (const auto& output : graph.outputs()) {
    const Value* value = output->value();
    while (const Value* viewed = ViewedValue(*value)) value = viewed;
    storages.push_back(value);
  }
  return storages;
}

PassRun RunManaged(Graph& graph, int64_t prefetch) {
  PassList passes;
  passes.push_back(std::make_unique<BucketFsdp>(BucketFsdpOptions{.prefetch = prefetch}));
  // The manager verifies the result and compares hashes with what the pass says it did.
  PassManager manager(std::move(passes), {.write_reproducer = false});
  return manager.Run(graph).runs.at(0);
}

struct Result {
  std::unique_ptr<Graph> graph;
  PassRun run;

  int64_t Count(std::string_view counter) const {
    for (const auto& [name, value] : run.counters) {
      if (name == counter) return value;
    }
    ADD_FAILURE() << "no counter " << counter;
    return -1;
  }
  // Nodes in order, by the names of their results, without those that only rearrange.
  std::string Order() const {
    static const std::set<std::string> kRearranges = {"aten::view", "aten::split_with_sizes",
                                                      "aten::split_with_sizes_copy", "aten::cat",
                                                      "aten::clone"};
    std::vector<std::string> names;
    for (const Node* node : graph->nodes()) {
      if (!kRearranges.contains(node->op().name.str())) names.push_back(node->result()->name());
    }
    return Join(names, " ");
  }
  const Node& NodeOf(std::string_view value) const {
    const Value* found = graph->FindValue(value);
    GT_CHECK(found != nullptr, "no value {} in\n{}", value, Print(*graph));
    return *found->producer();
  }
  bool Has(std::string_view value) const { return graph->FindValue(value) != nullptr; }
  std::string OperandsOf(std::string_view value) const {
    std::vector<std::string> names;
    const Node& node = NodeOf(value);
    for (int32_t i = 0; i < node.operand_count(); ++i) names.push_back(node.operand(i)->name());
    return Join(names, " ");
  }
  std::string BucketOf(std::string_view value) const {
    return NodeOf(value).meta().fsdp_bucket.str();
  }
  // Whether the values are made in this order.
  void ExpectInOrder(const std::vector<std::string>& values) const {
    graph->NumberNodes();
    for (size_t i = 1; i < values.size(); ++i) {
      EXPECT_LT(NodeOf(values[i - 1]).number(), NodeOf(values[i]).number())
          << values[i - 1] << " before " << values[i] << " in " << Order();
    }
  }
};

Result Bucket(const std::string& text, int64_t prefetch = 1) {
  Result result{Parse(text), {}};
  Verify(*result.graph);
  const std::vector<OfRanks> before = Outputs(*result.graph);
  const std::vector<const Value*> storages = Storages(*result.graph);
  result.run = RunManaged(*result.graph, prefetch);
  EXPECT_EQ(Outputs(*result.graph), before) << Print(*result.graph);
  const std::vector<const Value*> storages_after = Storages(*result.graph);
  for (size_t i = 0; i < storages.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_EQ(storages[i] == storages[j], storages_after[i] == storages_after[j])
          << "outputs " << j << " and " << i;
    }
  }
  EXPECT_FALSE(RunManaged(*result.graph, prefetch).changed) << "a second run changes something";
  EXPECT_EQ(Parse(Print(*result.graph))->Hash(), result.graph->Hash());
  return result;
}

// Lines of text with parameters and outputs. A step computes with single numbers, so that
// parameters of any size fit each other.
struct Model {
  std::string inputs = "%x: input \"x\" f32[]";
  std::string lines;
  std::string outputs;
  std::string last = "x";  // what the next node computes with

  void Parameter(std::string_view name, std::string_view fqn, std::string_view type) {
    inputs += fmt::format(", %{}: param \"{}\" {}", name, fqn, type);
  }
  void Line(const std::string& line) { lines += "  " + line + "\n"; }

  // %<name>_g, %<name>_w, and their use %<name>_u in front of %<name>_h.
  void Gather(std::string_view name, std::string_view of, std::string_view type,
              std::string_view meta, std::string_view group = "fsdp") {
    Line(fmt::format(
        "%{0}_g = _c10d_functional::all_gather_into_tensor(%{1}, group_size = 2, group_name = "
        "\"{2}\") : {3} {{{4}}}",
        name, of, group, type, meta));
    Line(fmt::format("%{0}_w = _c10d_functional::wait_tensor(%{0}_g) : {1} {{{2}}}", name, type,
                     meta));
    Use(name, fmt::format("{}_w", name), type, meta);
  }
  void Use(std::string_view name, std::string_view value, std::string_view type,
           std::string_view meta) {
    Line(fmt::format("%{0}_u = aten::mul.Tensor(%{1}, %{2}) : {3} {{{4}}}", name, value, last, type,
                     meta));
    Line(fmt::format("%{0}_h = aten::sum(%{0}_u) : f32[] {{{1}}}", name, meta));
    last = fmt::format("{}_h", name);
  }
  // %<name>_r and its wait %<name>_v of the gradient %<name>_d.
  void Scatter(std::string_view name, std::string_view of, std::string_view type,
               std::string_view meta, std::string_view group = "fsdp") {
    Line(fmt::format(
        "%{0}_r = _c10d_functional::reduce_scatter_tensor(%{1}, reduce_op = \"sum\", group_size = "
        "2, group_name = \"{2}\") : {3} {{{4}}}",
        name, of, group, type, meta));
    Line(fmt::format("%{0}_v = _c10d_functional::wait_tensor(%{0}_r) : {1} {{{2}}}", name, type,
                     meta));
  }
  void Gradient(std::string_view fqn, std::string_view value) {
    outputs += fmt::format(", gradient \"{}\" %{}", fqn, value);
  }
  std::string Text() const {
    return fmt::format("graph @step({}) {{\n{}  return loss \"loss\" %{}{}\n}}\n", inputs, lines,
                       last, outputs);
  }
};

std::string Forward(std::string_view module) { return fmt::format("module = \"{}\"", module); }
std::string Backward(std::string_view module) {
  return fmt::format("module = \"{}\", phase = backward", module);
}

// Embeddings, blocks of two parameters (%a matrices, %b vectors), a norm and a head. The backward
// gathers the blocks' parameters again.
struct Transformer : Model {
  explicit Transformer(int blocks) {
    auto both = [](std::string_view name, std::string_view direction, int i) {
      return fmt::format("{}{}{}", name, direction, i);
    };
    Parameter("e", "tok_embeddings.weight", "f32[2]");
    for (int i = 0; i < blocks; ++i) {
      Parameter(both("a", "", i), fmt::format("layers.{}.wa.weight", i), "f32[2, 3]");
      Parameter(both("b", "", i), fmt::format("layers.{}.wb.weight", i), "f32[4]");
    }
    Parameter("n", "norm.weight", "f32[1]");
    Parameter("o", "output.weight", "f32[3, 1]");
    Gather("e", "e", "f32[4]", Forward("tok_embeddings"));
    for (int i = 0; i < blocks; ++i) {  // not in the order of the parameters
      Gather(both("b", "", i), both("b", "", i), "f32[8]", Forward(fmt::format("layers.{}.wb", i)));
      Gather(both("a", "", i), both("a", "", i), "f32[4, 3]",
             Forward(fmt::format("layers.{}.wa", i)));
    }
    Gather("n", "n", "f32[2]", Forward("norm"));
    Gather("o", "o", "f32[6, 1]", Forward("output"));
    Line(fmt::format("%l = aten::neg(%{}) : f32[] {{phase = loss}}", last));
    last = "l";
    Grad("o", "o", "f32[6, 1]", "f32[3, 1]", "output", "output.weight");
    Grad("n", "n", "f32[2]", "f32[1]", "norm", "norm.weight");
    for (int i = blocks - 1; i >= 0; --i) {
      const std::string a = fmt::format("layers.{}.wa", i), b = fmt::format("layers.{}.wb", i);
      Gather(both("a", "k", i), both("a", "", i), "f32[4, 3]", Backward(a));
      Grad(both("a", "", i), both("a", "k", i), "f32[4, 3]", "f32[2, 3]", a, a + ".weight");
      Gather(both("b", "k", i), both("b", "", i), "f32[8]", Backward(b));
      Grad(both("b", "", i), both("b", "k", i), "f32[8]", "f32[4]", b, b + ".weight");
    }
    Grad("e", "e", "f32[4]", "f32[2]", "tok_embeddings", "tok_embeddings.weight");
  }

  void Grad(const std::string& name, const std::string& gathered, std::string_view whole,
            std::string_view part, std::string_view module, std::string_view fqn) {
    Line(fmt::format("%{0}_d = aten::mul.Tensor(%{1}_w, %{2}) : {3} {{{4}}}", name, gathered, last,
                     whole, Backward(module)));
    Scatter(name, name + "_d", part, Backward(module));
    Gradient(fqn, name + "_v");
  }
};

std::string Between(const std::string& order, std::string_view from, std::string_view to) {
  const size_t begin = from.empty() ? 0 : order.find(fmt::format(" {} ", from)) + 1;
  const size_t end = to.empty() ? order.size() : order.find(fmt::format(" {} ", to));
  return order.substr(begin, end - begin);
}

TEST(BucketFsdp, GathersStartABlockAhead) {
  Result result = Bucket(Transformer(3).Text());
  EXPECT_EQ(Between(result.Order(), "", "l"),
            "e_g a0_g_bucket e_w e_u e_h "
            "a1_g_bucket a0_w_bucket b0_u b0_h a0_u a0_h "
            "a2_g_bucket a1_w_bucket b1_u b1_h a1_u a1_h "
            "n_g_bucket a2_w_bucket b2_u b2_h a2_u a2_h "
            "n_w_bucket n_u n_h o_u o_h");
  EXPECT_EQ(result.Count("gather_buckets"), 1 + 3 + 1 + 3);
  EXPECT_EQ(result.Count("gathers"), 1 + 6 + 2 + 6);
  EXPECT_EQ(result.Count("reduction_buckets"), 1 + 3 + 1);
  EXPECT_EQ(result.Count("reductions"), 1 + 6 + 2);
  EXPECT_EQ(result.Count("left_alone"), 0);
}

TEST(BucketFsdp, PrefetchIsAnOption) {
  EXPECT_EQ(Between(Bucket(Transformer(2).Text(), 0).Order(), "", "l"),
            "e_g e_w e_u e_h a0_g_bucket a0_w_bucket b0_u b0_h a0_u a0_h "
            "a1_g_bucket a1_w_bucket b1_u b1_h a1_u a1_h n_g_bucket n_w_bucket n_u n_h o_u o_h");
  EXPECT_EQ(Between(Bucket(Transformer(2).Text(), 2).Order(), "", "l"),
            "e_g a0_g_bucket a1_g_bucket e_w e_u e_h n_g_bucket a0_w_bucket b0_u b0_h a0_u a0_h "
            "a1_w_bucket b1_u b1_h a1_u a1_h n_w_bucket n_u n_h o_u o_h");
  BucketFsdp pass;
  EXPECT_EQ(pass.Spec(), "bucket_fsdp");
}

// Gathers of the backward wait for the backward, and reductions are finished behind the next one.
TEST(BucketFsdp, BackwardGathersAndReductions) {
  Result result = Bucket(Transformer(2).Text());
  EXPECT_EQ(Between(result.Order(), "l", ""),
            "l ak1_g_bucket o_d n_d n_r_bucket "
            "ak0_g_bucket ak1_w_bucket ak1_u ak1_h a1_d bk1_u bk1_h b1_d a1_r_bucket n_v_bucket "
            "ak0_w_bucket ak0_u ak0_h a0_d bk0_u bk0_h b0_d a0_r_bucket a1_v_bucket "
            "e_d e_r a0_v_bucket e_v");
  EXPECT_EQ(Between(Bucket(Transformer(2).Text(), 9).Order(), "l", "a1_d"),
            "l ak1_g_bucket ak0_g_bucket o_d n_d n_r_bucket ak1_w_bucket ak1_u ak1_h");
  EXPECT_EQ(Between(Bucket(Transformer(2).Text(), 0).Order(), "l", "a1_d"),
            "l o_d n_d n_r_bucket ak1_g_bucket ak1_w_bucket ak1_u ak1_h");
}

TEST(BucketFsdp, PacksInTheOrderOfParameters) {
  Result result = Bucket(Transformer(1).Text());
  EXPECT_EQ(result.OperandsOf("a0_g_pack"), "a0_g_flat b0");  // %b0 is flat already
  EXPECT_EQ(result.OperandsOf("a0_g_flat"), "a0");
  EXPECT_EQ(result.OperandsOf("a0_g_bucket"), "a0_g_pack");
  EXPECT_EQ(result.OperandsOf("a0_w_bucket"), "a0_g_bucket");
  EXPECT_EQ(result.OperandsOf("a0_g_rows"), "a0_w_bucket");
  EXPECT_EQ(result.OperandsOf("a0_u"), "a0_w_part b0_h");
  EXPECT_EQ(result.OperandsOf("a0_r_pack"), "a0_r_flat b0_r_flat");
  EXPECT_EQ(result.OperandsOf("a0_r_parts"), "a0_r_pack");
  EXPECT_EQ(result.OperandsOf("a0_r_bucket"), "a0_r_parts");
  EXPECT_EQ(result.NodeOf("a0_r_pack").result()->type().sizes, (Shape{Dim(2), Dim(10)}));
  for (const char* gone : {"a0_g", "a0_w", "b0_g", "b0_w", "a0_r", "a0_v", "bk0_w"}) {
    EXPECT_FALSE(result.Has(gone)) << gone;
  }
}

TEST(BucketFsdp, NamesAndMetadata) {
  Result result = Bucket(Transformer(2).Text());
  for (const char* name : {"a0_g_pack", "a0_g_bucket", "a0_w_bucket", "a0_g_rows", "a0_g_piece"}) {
    const Meta& meta = result.NodeOf(name).meta();
    EXPECT_EQ(meta.fsdp_bucket.str(), "layers.0") << name;
    EXPECT_EQ(meta.module.str(), "layers.0") << name;
    EXPECT_EQ(meta.phase, Phase::kForward) << name;
  }
  for (const char* name : {"a0_g_flat", "a0_w_part"}) {
    EXPECT_EQ(result.BucketOf(name), "layers.0") << name;
    EXPECT_EQ(result.NodeOf(name).meta().module.str(), "layers.0.wa") << name;
  }
  EXPECT_EQ(result.BucketOf("ak1_g_bucket"), "layers.1");
  EXPECT_EQ(result.NodeOf("ak1_g_bucket").meta().phase, Phase::kBackward);
  EXPECT_EQ(result.BucketOf("a1_r_bucket"), "layers.1");
  EXPECT_EQ(result.NodeOf("a1_v_own").meta().module.str(), "layers.1.wa");
  for (const char* name : {"n_g_bucket", "n_w_bucket", "n_r_bucket"}) {
    EXPECT_EQ(result.BucketOf(name), "norm+output") << name;
    EXPECT_EQ(result.NodeOf(name).meta().module.str(), "") << name;
  }
  for (const char* name : {"e_g", "e_w", "e_r", "e_v"}) {  // alone
    EXPECT_EQ(result.BucketOf(name), "tok_embeddings") << name;
    EXPECT_EQ(result.NodeOf(name).meta().module.str(), "tok_embeddings") << name;
  }
  EXPECT_EQ(result.BucketOf("a0_u"), "");
}

// Two outputs of the step must not lie in one piece of memory.
TEST(BucketFsdp, WhatTheStepReturnsIsCopied) {
  Model model;
  model.Parameter("a", "layers.0.a", "f32[2]");
  model.Parameter("b", "layers.0.b", "f32[4]");
  model.Parameter("c", "layers.0.c", "f32[2]");
  for (const char* name : {"a", "b", "c"}) {
    const std::string_view whole = name[0] == 'b' ? "f32[8]" : "f32[4]";
    const std::string_view part = name[0] == 'b' ? "f32[4]" : "f32[2]";
    model.Gather(name, name, whole, Backward("layers.0"));
    model.Scatter(name, fmt::format("{}_u", name), part, Backward("layers.0"));
  }
  model.Line("%a_n = aten::alias(%a_v) : f32[2] {phase = backward}");
  model.Line("%b_n = aten::_to_copy(%b_v, dtype = f32) : f32[4] {phase = backward}");
  model.Gradient("layers.0.a", "a_n");
  model.Gradient("layers.0.b", "b_n");
  model.Gradient("layers.0.c", "c_v");
  Result result = Bucket(model.Text());
  EXPECT_EQ(result.OperandsOf("a_n"), "a_v_own");
  EXPECT_EQ(result.OperandsOf("b_n"), "a_r_piece_2") << "the cast is a copy already";
  EXPECT_EQ(result.graph->outputs()[3]->value()->name(), "c_v_own");
}

TEST(BucketFsdp, ExpertsApartFromTheRest) {
  Model model;
  const std::vector<std::pair<std::string, std::string>> all = {
      {"a", "layers.0.attention.wq"}, {"b", "layers.0.moe.experts"},
      {"c", "layers.0.moe.experts"},  {"d", "layers.0.moe.shared_experts.w1"},
      {"f", "layers.0.moe.router"},   {"g", "layers.0.moe.router"}};
  for (const auto& [name, module] : all) model.Parameter(name, module + "." + name, "f32[2]");
  for (const auto& [name, module] : all) {
    model.Gather(name, name, "f32[4]", Forward(module), name == "g" ? "other" : "fsdp");
  }
  Result result = Bucket(model.Text());
  EXPECT_EQ(result.OperandsOf("a_g_pack"), "a d f");
  EXPECT_EQ(result.OperandsOf("b_g_pack"), "b c");
  EXPECT_EQ(result.BucketOf("a_g_bucket"), "layers.0");
  EXPECT_EQ(result.BucketOf("b_g_bucket"), "layers.0.moe.experts");
  EXPECT_EQ(result.NodeOf("b_g_bucket").meta().module.str(), "layers.0.moe.experts");
  EXPECT_EQ(result.BucketOf("g_g"), "layers.0.bucket2") << "another group";
  // All of a block starts where the block begins, in the order in which it is needed.
  EXPECT_EQ(
      result.Order(),
      "a_g_bucket b_g_bucket g_g a_w_bucket a_u a_h b_w_bucket b_u b_h c_u c_h d_u d_h f_u f_h "
      "g_w g_u g_h");
}

// Prefetching counts blocks, however many buckets they have.
TEST(BucketFsdp, AllBucketsOfABlockStartTogether) {
  Model model;
  for (int i = 0; i < 3; ++i) {
    for (const char* p : {"a", "x"}) {
      const std::string name = fmt::format("{}{}", p, i);
      const std::string module =
          fmt::format("layers.{}.{}", i, p[0] == 'x' ? "moe.experts" : "attention");
      model.Parameter(name, module + ".w", "f32[2]");
      model.Gather(name, name, "f32[4]", Forward(module));
    }
  }
  EXPECT_EQ(Bucket(model.Text()).Order(),
            "a0_g x0_g a1_g x1_g a0_w a0_u a0_h x0_w x0_u x0_h a2_g x2_g a1_w a1_u a1_h x1_w x1_u "
            "x1_h a2_w a2_u a2_h x2_w x2_u x2_h");
}

// Buckets that hold the same parameters have the same name, whatever comes first in the graph.
TEST(BucketFsdp, NamesAreThoseOfParameters) {
  Model model;
  model.Parameter("a", "layers.0.a", "f32[2]");
  model.Parameter("b", "layers.0.b", "f32[2]");
  model.Gather("b", "b", "f32[4]", Forward("layers.0"), "shard");
  model.Gather("a", "a", "f32[4]", Forward("layers.0"), "fsdp");
  model.Scatter("a", "a_u", "f32[2]", Backward("layers.0"), "fsdp");
  model.Scatter("b", "b_u", "f32[2]", Backward("layers.0"), "shard");
  model.Gradient("layers.0.a", "a_v");
  model.Gradient("layers.0.b", "b_v");
  Result result = Bucket(model.Text());
  for (const char* name : {"a_g", "a_w", "a_r", "a_v"}) {
    EXPECT_EQ(result.BucketOf(name), "layers.0") << name;
  }
  for (const char* name : {"b_g", "b_w", "b_r", "b_v"}) {
    EXPECT_EQ(result.BucketOf(name), "layers.0.bucket2") << name;
  }
}

TEST(BucketFsdp, DtypesApart) {
  Model model;
  for (const char* name : {"a", "b", "c", "d"}) {
    model.Parameter(name, fmt::format("layers.0.{}", name), "f32[2]");
  }
  for (const char* name : {"a", "c"}) {
    model.Line(fmt::format("%{0}_c = aten::_to_copy(%{0}, dtype = bf16) : bf16[2] {{{1}}}", name,
                           Forward("layers.0")));
  }
  const std::string meta = Forward("layers.0");
  for (const char* name : {"a", "b", "c", "d"}) {
    const bool half = name[0] == 'a' || name[0] == 'c';
    model.Gather(name, half ? fmt::format("{}_c", name) : name, half ? "bf16[4]" : "f32[4]", meta);
  }
  std::string text = model.Text();
  for (const char* name : {"a", "c"}) {  // sums of halves are halves
    const std::string line = fmt::format("%{0}_h = aten::sum(%{0}_u) : f32[]", name);
    text.replace(text.find(line), line.size(),
                 fmt::format("%{0}_h = aten::sum(%{0}_u) : bf16[]", name));
  }
  Result result = Bucket(text);
  EXPECT_EQ(result.OperandsOf("a_g_pack"), "a_c c_c");
  EXPECT_EQ(result.OperandsOf("b_g_pack"), "b d");
  EXPECT_EQ(result.Order().substr(0, 30), "a_c c_c a_g_bucket b_g_bucket ");
}

TEST(BucketFsdp, ChainsMoveWhole) {
  Model model;
  const std::string meta = Forward("layers.1"), back = Backward("layers.1");
  model.Parameter("a", "layers.1.a", "f32[3, 2]");
  model.Parameter("b", "layers.1.b", "f32[1]");
  model.Gather("z", "x", "f32[2]", Forward("tp"), "tp");
  // A shard by columns, padded to an even share.
  model.Line(fmt::format("%a1 = aten::t(%a) : f32[2, 3]{{1, 2}} {{{}}}", meta));
  model.Line(
      fmt::format("%a2 = aten::constant_pad_nd(%a1, pad = [0, 0, 0, 1]) : f32[3, 3] {{{}}}", meta));
  model.Line(fmt::format("%a3 = aten::alias(%a2) : f32[3, 3] {{{}}}", meta));
  model.Gather("a", "a3", "f32[6, 3]", meta);
  model.Gather("b", "b", "f32[2]", meta);
  model.Line(fmt::format("%d = aten::mul.Tensor(%a_w, %{}) : f32[6, 3] {{{}}}", model.last, back));
  model.Line(fmt::format("%d1 = aten::alias(%d) : f32[6, 3] {{{}}}", back));
  model.Scatter("a", "d1", "f32[3, 3]", back);
  model.Line(fmt::format(
      "%a4 = aten::slice.Tensor(%a_v, dim = 0, start = 0, end = 2) : f32[2, 3] {{{}}}", back));
  model.Line(fmt::format("%a5 = aten::t(%a4) : f32[3, 2]{{1, 3}} {{{}}}", back));
  model.Line(
      fmt::format("%a6 = aten::clone(%a5, memory_format = contiguous) : f32[3, 2] {{{}}}", back));
  model.Line(fmt::format("%d2 = aten::mul.Tensor(%b_w, %x) : f32[2] {{{}}}", back));
  model.Scatter("b", "d2", "f32[1]", back);
  model.Gradient("layers.1.a", "a6");
  model.Gradient("layers.1.b", "b_v");
  Result result = Bucket(model.Text());
  EXPECT_EQ(result.Order(),
            "a1 a2 a3 a_g_bucket z_g z_w z_u z_h a_w_bucket a_u a_h b_u b_h "
            "d d2 d1 a_r_bucket a_v_bucket a4 a5");
  EXPECT_EQ(result.OperandsOf("a_g_pack"), "a_g_flat b");
  EXPECT_EQ(result.OperandsOf("a_g_flat"), "a3");
}

// Gathers and reductions of activations, and tokens on their way, stay where they are.
TEST(BucketFsdp, ActivationsAreUntouched) {
  Transformer model(2);
  Model acts;
  acts.Line(R"(%p = aten::view(%b0_h, size = [1]) : f32[1] {module = "layers.0.wa"})");
  acts.Line(
      R"(%q = _c10d_functional::all_gather_into_tensor(%p, group_size = 2, group_name = "fsdp") : f32[2] {module = "layers.0.wa"})");
  acts.Line(R"(%q1 = _c10d_functional::wait_tensor(%q) : f32[2] {module = "layers.0.wa"})");
  acts.Line(
      R"(%s = _c10d_functional::reduce_scatter_tensor(%q1, reduce_op = "sum", group_size = 2, group_name = "fsdp") : f32[1] {module = "layers.0.wa"})");
  acts.Line(R"(%s1 = _c10d_functional::wait_tensor(%s) : f32[1] {module = "layers.0.wa"})");
  acts.Line(
      R"(%t = _c10d_functional::all_reduce(%s1, reduce_op = "sum", group_name = "fsdp") : f32[1] {module = "layers.0.wa"})");
  acts.Line(R"(%t1 = _c10d_functional::wait_tensor(%t) : f32[1] {module = "layers.0.wa"})");
  const size_t at = model.lines.find("  %a0_g");
  model.lines.insert(at, acts.lines);
  model.outputs += ", result \"t\" %t1";
  Result result = Bucket(model.Text());
  EXPECT_NE(result.Order().find("b0_u b0_h q q1 s s1 t t1 a0_u"), std::string::npos)
      << result.Order();
  for (const char* name : {"q", "s", "t"}) EXPECT_EQ(result.BucketOf(name), "");
  EXPECT_EQ(result.Count("left_alone"), 0);
}

// Replicated shards: the sums over shards are summed over replicas, one launch later.
TEST(BucketFsdp, ReductionsOverReplicas) {
  Model model;
  for (int i = 0; i < 3; ++i) {
    for (const char* p : {"a", "b"}) {
      model.Parameter(fmt::format("{}{}", p, i), fmt::format("layers.{}.{}", i, p), "f32[2]");
    }
  }
  for (int i = 2; i >= 0; --i) {
    for (const char* p : {"b", "a"}) {
      const std::string name = fmt::format("{}{}", p, i),
                        meta = Backward(fmt::format("layers.{}", i));
      model.Gather(name, name, "f32[4]", meta);
      model.Scatter(name, name + "_u", "f32[2]", meta);
      model.Line(fmt::format("%{0}_s = aten::alias(%{0}_v) : f32[2] {{{1}}}", name, meta));
      model.Line(
          fmt::format("%{0}_a = _c10d_functional::all_reduce(%{0}_s, reduce_op = \"sum\", "
                      "group_name = \"replicas\") : f32[2] {{{1}}}",
                      name, meta));
      model.Line(fmt::format("%{0}_b = _c10d_functional::wait_tensor(%{0}_a) : f32[2] {{{1}}}",
                             name, meta));
      model.Line(
          fmt::format("%{0}_c = aten::_to_copy(%{0}_b, dtype = f32) : f32[2] {{{1}}}", name, meta));
      model.Gradient(fmt::format("layers.{}.{}", i, p), name + "_c");
    }
  }
  Result result = Bucket(model.Text(), 9);
  const std::string order = result.Order();
  EXPECT_EQ(order.substr(order.find("a2_w_bucket")),
            "a2_w_bucket b2_u b2_h a2_u a2_r_bucket a2_h "
            "a1_w_bucket b1_u b1_h a1_u a1_r_bucket a2_v_bucket b2_s a2_s a2_a_bucket a1_h "
            "a0_w_bucket b0_u b0_h a0_u a0_r_bucket a1_v_bucket b1_s a1_s a1_a_bucket "
            "a2_b_bucket b2_c a2_c a0_h "
            "a0_v_bucket b0_s a0_s a0_a_bucket a1_b_bucket b1_c a1_c a0_b_bucket b0_c a0_c");
  EXPECT_EQ(result.OperandsOf("a2_a_pack"), "a2_s b2_s");
  EXPECT_EQ(result.BucketOf("a2_a_bucket"), "layers.2");
  EXPECT_EQ(result.BucketOf("a2_r_bucket"), "layers.2");
  EXPECT_EQ(result.Count("reduction_buckets"), 6);
}

// Without shards there is nothing but the sum over replicas.
TEST(BucketFsdp, ReductionsOfWholeGradients) {
  Model model;
  for (const char* name : {"a", "b"}) {
    model.Parameter(name, fmt::format("layers.0.{}", name), "f32[2]");
    model.Use(name, name, "f32[2]", Backward("layers.0"));
    model.Line(
        fmt::format("%{0}_a = _c10d_functional::all_reduce(%{0}_u, reduce_op = \"sum\", "
                    "group_name = \"dp\") : f32[2] {{{1}}}",
                    name, Backward("layers.0")));
    model.Line(fmt::format("%{0}_b = _c10d_functional::wait_tensor(%{0}_a) : f32[2]", name));
    model.Gradient(fmt::format("layers.0.{}", name), fmt::format("{}_b", name));
  }
  Result result = Bucket(model.Text());
  EXPECT_EQ(result.Order(), "a_u a_h b_u a_a_bucket b_h a_b_bucket");
  EXPECT_EQ(result.graph->outputs()[1]->value()->name(), "a_b_own");
}

// Shards along the second dimension that have one row, or none, are contiguous without a copy, with
// strides of their own. Their ranks must pack what ranks with longer shards pack.
TEST(BucketFsdp, ShortShardsArePackedLikeLongOnes) {
  for (int rows : {0, 1, 2}) {
    SCOPED_TRACE(rows);
    Model model;
    for (const char* name : {"a", "b"}) {
      const std::string type = fmt::format("f32[{}, 3]", rows), meta = Backward("layers.0");
      model.Parameter(name, fmt::format("layers.0.{}", name), type);
      model.Use(name, name, type, meta);
      model.Line(
          fmt::format("%{0}_t = aten::t(%{0}_u) : f32[3, {1}]{{1, 3}} {{{2}}}", name, rows, meta));
      if (rows > 1) {
        model.Line(
            fmt::format("%{0}_k = aten::clone(%{0}_t, memory_format = contiguous) : "
                        "f32[3, {1}] {{{2}}}",
                        name, rows, meta));
      }
      model.Line(
          fmt::format("%{0}_a = _c10d_functional::all_reduce(%{0}_{1}, reduce_op = \"sum\", "
                      "group_name = \"dp\") : f32[3, {2}] {{{3}}}",
                      name, rows > 1 ? "k" : "t", rows, meta));
      model.Line(
          fmt::format("%{0}_b = _c10d_functional::wait_tensor(%{0}_a) : f32[3, {1}]", name, rows));
      model.Line(
          fmt::format("%{0}_g = aten::view(%{0}_b, size = [{1}, 3]) : f32[{1}, 3]", name, rows));
      model.Gradient(fmt::format("layers.0.{}", name), fmt::format("{}_g", name));
    }
    Result result = Bucket(model.Text());
    EXPECT_EQ(result.Count("left_alone"), 0);
    EXPECT_EQ(result.Count("reduction_buckets"), 1);
  }
}

// Somebody needs a reduced gradient before the others of its block are made: it stays alone, and
// its wait stays in front of that user. One that is needed later is waited for there.
TEST(BucketFsdp, UsersOfReducedGradientsAreServed) {
  Model model;
  for (const char* name : {"a", "b", "c", "d"}) {
    model.Parameter(name, fmt::format("layers.0.{}", name), "f32[2]");
  }
  const std::string meta = Backward("layers.0");
  model.Gather("a", "a", "f32[4]", meta);
  model.Scatter("a", "a_u", "f32[2]", meta);
  model.Line(fmt::format("%early = aten::neg(%a_v) : f32[2] {{{}}}", meta));
  model.Gather("b", "b", "f32[4]", meta);
  model.Scatter("b", "b_u", "f32[2]", meta);
  model.Gather("c", "c", "f32[4]", meta);
  model.Scatter("c", "c_u", "f32[2]", meta);
  model.Line(fmt::format("%b_x = aten::alias(%b_v) : f32[2] {{{}}}", meta));
  model.Line(fmt::format("%later = aten::neg(%b_x) : f32[2] {{{}}}", meta));
  model.Gather("d", "d", "f32[4]", Backward("layers.1"));
  model.Scatter("d", "d_u", "f32[2]", Backward("layers.1"));
  for (const char* name : {"a", "b", "c", "d"}) {
    model.Gradient(fmt::format("layers.0.{}", name), fmt::format("{}_v", name));
  }
  model.outputs += ", result \"early\" %early, result \"later\" %later";
  Result result = Bucket(model.Text());
  const std::string order = result.Order();
  EXPECT_EQ(order.substr(order.find("a_u")),
            "a_u a_r a_h a_v early b_u b_h c_u b_r_bucket c_h b_v_bucket b_x later d_w d_u d_r d_h "
            "d_v");
  EXPECT_EQ(result.BucketOf("a_r"), "layers.0");
  EXPECT_EQ(result.BucketOf("b_r_bucket"), "layers.0.bucket2");
}

// The next gradients are computed from reduced ones of the same block: packing both would be a
// cycle.
TEST(BucketFsdp, NoCycles) {
  Model model;
  for (const char* name : {"a", "b", "c"}) {
    model.Parameter(name, fmt::format("layers.0.{}", name), "f32[2]");
  }
  const std::string meta = Backward("layers.0");
  model.Gather("a", "a", "f32[4]", meta);
  model.Scatter("a", "a_u", "f32[2]", meta);
  model.Line(fmt::format("%s = aten::sum(%a_v) : f32[] {{{}}}", meta));
  model.last = "s";
  model.Gather("b", "b", "f32[4]", meta);
  model.Scatter("b", "b_u", "f32[2]", meta);
  model.Gather("c", "c", "f32[4]", meta);
  model.Scatter("c", "c_u", "f32[2]", meta);
  // A reduction of what was reduced, without anything computed in between.
  model.Parameter("f", "layers.0.f", "f32[1]");
  model.Scatter("f", "c_v", "f32[1]", meta);
  for (const char* name : {"a", "b", "c", "f"}) {
    model.Gradient(fmt::format("layers.0.{}", name), fmt::format("{}_v", name));
  }
  Result result = Bucket(model.Text());
  const std::string order = result.Order();
  EXPECT_EQ(order.substr(order.find("a_u")),
            "a_u a_r a_h a_v s b_u b_h c_u b_r_bucket c_h b_v_bucket f_r f_v");
}

// The same without anything in between: the last gradient itself is made of a reduced one.
TEST(BucketFsdp, NoCyclesOfTwo) {
  Model model;
  const std::string meta = Backward("layers.0");
  model.Parameter("a", "layers.0.a", "f32[1]");
  model.Parameter("b", "layers.0.b", "f32[2]");
  model.Gather("b", "b", "f32[4]", meta);
  model.Gather("a", "a", "f32[2]", meta);
  model.Scatter("a", "a_u", "f32[1]", meta);
  model.Line(fmt::format("%b_d = aten::mul.Tensor(%b_w, %a_v) : f32[4] {{{}}}", meta));
  model.Scatter("b", "b_d", "f32[2]", meta);
  model.Gradient("layers.0.a", "a_v");
  model.Gradient("layers.0.b", "b_v");
  EXPECT_EQ(Bucket(model.Text()).Order(),
            "a_g_bucket a_w_bucket b_u b_h a_u a_r a_h a_v b_d b_r b_v");
}

// A parameter that two modules use has two gradients, which are added.
TEST(BucketFsdp, SharedParameters) {
  Model model;
  model.Parameter("a", "layers.0.a", "f32[2]");
  model.Parameter("b", "layers.0.b", "f32[2]");
  model.Gather("a", "a", "f32[4]", Backward("layers.1"));
  model.Scatter("a", "a_u", "f32[2]", Backward("layers.1"));
  model.Gather("c", "a", "f32[4]", Backward("layers.0"));
  model.Scatter("c", "c_u", "f32[2]", Backward("layers.0"));
  model.Line("%sum = aten::add.Tensor(%a_v, %c_v) : f32[2] {phase = backward}");
  model.Gather("b", "b", "f32[4]", Backward("layers.0"));
  model.Scatter("b", "b_u", "f32[2]", Backward("layers.0"));
  model.Gradient("layers.0.a", "sum");
  model.Gradient("layers.0.b", "b_v");
  Result result = Bucket(model.Text());
  const std::string order = result.Order();
  EXPECT_EQ(order.substr(order.find("a_u")),
            "a_u a_r a_h c_w_bucket c_u c_h b_u c_r_bucket a_v b_h c_v_bucket sum");
  EXPECT_EQ(result.OperandsOf("sum"), "a_v c_r_piece");
}

// Each chunk reduces its own gradients, and they are added.
TEST(BucketFsdp, ChunksApart) {
  Model model;
  for (const char* p : {"a", "b"}) {
    model.Parameter(p, fmt::format("layers.0.{}", p), "f32[2]");
    model.Gather(p, p, "f32[4]", Backward("layers.0"));
  }
  for (int chunk : {1, 0}) {
    const std::string meta =
        Backward("layers.0") +
        fmt::format(", chunk = {{id = {}, region = \"layers.0\", role = body, backward}}", chunk);
    for (const char* p : {"b", "a"}) {
      const std::string name = fmt::format("{}{}", p, chunk);
      model.Use(name, fmt::format("{}_w", p), "f32[4]", meta);
      model.Scatter(name, name + "_u", "f32[2]", meta);
    }
  }
  for (const char* p : {"a", "b"}) {
    model.Line(
        fmt::format("%{0}_s = aten::add.Tensor(%{0}1_v, %{0}0_v) : f32[2] {{phase = "
                    "backward}}",
                    p));
    model.Gradient(fmt::format("layers.0.{}", p), fmt::format("{}_s", p));
  }
  Result result = Bucket(model.Text());
  const std::string order = result.Order();
  EXPECT_EQ(
      order.substr(order.find("b1_u")),
      "b1_u b1_h a1_u a1_r_bucket a1_h b0_u b0_h a0_u a0_r_bucket a1_v_bucket a0_h a0_v_bucket "
      "a_s b_s");
  EXPECT_EQ(result.NodeOf("a1_r_bucket").meta().chunk->id, 1);
  EXPECT_EQ(result.NodeOf("a0_r_bucket").meta().chunk->id, 0);
  EXPECT_EQ(result.OperandsOf("a0_r_pack"), "a0_r_flat b0_r_flat");
}

TEST(BucketFsdp, SizesThatAreSymbolsAreLeftAlone) {
  auto graph = Parse(
      "graph @step(%a: param \"layers.0.a\" f32[s0], %b: param \"layers.0.b\" f32[2], %c: param "
      "\"layers.0.c\" f32[2]) {\n  symbols {\n    s0: input, hint 4, range [2, 8]\n  }\n"
      "  %n = aten::neg(%b) : f32[2] {module = \"layers.0\"}\n"
      "  %a_g = _c10d_functional::all_gather_into_tensor(%a, group_size = 2, group_name = \"g\") : "
      "f32[s0 * 2] {module = \"layers.0\"}\n"
      "  %a_w = _c10d_functional::wait_tensor(%a_g) : f32[s0 * 2] {module = \"layers.0\"}\n"
      "  %b_g = _c10d_functional::all_gather_into_tensor(%b, group_size = 2, group_name = \"g\") : "
      "f32[4] {module = \"layers.0\"}\n"
      "  %b_w = _c10d_functional::wait_tensor(%b_g) : f32[4] {module = \"layers.0\"}\n"
      "  %c_g = _c10d_functional::all_gather_into_tensor(%c, group_size = 2, group_name = \"g\") : "
      "f32[4] {module = \"layers.0\"}\n"
      "  %c_w = _c10d_functional::wait_tensor(%c_g) : f32[4] {module = \"layers.0\"}\n"
      "  return result \"n\" %n, result \"a\" %a_w, result \"b\" %b_w, result \"c\" %c_w\n}\n");
  PassRun run = RunManaged(*graph, 1);
  EXPECT_TRUE(run.changed);
  EXPECT_NE(graph->FindValue("a_g"), nullptr);
  EXPECT_TRUE(graph->FindValue("a_g")->producer()->meta().fsdp_bucket.empty());
  EXPECT_EQ(graph->FindValue("b_g"), nullptr);
}

TEST(BucketFsdp, GraphsWithoutParametersStay) {
  Model model;
  model.Gather("z", "x", "f32[2]", Forward("layers.0"), "tp");
  auto graph = Parse(model.Text());
  EXPECT_FALSE(RunManaged(*graph, 1).changed);
}

// A cast that others use as well stays where they find it.
TEST(BucketFsdp, SharedCasts) {
  Model model;
  model.Parameter("a", "layers.0.a", "f32[2]");
  model.Parameter("b", "layers.1.b", "f32[2]");
  model.Line("%c = aten::clone(%a) : f32[2] {module = \"layers.0\"}");
  model.Use("k", "c", "f32[2]", Forward("layers.0"));
  model.Gather("b", "b", "f32[4]", Forward("layers.1"));
  model.Gather("a", "c", "f32[4]", Backward("layers.0"));
  model.Gather("d", "c", "f32[4]", Backward("layers.0"));
  Result result = Bucket(model.Text(), 0);
  result.ExpectInOrder({"c", "k_u", "b_u", "a_g_bucket", "a_u"});
  EXPECT_EQ(result.OperandsOf("a_g_pack"), "c c");
}

// Draws a step at random: blocks, groups, chains, extra users, replicas.
class RandomStep {
 public:
  explicit RandomStep(uint64_t seed) : random_(seed) {
    const int count = 2 + Below(8);
    for (int i = 0; i < count; ++i) MakeParameter(i);
    for (int i = 0; i < count + 3; ++i) Gather(Below(count), i, false);
    for (int i = 0; i < 2 * count; ++i) Reduce(Below(count), i);
    for (int i = 0; i < count; ++i) {
      if (!gradients_[Index(i)].empty()) model_.Gradient(Fqn(i), gradients_[Index(i)]);
    }
  }
  std::string Text() const { return model_.Text(); }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }
  int Below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }
  std::string Fqn(int i) const { return modules_[Index(i)] + fmt::format(".p{}", i); }

  void MakeParameter(int i) {
    static const char* const kModules[] = {"tok",     "layers.0.wq",     "layers.0.moe.experts",
                                           "norm",    "layers.1.ffn.w1", "layers.1.moe.experts",
                                           "layers.1"};
    modules_.emplace_back(kModules[Below(7)]);
    rows_.push_back(1 + Below(3));
    gradients_.emplace_back();
    model_.Parameter(fmt::format("p{}", i), Fqn(i), fmt::format("f32[{}, 2]", rows_.back()));
  }
  const char* Group() { return Below(4) == 0 ? "other" : "fsdp"; }

  // A gather and its use; sometimes through a copy, sometimes in the backward.
  std::string Gather(int p, int id, bool backward) {
    const std::string name = fmt::format("{}{}", backward ? "k" : "f", id);
    const std::string meta = backward ? Backward(modules_[Index(p)]) : Forward(modules_[Index(p)]);
    std::string of = fmt::format("p{}", p);
    if (Below(3) == 0) {
      model_.Line(fmt::format("%{}_c = aten::clone(%{}) : f32[{}, 2] {{{}}}", name, of,
                              rows_[Index(p)], meta));
      of = name + "_c";
    }
    model_.Gather(name, of, fmt::format("f32[{}, 2]", 2 * rows_[Index(p)]), meta, Group());
    return name;
  }

  void Reduce(int p, int id) {
    const std::string name = Gather(p, id, true), meta = Backward(modules_[Index(p)]);
    const std::string type = fmt::format("f32[{}, 2]", rows_[Index(p)]);
    model_.Scatter(name, name + "_u", type, meta, Group());
    std::string value = name + "_v";
    if (Below(4) == 0) {
      model_.Line(fmt::format("%{}_x = aten::view(%{}, size = [{}]) : f32[{}] {{{}}}", name, value,
                              2 * rows_[Index(p)], 2 * rows_[Index(p)], meta));
      model_.Line(fmt::format("%{0}_y = aten::sum(%{0}_x) : f32[] {{{1}}}", name, meta));
      if (Below(2) == 0) model_.last = name + "_y";  // what follows depends on the reduced gradient
    }
    if (Below(3) == 0) {
      model_.Line(
          fmt::format("%{}_a = _c10d_functional::all_reduce(%{}, reduce_op = \"sum\", "
                      "group_name = \"replicas\") : {} {{{}}}",
                      name, value, type, meta));
      model_.Line(fmt::format("%{0}_b = _c10d_functional::wait_tensor(%{0}_a) : {1} {{{2}}}", name,
                              type, meta));
      value = name + "_b";
    }
    std::string& gradient = gradients_[Index(p)];
    if (!gradient.empty()) {
      model_.Line(fmt::format("%{}_s = aten::add.Tensor(%{}, %{}) : {} {{{}}}", name, gradient,
                              value, type, meta));
      value = name + "_s";
    }
    gradient = value;
  }

  std::mt19937_64 random_;
  Model model_;
  std::vector<std::string> modules_, gradients_;
  std::vector<int> rows_;
};

TEST(BucketFsdp, RandomSteps) {
  int64_t packed = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Result result = Bucket(RandomStep(seed).Text(), static_cast<int64_t>(seed % 4));
    packed += result.Count("gathers") - result.Count("gather_buckets");
    packed += result.Count("reductions") - result.Count("reduction_buckets");
    if (HasFailure()) break;
  }
  EXPECT_GT(packed, 1000);
}

}  // namespace
}  // namespace gt::bucket_fsdp_test
