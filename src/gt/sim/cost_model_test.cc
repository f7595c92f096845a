#include "gt/sim/cost_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::cost_model_test {
namespace {

// A graph with a model of its costs. Sizes are given where inputs are.
struct Modelled {
  Modelled(const std::string& inputs, const std::string& nodes, CostModelOptions options)
      : graph(Parse("graph @g(" + inputs + ") {\n" + nodes + "\n  return\n}\n")) {
    Verify(*graph);
    graph->NumberNodes();
    model = MakeCostModel(*graph, std::move(options));
  }
  const Node& At(const std::string& name) const { return *graph->FindValue(name)->producer(); }
  double Us(const std::string& name) const { return model->Microseconds(At(name)); }
  std::string Key(const std::string& name) const {
    return CostTable::KeyOf(At(name), graph->shapes().Hints());
  }

  std::unique_ptr<Graph> graph;
  std::unique_ptr<CostModel> model;
};

// Round numbers: 100 TFLOP/s of bf16, 10 of f32, 1000 GB/s (a byte in a nanosecond), 3 us at least.
DeviceSpeed RoundDevice() {
  return {.name = "round",
          .half_tflops = 100,
          .float_tflops = 10,
          .memory_gb_per_s = 1000,
          .kernel_us = 3,
          .launch_us = 5,
          .host_read_us = 25,
          .host_link_gb_per_s = 10};
}
CostModelOptions Round() { return {.device = RoundDevice()}; }

double Product(int64_t rows, int64_t inner, int64_t columns, const char* dtype = "bf16") {
  Modelled m(fmt::format("%a: input \"a\" {3}[{0}, {1}], %b: input \"b\" {3}[{1}, {2}]", rows,
                         inner, columns, dtype),
             fmt::format("%c = aten::mm(%a, %b) : {}[{}, {}]", dtype, rows, columns), Round());
  return m.Us("c");
}

// 2 * 1000 * 1000 * 1000 operations are 20 us at 100 TFLOP/s, and a kernel that size does not quite
// reach them. In f32 it takes ten times as long.
TEST(CostModelTest, ProductsByArithmetic) {
  EXPECT_DOUBLE_EQ(Product(1000, 1000, 1000), 20 + 3 + 3);
  EXPECT_DOUBLE_EQ(Product(1000, 1000, 1000, "f32"), 200 + 3 + 3);
}

TEST(CostModelTest, ProductsGrowWithTheirSizes) {
  double before = 0;
  for (int64_t rows : {1, 16, 100, 1000, 4000}) {
    double us = Product(rows, 512, 512);
    EXPECT_GT(us, before);
    before = us;
  }
  // Two halves take longer than the whole: that is the price of chunks.
  EXPECT_GT(2 * Product(2000, 1000, 1000), Product(4000, 1000, 1000));
  EXPECT_LT(2 * Product(2000, 1000, 1000), 1.1 * Product(4000, 1000, 1000));
}

// A product with one row reads its matrix and does little else.
TEST(CostModelTest, ThinProductsByTheirBytes) {
  EXPECT_NEAR(Product(1, 10000, 10000), 2e8 / 1e6 + 3, 1);
}

// 4 MB in, 4 MB out at 1000 GB/s.
TEST(CostModelTest, PointwiseByBytes) {
  Modelled m(R"(%x: input "x" f32[1000, 1000], %s: input "s" f32[1000])", R"(
  %a = aten::neg(%x) : f32[1000, 1000]
  %b = aten::mul.Tensor(%x, %a) : f32[1000, 1000]
  %e = aten::expand(%s, size = [1000, 1000]) : f32[1000, 1000]{0, 1}
  %c = aten::mul.Tensor(%x, %e) : f32[1000, 1000])",
             Round());
  EXPECT_DOUBLE_EQ(m.Us("a"), 8 + 3);
  EXPECT_DOUBLE_EQ(m.Us("b"), 12 + 3);
  EXPECT_DOUBLE_EQ(m.Us("c"), 8.004 + 3);  // one row is read, however often it is used
}

