// The text of a line of a JSON lines file, which is one object.
#pragma once

#include <string>
#include <string_view>

namespace gt {

struct JsonlText {
  std::string text;
  // Why the line has no text, to follow file and line in a message; lists the fields of the line.
  // Empty if there is a text.
  std::string problem;
};

// `field` holds the text: "body", or "message.body" for a field of a nested object. Empty: "text", or
// else "content".
JsonlText ParseJsonlLine(std::string_view line, std::string_view field = "");

}  // namespace gt
