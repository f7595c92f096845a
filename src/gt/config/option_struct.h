// Structs whose members are options. One line is all there is to an option: the member with its
// default, its name, the values it may have and its help.
//
//   struct BucketFsdpOptions {
//     GT_OPTION(int64_t, fsdp_prefetch, 1, AtLeast(0), "blocks a gather starts ahead of its own");
//     GT_END_OPTIONS(BucketFsdpOptions);
//   };
//
// Passes declare their options this way, and so do the sections of a job's configuration. A section
// takes the name, type, default and range of an option from the component that owns it, and adds the
// help shown to users of the job:
//
//   struct CompileSection {
//     GT_OPTION_OF(BucketFsdpOptions, fsdp_prefetch, "with fsdp_bucketing: blocks ...");
//     GT_SECTION(EpOverlapSection, ep_overlap, "cutting MoE modules into chunks");
//     GT_END_OPTIONS(CompileSection);
//   };
//
// Types: bool, int64_t, double, std::string, StringList, or an enum with kEnumNames. Whole numbers
// that the program calculates with have an upper limit, far beyond what a job needs, so that no
// product of them overflows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gt/config/option.h"

namespace gt {

// Collects the options of a struct, section by section in the order of their lines. The group of the
// options outside of any section is first and has no name.
class OptionCollector {
 public:
  explicit OptionCollector(std::string help) : groups_{{"", std::move(help), {}}} {}

  void Enter(std::string name, std::string help);
  void Leave() { open_.pop_back(); }
  void Add(const std::string& name, Binding binding, Limit limit, std::string help);

  std::vector<OptionGroup> Finish() { return std::move(groups_); }

 private:
  std::vector<OptionGroup> groups_;
  std::vector<std::string> open_;
};

// Where a struct declares an option: lines of the header tell its options apart.
template <int kLine>
struct OptionLine {};

template <typename Options>
void CollectOptions(Options* options, OptionCollector& collector) {
  const auto collect_line = [&]<int kLine>(OptionLine<kLine> line) {
    if constexpr (requires { Options::CollectOption(line, options, collector); }) {
      Options::CollectOption(line, options, collector);
    }
  };
  [&]<int... kLines>(std::integer_sequence<int, kLines...>) {
    (collect_line(OptionLine<kLines>()), ...);
  }
  (std::make_integer_sequence<int, Options::kEndOfOptions>());
}

// Every option of the struct, bound to the members of `options`, which must outlive the result.
// `help` is that of the first group.
template <typename Options>
std::vector<OptionGroup> BindOptions(Options* options, std::string help = "") {
  OptionCollector collector(std::move(help));
  CollectOptions(options, collector);
  return collector.Finish();
}

}  // namespace gt

#define GT_COLLECT_OPTION_                                          \
  template <typename Self>                                          \
  static void CollectOption(::gt::OptionLine<__LINE__>, Self* self, \
                            ::gt::OptionCollector& collector)

#define GT_OPTION(type, name, default_value, limit, help)                            \
  static constexpr ::gt::Limit name##_limit() { return limit; }                      \
  GT_COLLECT_OPTION_ { collector.Add(#name, ::gt::Bind(&self->name), limit, help); } \
  type name = default_value

#define GT_OPTION_OF(component, name, help) \
  GT_OPTION(decltype(component::name), name, component().name, component::name##_limit(), help)

#define GT_SECTION(type, name, help)              \
  GT_COLLECT_OPTION_ {                            \
    collector.Enter(#name, help);                 \
    ::gt::CollectOptions(&self->name, collector); \
    collector.Leave();                            \
  }                                               \
  type name

// After the last option of the struct.
#define GT_END_OPTIONS(type)                     \
  static constexpr int kEndOfOptions = __LINE__; \
  bool operator==(const type&) const = default