TEST(CostModelTest, ViewsWaitsAndReadsAreFree) {
  Modelled m(R"(%x: input "x" f32[8, 4], %n: input "n" i64[2])", R"(
  symbols { u0: data, hint 1; u1: data, hint 1 }
  %v = aten::view(%x, size = [32]) : f32[32]
  %r = aten::reshape(%x, shape = [4, 8]) : f32[4, 8]
  %t = aten::t(%x) : f32[4, 8]{1, 4}
  %q = aten::reshape(%t, shape = [32]) : f32[32]
  %c = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "g") : f32[8, 4]
  %w = _c10d_functional::wait_tensor(%c) : f32[8, 4]
  %e = aten::empty_like(%x) : f32[8, 4]
  gt::read_ints(%n) binds [u0, u1]
  %s = gt::generator_state(device = "cpu") : u8[5056])",
             Round());
  for (const char* name : {"v", "r", "t", "w", "e", "s"}) {
    EXPECT_EQ(m.Us(name), 0) << name;
    EXPECT_EQ(m.Key(name), "") << name;
    EXPECT_FALSE(TakesTime(m.At(name), m.graph->shapes().Hints())) << name;
  }
  EXPECT_GT(m.Us("q"), 3);  // has to copy
  EXPECT_EQ(m.Us("c"), 0);  // without links
  EXPECT_TRUE(TakesTime(m.At("c"), m.graph->shapes().Hints()));
}

// What picks rows reads those rows, not the table; what is made like a tensor does not read it.
TEST(CostModelTest, ReadsOnlyWhatItReturns) {
  Modelled m(R"(%w: input "w" f32[100000, 250], %i: input "i" i64[1000])", R"(
  %e = aten::embedding(%w, %i) : f32[1000, 250]
  %s = aten::index_select(%w, dim = 0, index = %i) : f32[1000, 250]
  %z = aten::zeros_like(%w) : f32[100000, 250])",
             Round());
  EXPECT_DOUBLE_EQ(m.Us("e"), 1 + 1 + 0.008 + 3);
  EXPECT_DOUBLE_EQ(m.Us("s"), 1 + 1 + 0.008 + 3);
  EXPECT_DOUBLE_EQ(m.Us("z"), 100 + 3);
}

// A kernel that knows that half of the pairs are masked skips them.
TEST(CostModelTest, CausalAttentionIsHalf) {
  auto us = [](const char* causal) {
    Modelled m(
        R"(%q: input "q" bf16[2, 8, 1024, 64])",
        fmt::format("%o, %l = aten::_scaled_dot_product_flash_attention_for_cpu(%q, %q, %q, "
                    "is_causal = {}) : (bf16[2, 8, 1024, 64], f32[2, 8, 1024]{{8192, 1, 8}})",
                    causal),
        Round());
    return m.Us("o") - 6;
  };
  EXPECT_NEAR(us("true"), us("false") / 2, 1e-9);
  EXPECT_NEAR(us("false"), 2.0 * 16 * 1024 * 1024 * 128 / 1e8 / 0.6, 1e-6);
}

TEST(CostModelTest, GroupedProductsReachLessThanOne) {
  Modelled m(
      R"(%x: input "x" bf16[1024, 256], %w: input "w" bf16[4, 256, 128], %e: input "e" i32[4], %v: input "v" bf16[256, 128])",
      "%y = aten::_grouped_mm(%x, %w, %e) : bf16[1024, 128]\n"
      "%z = aten::mm(%x, %v) : bf16[1024, 128]",
      Round());
  EXPECT_NEAR(m.Us("y") - 6, (m.Us("z") - 6) / 0.8, 1e-6);
}

TEST(CostModelTest, CopiesByTheHostLink) {
  Modelled m(R"(%x: input "x" f32[250000], %n: input "n" i64[4])", R"(
  symbols { u0: data, hint 1; u1: data, hint 1; u2: data, hint 1; u3: data, hint 1 }
  %o = gt::offload(%x) : f32[250000]
  %r = gt::reload(%o, device = "cpu") : f32[250000]
  %c = gt::offload(%n) : i64[4]
  gt::read_ints(%c) binds [u0, u1, u2, u3])",
             Round());
  EXPECT_DOUBLE_EQ(m.Us("o"), 100 + 3);
  EXPECT_DOUBLE_EQ(m.Us("r"), 100 + 3);
  EXPECT_DOUBLE_EQ(m.Us("c"), 0.0032 + 25);
  EXPECT_EQ(MovedBytes(m.At("o"), m.graph->shapes().Hints()), 1000000);
}

