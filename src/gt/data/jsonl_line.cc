#include "gt/data/jsonl_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gt/base/text.h"

namespace gt {
namespace {

// A field that may hold the text, and how much of its path the parser has entered.
class WantedField {
 public:
  explicit WantedField(std::vector<std::string> path)
      : path_(std::move(path)), name_(Join(path_, ".")) {}

  const std::string& name() const { return name_; }

  // The parser is at a key of an object at `depth`, counted from 1.
  void Key(std::size_t depth, std::string_view key) {
    matched_ = std::min(matched_, depth - 1);
    if (matched_ == depth - 1 && depth <= path_.size() && key == path_[depth - 1]) matched_ = depth;
  }
  bool IsAt(std::size_t depth) const { return depth == path_.size() && matched_ == depth; }

  std::string_view found;  // what kind of value it has; empty: not there
  std::string value;

 private:
  std::vector<std::string> path_;
  std::string name_;
  std::size_t matched_ = 0;  // components of the path that the parser is inside of
};

std::vector<WantedField> WantedFields(std::string_view field) {
  std::vector<WantedField> fields;
  const auto add = [&fields](std::vector<std::string> path) {
    fields.emplace_back(std::move(path));
  };
  if (field.empty()) {
    add({"text"});
    add({"content"});
    return fields;
  }
  add({std::string(field)});  // a name may have dots in it
  if (field.find('.') != std::string_view::npos) add(Split(field, '.'));
  return fields;
}

// The common part of both walks over a line: reports each value to OnValue, and records parse errors.
class LineHandler : public nlohmann::json::json_sax_t {
 public:
  bool null() override { return OnValue("null"); }
  bool boolean(bool) override { return OnValue("a boolean"); }
  bool number_integer(number_integer_t) override { return OnValue("a number"); }
  bool number_unsigned(number_unsigned_t) override { return OnValue("a number"); }
  bool number_float(number_float_t, const string_t&) override { return OnValue("a number"); }
  bool binary(binary_t&) override { return OnValue("binary data"); }
  bool string(string_t&) override { return OnValue("a string"); }

  bool start_object(std::size_t) override {
    if (depth_ > 0) OnValue("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    const bool go_on = OnValue("an array");
    ++depth_;
    return go_on;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: what" becomes "what". The
    // column is worth keeping, the line is always 1.
    std::string_view what = error.what();
    if (const auto at = what.find("column "); at != std::string_view::npos) what.remove_prefix(at);
    problem_ = fmt::format("is not JSON ({})", Shortened(what));
    return false;
  }

 protected:
  // False ends the walk.
  virtual bool OnValue(std::string_view kind) = 0;

  std::size_t depth_ = 0;  // of the next value
  std::string problem_;

 private:
  static std::string Shortened(std::string_view what) {
    constexpr std::size_t kShown = 160;
    std::string text(what.substr(0, kShown));
    // The parser quotes the input, which may hold anything.
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
    }
    if (what.size() > kShown) text += "...";
    return text;
  }
};

// Picks the wanted fields out of the stream of parser events, so that no tree of the line is built:
// lines often carry much more than the text.
class TextHandler : public LineHandler {
 public:
  explicit TextHandler(std::string_view field) : fields_(WantedFields(field)) {}

  bool key(string_t& name) override {
    for (WantedField& field : fields_) field.Key(depth_, name);
    return true;
  }
  bool string(string_t& value) override {
    for (WantedField& field : fields_) {
      if (!field.IsAt(depth_)) continue;
      field.found = "a string";
      field.value = std::move(value);
      return true;
    }
    return OnValue("a string");
  }

  // The string in the first wanted field. False: `problem` says why there is none.
  bool TakeText(std::string& text, std::string& problem) {
    if (!problem_.empty()) {
      problem = problem_ + "; each line must be one JSON object such as {\"text\": \"...\"}";
      return false;
    }
    for (WantedField& field : fields_) {
      if (field.found == "a string") return text = std::move(field.value), true;
      if (field.found.empty()) continue;
      problem =
          fmt::format("has {} in {}, where the text should be", field.found, Quoted(field.name()));
      return false;
    }
    const bool is_one = fields_[0].name() == fields_.back().name();
    problem = is_one ? fmt::format("has no field {}", Quoted(fields_[0].name()))
                     : fmt::format("has neither a field {} nor {}", Quoted(fields_[0].name()),
                                   Quoted(fields_[1].name()));
    return false;
  }
  bool is_object() const { return problem_.empty(); }

 protected:
  bool OnValue(std::string_view kind) override {
    if (depth_ == 0) {
      problem_ = fmt::format("is {}, not an object", kind);
      return false;
    }
    for (WantedField& field : fields_) {
      if (field.IsAt(depth_)) field.found = kind;
    }
    return true;
  }

 private:
  std::vector<WantedField> fields_;
};

// Lists the fields of a line, nested ones with their path. Only runs on lines without a text.
class FieldLister : public LineHandler {
 public:
  bool key(string_t& name) override {
    if (depth_ > kDeepest) return true;
    open_.resize(depth_);
    open_[depth_ - 1] = name;
    return true;
  }
  bool start_array(std::size_t) override {
    if (arrays_ == 0) OnValue("an array");
    ++arrays_;
    ++depth_;
    return true;
  }
  bool end_array() override {
    --arrays_;
    --depth_;
    return true;
  }

  std::string Text() const {
    if (fields_.empty()) return "it has no fields";
    constexpr std::size_t kShown = 12;
    const std::size_t shown = std::min(fields_.size(), kShown);
    std::string text = "its fields are " + Join(std::span(fields_).first(shown), ", ");
    if (fields_.size() > shown) text += fmt::format(" and {} more", fields_.size() - shown);
    return text;
  }

 protected:
  bool OnValue(std::string_view kind) override {
    // Elements of arrays have no name, and objects are listed by their fields.
    if (arrays_ > 0 || depth_ == 0 || depth_ > kDeepest || kind == "an object") return true;
    fields_.push_back(fmt::format("{} ({})", Quoted(Join(open_, ".")), kind));
    return fields_.size() < kMost;
  }

 private:
  static constexpr std::size_t kMost = 1000, kDeepest = 4;
  std::vector<std::string> open_;  // the path to the next value
  std::vector<std::string> fields_;
  std::size_t arrays_ = 0;
};

std::string FieldsOf(std::string_view line) {
  FieldLister lister;
  nlohmann::json::sax_parse(line.begin(), line.end(), &lister);
  return lister.Text();
}

}  // namespace

JsonlText ParseJsonlLine(std::string_view line, std::string_view field) {
  TextHandler handler(field);
  nlohmann::json::sax_parse(line.begin(), line.end(), &handler);
  JsonlText result;
  if (handler.TakeText(result.text, result.problem) || !handler.is_object()) return result;
  result.problem +=
      fmt::format("; {}; --training.text_field says which one holds the text", FieldsOf(line));
  return result;
}

}  // namespace gt
