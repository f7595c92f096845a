#include "gt/passes/framework/pass.h"

#include <fmt/format.h>

namespace gt {
namespace {

std::string QuotedIfNeeded(const std::string& text) {
  bool plain = !text.empty() && text.find_first_of(",{}=\"\\' \t\r\n") == std::string::npos;
  return plain ? text : Quoted(text);
}

// One text for each time the option has to be given: lists are given element by element.
std::vector<std::string> TextsOf(const Option& option) {
  const Binding& binding = option.binding();
  if (const auto* list = std::get_if<StringList*>(&binding)) {
    std::vector<std::string> texts;
    for (const std::string& item : **list) texts.push_back(QuotedIfNeeded(item));
    if (texts.empty()) texts.push_back(Quoted(""));
    return texts;
  }
  if (const auto* text = std::get_if<std::string*>(&binding)) return {QuotedIfNeeded(**text)};
  if (const auto* e = std::get_if<EnumBinding>(&binding)) return {std::string(e->names[e->get()])};
  return {option.TomlText()};
}

}  // namespace

bool Pass::Run(Graph& graph, PassContext& context) {
  const bool changed = RunImpl(graph, context);
  if (changed) context.Invalidate();
  return changed;
}

bool Pass::Run(Graph& graph) {
  PassContext context;
  return Run(graph, context);
}

void Pass::DeclareAll(std::vector<Option> options) {
  options_ = std::move(options);
  for (const Option& option : options_) defaults_.push_back(option.TomlText());
}

std::string Pass::Spec() const {
  std::vector<std::string> given;
  for (size_t i = 0; i < options_.size(); ++i) {
    const Option& option = options_[i];
    if (option.TomlText() == defaults_[i]) continue;
    for (const std::string& text : TextsOf(option)) {
      given.push_back(fmt::format("{}={}", option.path(), text));
    }
  }
  return given.empty() ? name() : fmt::format("{}{{{}}}", name(), Join(given, ","));
}

}  // namespace gt