Cluster TwoGpuNodes() {
  return {.name = "test",
          .generation = "hopper",
          .gpus_per_node = 2,
          .links = SimpleLinks{.node = {1, 100}, .network = {7, 10}}};
}

constexpr const char* kCollectives = R"(
  %g = _c10d_functional::all_gather_into_tensor(%x, group_size = 4, group_name = "fsdp") : f32[32, 4]
  %r = _c10d_functional::reduce_scatter_tensor(%x, reduce_op = "sum", group_size = 4, group_name = "fsdp") : f32[2, 4]
  %t = _c10d_functional::all_to_all_single(%x, output_split_sizes = [5, 5], input_split_sizes = [4, 4], group_name = "ep") : f32[10, 4]
  %s = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "fsdp") : f32[8, 4]
  %u = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "loss") : f32[8, 4])";

// Bytes as links count them, and groups as large as their nodes say; the group of which no node says
// anything is as large as the largest.
TEST(CostModelTest, CollectivesByLinks) {
  LinkModel links(TwoGpuNodes());
  CostModelOptions options = Round();
  options.links = &links;
  options.link_scale = 3;
  Modelled m("%x: input \"x\" f32[8, 4]", kCollectives, std::move(options));
  auto us = [&links](Collective kind, int64_t bytes, int64_t nodes) {
    return 3 * links.Microseconds(kind, bytes, {.nodes = nodes, .ranks_per_node = 2});
  };
  EXPECT_DOUBLE_EQ(m.Us("g"), us(Collective::kAllGather, 512, 2));
  EXPECT_DOUBLE_EQ(m.Us("r"), us(Collective::kReduceScatter, 128, 2));
  EXPECT_DOUBLE_EQ(m.Us("t"), us(Collective::kAllToAll, 160, 1));
  EXPECT_DOUBLE_EQ(m.Us("s"), us(Collective::kAllReduce, 128, 2));
  EXPECT_DOUBLE_EQ(m.Us("u"), us(Collective::kAllReduce, 128, 2));
  EXPECT_GT(m.Us("t"), 0);
  EXPECT_EQ(m.Key("g"), "");
}

// What is known of a group takes precedence over what its nodes say.
TEST(CostModelTest, KnownGroups) {
  LinkModel links(TwoGpuNodes());
  CostModelOptions options = Round();
  options.links = &links;
  options.groups["ep"] = {.nodes = 2, .ranks_per_node = 1};
  options.groups["loss"] = {.nodes = 1, .ranks_per_node = 1};
  Modelled m("%x: input \"x\" f32[8, 4]", kCollectives, std::move(options));
  EXPECT_DOUBLE_EQ(
      m.Us("t"), links.Microseconds(Collective::kAllToAll, 160, {.nodes = 2, .ranks_per_node = 1}));
  EXPECT_EQ(m.Us("u"), 0);
  EXPECT_GT(m.Us("s"), 0);
}

TEST(CostModelTest, LoneGroupOfUnknownSizeIsFree) {
  LinkModel links(TwoGpuNodes());
  CostModelOptions options = Round();
  options.links = &links;
  Modelled m("%x: input \"x\" f32[8, 4]",
             "%u = _c10d_functional::all_reduce(%x, reduce_op = \"sum\", group_name = \"loss\") : "
             "f32[8, 4]",
             std::move(options));
  EXPECT_EQ(m.Us("u"), 0);
}

// Costs stay with their nodes when the graph is put into another order and numbered anew, and nodes
// that are added later have costs, too.
TEST(CostModelTest, FollowsMovedAndAddedNodes) {
  Modelled m(R"(%x: input "x" f32[1000, 1000], %y: input "y" f32[10])", R"(
  %a = aten::neg(%x) : f32[1000, 1000]
  %b = aten::neg(%y) : f32[10])",
             Round());
  double a = m.Us("a"), b = m.Us("b");
  ASSERT_NE(a, b);
  m.graph->MoveBefore(m.graph->FindValue("b")->producer(), m.graph->FindValue("a")->producer());
  m.graph->NumberNodes();
  EXPECT_EQ(m.Us("a"), a);
  EXPECT_EQ(m.Us("b"), b);
  Graph::NodeSpec spec;
  spec.op = FindOperator("aten::neg");
  spec.operands = {m.graph->FindValue("a")};
  spec.args = {OperandRef{0}};
  spec.name = "c";
  m.graph->Insert(std::move(spec), m.graph->first()->next()->next());
  EXPECT_EQ(m.Us("c"), a);
  m.graph->NumberNodes();
  EXPECT_EQ(m.Us("c"), a);
}

