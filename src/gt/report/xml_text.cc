#include "gt/report/xml_text.h"

#include "gt/base/utf8.h"

namespace gt {

std::string XmlText(std::string_view text) {
  std::string escaped;
  for (char c : ToValidUtf8(text)) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML has no way to write control characters, not even escaped.
        escaped += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return escaped;
}

}  // namespace gt
