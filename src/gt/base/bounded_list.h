// Lists in messages. What a file or a model has decides how long they are, so messages show their
// beginning: a list of every tensor of a large model has been an error of 27 MB.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gt {

// The first 20 parts, long ones cut short, then "and 1,234 more" as one more part.
std::string JoinFirst(std::span<const std::string> parts, std::string_view separator);

}  // namespace gt