// Keys have sizes at the hints, strides only where they are not row-major, arguments only where they
// are not the default, and no devices.
TEST(CostTableTest, Keys) {
  Modelled m(R"(%a: input "a" bf16[s0, 2048], %b: input "b" bf16[1408, 2048])", R"(
  symbols { s0: input, hint 4096, range [2, 9999] }
  %t = aten::t(%b) : bf16[2048, 1408]{1, 2048}
  %c = aten::mm(%a, %t) : bf16[s0, 1408]
  %d = aten::sum.dim_IntList(%c, dim = [0], keepdim = true) : bf16[1, 1408]
  %e = aten::cat([%d, %d], dim = 1) : bf16[1, 2816]
  %f = aten::mul.Scalar(%e, other = 2.0) : bf16[1, 2816]
  %z = aten::zeros_like(%a) : bf16[s0, 2048])",
             Round());
  EXPECT_EQ(m.Key("c"), "aten::mm(bf16[4096,2048],bf16[2048,1408]{1,2048})");
  EXPECT_EQ(m.Key("d"), "aten::sum.dim_IntList(bf16[4096,1408],dim=[0],keepdim=true)");
  EXPECT_EQ(m.Key("e"), "aten::cat([bf16[1,1408],bf16[1,1408]],dim=1)");
  EXPECT_EQ(m.Key("f"), "aten::mul.Scalar(bf16[1,2816],other=2.0)");
  EXPECT_EQ(m.Key("z"), "aten::zeros_like(bf16[4096,2048])");
}

constexpr const char* kThreeInputs =
    R"(%a: input "a" f32[100, 100], %b: input "b" f32[1000, 1000], %i: input "i" i64[10])";
constexpr const char* kThreeNodes = R"(
  %m = aten::mm(%a, %a) : f32[100, 100]
  %n = aten::mm(%b, %b) : f32[1000, 1000]
  %s = aten::cat([%b, %b], dim = 1) : f32[1000, 2000]
  %z = aten::neg(%b) : f32[1000, 1000])";

// Measured times answer. Others are estimates, times how far those of the same operator were off; of
// an operator that was not measured, times how far all were off.
TEST(CostTableTest, CalibratesWhatWasNotMeasured) {
  Modelled estimated(kThreeInputs, kThreeNodes, Round());
  CostTable table;
  table.Set(estimated.Key("m"), 5 * estimated.Us("m"));
  // Of sizes and arguments that the graph does not have; 7 times what would be estimated.
  Modelled other(R"(%x: input "x" f32[50, 10])", R"(
  %s = aten::cat([%x, %x, %x], dim = 0) : f32[150, 10]
  %t = aten::t(%x) : f32[10, 50]{1, 10}
  %c = aten::clone(%t) : f32[10, 50]{1, 10})",
                 Round());
  table.Set(other.Key("s"), 7 * other.Us("s"));
  table.Set(other.Key("c"), 6 * other.Us("c"));
  // These say nothing that could be compared.
  table.Set("aten::unheard_of(f32[3])", 1000);
  table.Set("gt::flex_attention(f32[3],score_mod=graph:00ff)", 1000);
  table.Set("damaged[(", 1000);
  table.Set("aten::neg(f32[3]{", 1000);

  CostModelOptions options = Round();
  options.table = &table;
  Modelled m(kThreeInputs, kThreeNodes, std::move(options));
  EXPECT_DOUBLE_EQ(m.Us("m"), 5 * estimated.Us("m"));
  EXPECT_DOUBLE_EQ(m.Us("n"), 5 * estimated.Us("n"));
  EXPECT_DOUBLE_EQ(m.Us("s"), 7 * estimated.Us("s"));
  EXPECT_DOUBLE_EQ(m.Us("z"), 6 * estimated.Us("z"));  // the median of 5, 6 and 7
}

