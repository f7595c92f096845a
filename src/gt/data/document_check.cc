#include "gt/data/document_check.h"

#include <algorithm>

#include "gt/base/error.h"
#include "gt/data/jsonl_line.h"
#include "gt/data/unit_reader.h"

namespace gt {
namespace {

// About a tenth of a second of parsing.
constexpr std::size_t kBytesChecked = std::size_t{8} << 20;
constexpr std::size_t kFilesChecked = 64;

}  // namespace

void CheckDocuments(const DataFiles& data, std::string_view text_field) {
  const std::size_t files = data.files.size(), count = std::min(files, kFilesChecked);
  for (std::size_t i = 0; i < count; ++i) {
    const DataFile& file = data.files[i * files / count];
    UnitReader reader(TextForm::kJsonl, file, {}, kBytesChecked / count);
    for (std::string_view line; reader.Next(line);) {
      const JsonlText document = ParseJsonlLine(line, text_field);
      if (document.problem.empty()) continue;
      Fail(ErrorCode::kBadData, "{}:{}: the line {}", file.path.string(), reader.line(),
           document.problem);
    }
  }
}

}  // namespace gt
