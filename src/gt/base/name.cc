#include "gt/base/name.h"

#include <mutex>
#include <unordered_set>

namespace gt {
namespace {

struct Pool {
  std::mutex mutex;
  std::unordered_set<std::string> texts;  // node based: addresses of its strings never change
};

Pool& GlobalPool() {
  static Pool* pool = new Pool;  // never destroyed: names may be read while static objects go down
  return *pool;
}

}  // namespace

const std::string& Name::Empty() {
  static const std::string& empty = *new std::string;
  return empty;
}

Name::Name(std::string_view text) {
  if (text.empty()) {
    text_ = &Empty();
    return;
  }
  Pool& pool = GlobalPool();
  std::lock_guard lock(pool.mutex);
  text_ = &*pool.texts.emplace(text).first;
}

}  // namespace gt