// One entry that is far off does not spoil the others.
TEST(CostTableTest, CalibratesByTheMedian) {
  Modelled estimated(kThreeInputs, kThreeNodes, Round());
  CostTable table;
  for (auto [rows, ratio] : {std::pair(64, 2.0), {128, 2.5}, {256, 90.0}}) {
    Modelled one(fmt::format("%x: input \"x\" f32[{}]", rows),
                 fmt::format("%y = aten::neg(%x) : f32[{}]", rows), Round());
    table.Set(one.Key("y"), ratio * one.Us("y"));
  }
  CostModelOptions options = Round();
  options.table = &table;
  Modelled m(kThreeInputs, kThreeNodes, std::move(options));
  EXPECT_DOUBLE_EQ(m.Us("z"), 2.5 * estimated.Us("z"));
}

// An empty table changes nothing.
TEST(CostTableTest, EmptyTable) {
  CostTable table;
  CostModelOptions options = Round();
  options.table = &table;
  Modelled m(kThreeInputs, kThreeNodes, std::move(options));
  EXPECT_EQ(m.Us("n"), Modelled(kThreeInputs, kThreeNodes, Round()).Us("n"));
}

// Times survive to the last bit, and names whatever they contain.
TEST(CostTableTest, JsonRoundTrip) {
  CostTable table;
  table.device = "NVIDIA \"H200\"";
  table.Set("aten::mm(f32[2,2],f32[2,2])", 0.1 + 0.2);
  table.Set("aten::gelu(f32[2],approximate=\"tanh\")", 0);
  CostTable read = CostTable::FromJson(table.ToJson(), "costs.json");
  EXPECT_EQ(read.device, table.device);
  EXPECT_EQ(read.costs(), table.costs());
  EXPECT_EQ(*read.Find("aten::mm(f32[2,2],f32[2,2])"), 0.1 + 0.2);
  EXPECT_EQ(read.Find("aten::mm"), nullptr);
  nlohmann::json json = nlohmann::json::parse(table.ToJson());
  EXPECT_EQ(json["unit"], "us");
  EXPECT_EQ(json["device"], table.device);
}

// Every damage is told with the file and what is wrong.
TEST(CostTableTest, DamagedJson) {
  auto with_cost = [](const std::string& cost) {
    return R"({"device": "x", "unit": "us", "costs": {"a": )" + cost + "}}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {R"({"device": "x", "unit": "us", "costs": {"a": 1)", "not JSON"},
      {"\xff\xfe", "not JSON"},
      {"[1]", "an object is expected, not array"},
      {R"({"unit": "us", "costs": {}})", "\"device\" is missing"},
      {R"({"device": 3, "unit": "us", "costs": {}})", "\"device\" must not be of type number"},
      {R"({"device": "x", "costs": {}})", "\"unit\" is missing"},
      {R"({"device": "x", "unit": "ms", "costs": {}})", "times are in \"ms\""},
      {R"({"device": "x", "unit": "us"})", "\"costs\" is missing"},
      {R"({"device": "x", "unit": "us", "costs": [1]})", "\"costs\" must not be of type array"},
      {with_cost("\"1\""), "\"a\" must be a number, not of type string"},
      {with_cost("null"), "\"a\" must be a number, not of type null"},
      {with_cost("-1"), "\"a\" cannot take -1 us"},
      {with_cost("1e999"), "1e999"},
  };
  for (const auto& [text, what] : cases) {
    try {
      CostTable::FromJson(text, "folder/costs.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadCosts) << text;
      EXPECT_EQ(error.message().rfind("folder/costs.json: ", 0), 0U) << error.message();
      EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
    }
  }
}

// Newer devices are faster, and an unknown one is taken for the most common.
TEST(DeviceSpeedTest, Generations) {
  DeviceSpeed hopper = SpeedOf("hopper"), blackwell = SpeedOf("blackwell"), cpu = SpeedOf("cpu");
  EXPECT_GT(blackwell.half_tflops, hopper.half_tflops);
  EXPECT_GT(blackwell.memory_gb_per_s, hopper.memory_gb_per_s);
  EXPECT_GT(hopper.half_tflops, 1000 * cpu.half_tflops);
  EXPECT_EQ(cpu.launch_us, 0);
  EXPECT_EQ(cpu.host_read_us, 0);
  EXPECT_EQ(SpeedOf("abacus").name, "hopper");
}

}  // namespace
}  // namespace gt::cost_model_test
