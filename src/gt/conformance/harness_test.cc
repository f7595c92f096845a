#include "gt/conformance/harness.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "gt/base/error.h"
#include "gt/conformance/call_comparison.h"
#include "gt/conformance/sharding_checks.h"
#include "gt/testing/slow_tests.h"

namespace gt::conformance {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != 0 ? std::atoll(text) : otherwise;
}

uint64_t BaseSeed() {
  static const auto kSeed = static_cast<uint64_t>(FromEnvironment("GT_CONFORMANCE_SEED", 20240607));
  return kSeed;
}

int64_t Iterations() {
  static const int64_t kCount =
      FromEnvironment("GT_CONFORMANCE_ITERATIONS", 400) * (testing::SlowTestsWanted() ? 10 : 1);
  return kCount;
}

std::string_view NameOf(Variant variant) {
  constexpr std::string_view kNames[] = {"static", "symbolic", "data"};
  return kNames[static_cast<size_t>(variant)];
}

struct Entry {
  std::vector<std::pair<void (*)(Case&), ConformOptions>> generators;
};

// Filled by static initializers, read by tests.
std::map<std::string, Entry, std::less<>>& Entries() {
  static auto* entries = new std::map<std::string, Entry, std::less<>>();
  return *entries;
}

std::map<std::string, std::string, std::less<>>& Exemptions() {
  static auto* exemptions = new std::map<std::string, std::string, std::less<>>();
  return *exemptions;
}

// libtorch warns about casts and degenerate variances that random calls meet all the time.
class Quiet : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class ConformanceTest : public ::testing::Test {
 public:
  explicit ConformanceTest(std::string op) : op_name_(std::move(op)) {}

  void TestBody() override {
    const Operator* op = FindOperator(std::string_view(op_name_));
    ASSERT_NE(op, nullptr) << op_name_ << " has conformance cases but no entry in ops/";
    c10::NoGradGuard no_grad;
    at::set_num_threads(
        1);  // the tensors are tiny; waking threads for them takes longer than the work
    Quiet quiet;
    c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    const Entry& entry = Entries().at(op_name_);
    for (size_t g = 0; g < entry.generators.size(); ++g) {
      const auto& [generate, options] = entry.generators[g];
      for (Variant variant : {Variant::kStatic, Variant::kSymbolic, Variant::kData}) {
        if (variant == Variant::kData && !options.data_variant) continue;
        if (!RunVariant(*op, g, generate, options, variant)) return;
      }
    }
    ExpectShardsProved(*op);
  }

 private:
  // Every way that the rule gave for some call, once at least.
  static void ExpectShardsProved(const Operator& op) {
    const bool all_ran = FromEnvironment("GT_CONFORMANCE_ONLY", -1) < 0 && Iterations() >= 400;
    if (op.sharding == nullptr || Case::on_cuda() || !all_ran) return;
    EXPECT_GE(ProvedRows(op), 1) << op.name.str() << " has a sharding rule that nothing proves";
    EXPECT_TRUE(UnprovedRows(op).empty()) << op.name.str() << ": no call proves "
                                          << fmt::format("{}", fmt::join(UnprovedRows(op), "; "));
  }

  bool RunVariant(const Operator& op, size_t generator, void (*generate)(Case&),
                  const ConformOptions& options, Variant variant) {
    auto count = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(Iterations()) * options.share));
    int64_t only = FromEnvironment("GT_CONFORMANCE_ONLY", -1);
    int64_t agreed = 0, elsewhere = 0, with_symbols = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (only >= 0 && i != only) continue;
      uint64_t seed = BaseSeed() + std::hash<std::string>()(op_name_) + generator * 7919 +
                      static_cast<uint64_t>(i) * 1000003 +
                      static_cast<uint64_t>(variant) * 15485863;
      Case c(op, variant, seed);
      generate(c);
      at::manual_seed(i);
      const Comparison comparison = Compare(c);
      if (comparison.outcome == Comparison::Outcome::kDiffers) {
        ADD_FAILURE() << comparison.problem << "\nrepeat with"
                      << " GT_CONFORMANCE_SEED=" << BaseSeed() << " GT_CONFORMANCE_ONLY=" << i
                      << " (variant " << NameOf(variant) << ")";
        return false;
      }
      if (comparison.outcome == Comparison::Outcome::kNoKernel) return true;
      const bool agrees = comparison.outcome == Comparison::Outcome::kAgrees;
      agreed += agrees;
      if (agrees && !c.env().symbols().empty()) {
        ++with_symbols;
        elsewhere += comparison.elsewhere;
      }
    }
    if (only >= 0) return true;
    // A generator whose calls are mostly rejected, or whose symbols can never move, would test
    // nothing.
    EXPECT_GE(agreed * 3, count) << op_name_ << ": too few valid calls, variant "
                                 << NameOf(variant);
    EXPECT_GE(elsewhere * 3, with_symbols)
        << op_name_ << ": too few calls could be repeated at other extents, variant "
        << NameOf(variant);
    return true;
  }

  std::string op_name_;
};

void Register(std::string_view op, void (*generate)(Case&), const ConformOptions& options) {
  std::string name(op);
  Entry& entry = Entries()[name];
  entry.generators.emplace_back(generate, options);
  if (entry.generators.size() > 1) return;
  std::string test;
  for (char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      test += c;
    } else if (test.empty() || test.back() != '_' || c == '_') {
      test += '_';
    }
  }
  ::testing::RegisterTest("Conformance", test.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [name]() -> ::testing::Test* { return new ConformanceTest(name); });
}

}  // namespace

Conform::Conform(std::string_view op, void (*generate)(Case&), ConformOptions options) {
  Register(op, generate, options);
}

Conform::Conform(std::initializer_list<std::string_view> ops, void (*generate)(Case&),
                 ConformOptions options) {
  for (std::string_view op : ops) Register(op, generate, options);
}

Exempt::Exempt(std::initializer_list<std::string_view> ops, std::string_view reason) {
  for (std::string_view op : ops) Exemptions().emplace(op, reason);
}

bool HasCases(std::string_view op) { return Entries().find(op) != Entries().end(); }

std::string_view ExemptionOf(std::string_view op) {
  auto found = Exemptions().find(op);
  return found == Exemptions().end() ? std::string_view() : found->second;
}

}  // namespace gt::conformance
