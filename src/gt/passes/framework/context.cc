#include "gt/passes/framework/context.h"

namespace gt {
namespace {

std::unique_ptr<CostModel> TypicalCosts(const Graph& graph) {
  static const LinkModel& links =
      *new LinkModel({.name = "typical",
                      .generation = "hopper",
                      .gpus_per_node = 8,
                      .links = SimpleLinks{.node = {10, 300}, .network = {20, 50}}});
  return MakeCostModel(graph, {.device = SpeedOf(links.cluster()), .links = &links});
}

}  // namespace

// The groups of the job, with an eye on what passes ask.
class PassContext::RecordedGroups : public ProcessGroups {
 public:
  explicit RecordedGroups(PassContext& context) : context_(context) {}

  Info Find(std::string_view name) override {
    std::optional<Info>& info = Known(name).info;
    if (!context_.replays_ || !info) info = Live().Find(name);
    if (context_.asked_) context_.asked_->groups[std::string(name)].info = info;
    return *info;
  }

  // Making a group is a matter of all ranks, so that a replay only knows its name.
  std::string Separate(std::string_view source, Purpose purpose) override {
    std::string& name = Known(source).separate[purpose];
    if (!context_.replays_) {
      name = Live().Separate(source, purpose);
    } else if (name.empty()) {
      name = std::string(source) + std::string(SuffixOf(purpose));
    }
    if (context_.asked_) context_.asked_->groups[std::string(source)].separate[purpose] = name;
    return name;
  }

 private:
  ProcessGroups& Live() {
    return context_.job_.groups == nullptr ? context_.named_groups_ : *context_.job_.groups;
  }
  ContextRecord::Group& Known(std::string_view name) {
    return context_.known_.groups[std::string(name)];
  }

  PassContext& context_;
};

PassContext::PassContext(JobFacts job)
    : job_(std::move(job)), groups_(std::make_unique<RecordedGroups>(*this)) {}

PassContext::PassContext(ContextRecord record)
    : groups_(std::make_unique<RecordedGroups>(*this)), replays_(true), known_(std::move(record)) {}

PassContext::~PassContext() = default;

ProcessGroups& PassContext::groups() { return *groups_; }

std::unique_ptr<CostModel> PassContext::Costs(const Graph& graph) {
  std::unique_ptr<CostModel> costs = job_.costs ? job_.costs(graph) : TypicalCosts(graph);
  if (known_.costs) costs = ReplayCosts(*known_.costs, graph, std::move(costs));
  if (asked_) asked_->costs = RecordCosts(graph, *costs);
  return costs;
}

int64_t PassContext::MemoryBudget() {
  int64_t bytes = job_.memory_budget ? job_.memory_budget() : known_.memory_budget.value_or(0);
  if (asked_) asked_->memory_budget = bytes;
  return bytes;
}

int64_t PassContext::ConstantBytes(const Graph& graph) {
  int64_t bytes =
      job_.constant_bytes ? job_.constant_bytes(graph) : known_.constant_bytes.value_or(0);
  if (asked_) asked_->constant_bytes = bytes;
  return bytes;
}

std::string PassContext::Decide(std::string_view what, const std::function<std::string()>& decide) {
  std::string text;
  if (!replays_) {
    text = job_.decide_for_all ? job_.decide_for_all(what, decide) : decide();
    known_.decisions.push_back({std::string(what), text});
  } else if (next_decision_ < known_.decisions.size() &&
             known_.decisions[next_decision_].what == what) {
    text = known_.decisions[next_decision_++].text;
  } else {
    text = decide();
  }
  if (asked_) asked_->decisions.push_back({std::string(what), text});
  return text;
}

void PassContext::Note(std::string_view name, int64_t value) {
  known_.notes.insert_or_assign(std::string(name), value);
}

std::optional<int64_t> PassContext::Noted(std::string_view name) {
  auto found = known_.notes.find(name);
  if (found == known_.notes.end()) return std::nullopt;
  if (asked_) asked_->notes.insert_or_assign(found->first, found->second);
  return found->second;
}

void PassContext::Replay(size_t position) {
  replays_ = true;
  next_decision_ = position;
  Invalidate();
}

ContextRecord PassContext::TakeRecording() {
  ContextRecord record = std::move(*asked_);
  asked_.reset();
  return record;
}

}  // namespace gt
