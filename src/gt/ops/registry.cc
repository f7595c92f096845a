#include "gt/ops/registry.h"

#include <unordered_map>

#include "gt/base/error.h"

namespace gt {
namespace {

// Views follow from the schema: every result carries the alias letter of one argument, and nothing
// is written.
void SetViewFacts(Operator& op) {
  if (op.schema.results.empty()) return;
  char letter = op.schema.results[0].alias;
  if (letter == 0) return;
  for (const ResultSpec& result : op.schema.results) {
    if (result.alias != letter) return;
  }
  for (size_t i = 0; i < op.schema.args.size(); ++i) {
    const ArgSpec& arg = op.schema.args[i];
    if (arg.alias != letter) continue;
    GT_CHECK(!arg.written, "{} writes its argument '{}'; graphs are functional", op.name.str(),
             arg.name);
    op.view_ = true;
    op.view_arg_ = static_cast<int>(i);
    return;
  }
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
    RegisterCollectives(table);
    RegisterDataReads(table);
    RegisterTransfers(table);
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

Operator& OperatorTable::Add(std::string_view schema, ShapeRule rule) {
  auto op = std::make_unique<Operator>();
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
