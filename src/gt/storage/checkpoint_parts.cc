#include "gt/storage/checkpoint_parts.h"

#include <algorithm>
#include <set>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

class PartCollector {
 public:
  PartCollector(int64_t step, std::string_view temporary) : temporary_(temporary) {
    manifest_.step = step;
  }

  void Add(const std::string& text) {
    PartRecord part = Parse(text);
    if (parts_ < 0) parts_ = part.parts;
    if (part.temporary != temporary_ || part.parts != parts_ || part.part < 0 ||
        part.part >= parts_) {
      Refuse("a rank has written part {} of {} into {}, but this is {} with {} parts", part.part,
             part.parts, part.temporary, temporary_, parts_);
    }
    if (!present_.insert(part.part).second) Refuse("part {} is there twice", part.part);
    for (auto& [name, info] : part.tensors) AddTensor(part.part, name, std::move(info));
    for (auto& [name, record] : part.files) {
      if (!manifest_.files.emplace(name, std::move(record)).second) {
        Refuse("part {} has the file {}, which another part has too", part.part, name);
      }
    }
  }

  Manifest Finish() {
    if (present_.empty()) Refuse("there is no description of any part");
    if (const auto part = FirstMissing(); part < parts_) {
      Refuse(
          "there are descriptions of {} of the {} parts, and none of part {}: its rank has not "
          "finished",
          present_.size(), parts_, part);
    }
    // Then the files alone say what the tensors are, to earlier versions of the program too.
    if (AllAreWhole()) manifest_.tensors.clear();
    return std::move(manifest_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kCannotWrite, "the checkpoint of step {} cannot be completed: {}",
         manifest_.step, fmt::format(format, std::forward<Args>(args)...));
  }

  PartRecord Parse(const std::string& text) const {
    try {
      return ParsePart(text);
    } catch (const Error& error) {
      Refuse("{}", error.message());
    }
  }

  void AddTensor(int64_t part, const std::string& name, TensorInfo info) {
    const auto [found, is_new] = manifest_.tensors.try_emplace(name, info);
    if (is_new || found->second == info) return;
    Refuse("tensor {} is {} in part {}, but {} in another", Quoted(name), InfoText(info), part,
           InfoText(found->second));
  }

  int64_t FirstMissing() const {
    int64_t part = 0;
    for (auto it = present_.begin(); it != present_.end() && *it == part; ++it) ++part;
    return part;
  }

  bool AllAreWhole() const {
    std::set<std::string_view> stored;
    for (const auto& [file, record] : manifest_.files) {
      for (const auto& [name, checksum] : record.tensors) stored.insert(name);
    }
    const auto same = [](std::string_view name, const auto& entry) { return name == entry.first; };
    return std::equal(stored.begin(), stored.end(), manifest_.tensors.begin(),
                      manifest_.tensors.end(), same);
  }

  std::string_view temporary_;
  Manifest manifest_;
  int64_t parts_ = -1;  // unknown yet
  std::set<int64_t> present_;
};

}  // namespace

Manifest ManifestOf(int64_t step, std::string_view temporary, std::span<const std::string> parts) {
  PartCollector collector(step, temporary);
  for (const std::string& part : parts) collector.Add(part);
  return collector.Finish();
}

}  // namespace gt
