// Feeds arbitrary bytes to what cuts files into units and reads lines. Run with ./gt fuzz jsonl
// 600.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gt/data/jsonl_line.h"
#include "gt/data/text_units.h"

namespace {

// The units of a file are the file, and none is empty; otherwise data would be lost, or read
// forever.
void CheckUnits(gt::TextForm form, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto whole = gt::UnitLength(form, bytes, /*complete=*/true);
    if (!whole || *whole == 0 || *whole > bytes.size()) std::abort();
    // What is decided from a part of the file must not change when the rest comes.
    for (const size_t part : {bytes.size() / 2, bytes.size() - 1}) {
      const auto early = gt::UnitLength(form, bytes.substr(0, part), /*complete=*/false);
      if (early && *early != *whole) std::abort();
    }
    bytes.remove_prefix(*whole);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckUnits(gt::TextForm::kText, bytes);
  CheckUnits(gt::TextForm::kJsonl, bytes);
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  for (const char* field : {"", "a", "a.b"}) {
    const gt::JsonlText document = gt::ParseJsonlLine(line, field);
    if (!document.problem.empty() && !document.text.empty()) std::abort();
  }
  return 0;
}
