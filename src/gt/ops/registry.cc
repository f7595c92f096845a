#include "gt/ops/registry.h"

#include <algorithm>
#include <unordered_map>

#include "gt/base/error.h"

namespace gt {
namespace {

// The argument that has the alias letter of the results, or -1.
int AliasedArg(const Schema& schema) {
  const char letter = schema.results.empty() ? 0 : schema.results[0].alias;
  if (letter == 0) return -1;
  for (const ResultSpec& result : schema.results) {
    if (result.alias != letter) return -1;
  }
  for (size_t i = 0; i < schema.args.size(); ++i) {
    const ArgSpec& arg = schema.args[i];
    if (arg.alias != letter) continue;
    GT_CHECK(!arg.written, "'{}' writes its argument '{}'; graphs are functional", schema.text,
             arg.name);
    return static_cast<int>(i);
  }
  return -1;
}

// A view by its schema is one by its facts, and the other way round, unless the entry says how far
// memory is shared.
void SetViewFacts(Operator& op) {
  const int aliased = AliasedArg(op.schema);
  if (op.view == ViewKind::kNone) {
    GT_CHECK(aliased < 0, "{} is a view by its schema, but its facts do not say of which kind",
             op.name.str());
    return;
  }
  if (op.aliasing == Aliasing::kNone) {
    GT_CHECK(aliased >= 0, "{} is no view by its schema", op.name.str());
    op.aliasing = Aliasing::kAlways;
  }
  if (op.aliasing == Aliasing::kAlways) op.view_arg_ = std::max(aliased, 0);
}

// Of other projects. Filled while the program starts, before the table is made.
std::vector<OperatorFamily::Register>& OtherFamilies() {
  static std::vector<OperatorFamily::Register> families;
  return families;
}

class Registry {
 public:
  Registry() {
    OperatorTable table;
    RegisterElementwise(table);
    RegisterReductions(table);
    RegisterFactories(table);
    RegisterRandom(table);
    RegisterViews(table);
    RegisterIndexing(table);
    RegisterMatmul(table);
    RegisterNormalization(table);
    RegisterLoss(table);
    RegisterAttention(table);
    RegisterRouting(table);
    RegisterCollectives(table);
    RegisterDataReads(table);
    RegisterTransfers(table);
    RegisterFused(table);
    for (const OperatorFamily::Register add : OtherFamilies()) add(table);
    owned_ = table.Take();
    for (const std::unique_ptr<Operator>& op : owned_) {
      all_.push_back(op.get());
      bool fresh = by_name_.emplace(op->name, op.get()).second;
      GT_CHECK(fresh, "operator {} is registered twice", op->name.str());
      by_text_.emplace(op->name.str(), op.get());
    }
  }

  static const Registry& Get() {
    static const Registry* registry =
        new Registry();  // outlives every static that may look something up
    return *registry;
  }

  template <typename Map, typename Key>
  static const Operator* Lookup(const Map& map, const Key& key) {
    auto found = map.find(key);
    return found == map.end() ? nullptr : found->second;
  }

  std::vector<std::unique_ptr<Operator>> owned_;
  std::vector<const Operator*> all_;
  std::unordered_map<Name, const Operator*> by_name_;
  // A second table, so that a lookup by text interns nothing and takes no lock. Keys point into
  // interned names.
  std::unordered_map<std::string_view, const Operator*> by_text_;
};

}  // namespace

OperatorFamily::OperatorFamily(Register add) { OtherFamilies().push_back(add); }

Operator& OperatorTable::Add(std::string_view schema, ShapeRule rule, const OperatorFacts& facts) {
  auto op = std::make_unique<Operator>();
  static_cast<OperatorFacts&>(*op) = facts;
  op->name = Name(schema.substr(0, schema.find('(')));
  op->schema = ParseSchema(schema);
  op->rule = rule;
  SetViewFacts(*op);
  return *operators_.emplace_back(std::move(op));
}

const Operator* FindOperator(std::string_view full_name) {
  const Registry& registry = Registry::Get();
  return registry.Lookup(registry.by_text_, full_name);
}

const Operator* FindOperator(Name full_name) {
  const Registry& registry = Registry::Get();
  return registry.Lookup(registry.by_name_, full_name);
}

std::span<const Operator* const> AllOperators() { return Registry::Get().all_; }

}  // namespace gt
