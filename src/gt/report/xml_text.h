// Text inside XML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace gt {

// Names in a graph may hold any bytes, XML may not: what is no UTF-8 or a control character is
// replaced, and what has a meaning in XML is escaped. Line ends stay.
std::string XmlText(std::string_view text);

}  // namespace gt
