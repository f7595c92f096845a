#include "gt/ir/type_parser.h"

#include <optional>
#include <string>
#include <string_view>

namespace gt {
namespace {

// @cuda or @cuda:1
Device ParseDeviceSuffix(TokenReader& in) {
  const size_t offset = in.token().offset;
  std::string text = in.ExpectName(Token::Kind::kGlobal, "a device");
  if (in.Accept(':')) {
    if (in.token().kind != Token::Kind::kInteger) in.FailExpected("the index of the device");
    text += ':';
    text += in.token().text;
    in.Advance();
  }
  const auto device = ParseDevice(text);
  if (!device) {
    in.FailAt(ErrorCode::kGtirSyntax, offset,
              "unknown device; expected @cpu, @cuda, @cuda:1 or @meta");
  }
  return *device;
}

}  // namespace

TensorType ParseType(TokenReader& in, SizeParser& sizes, const ShapeEnv& shapes) {
  constexpr std::string_view kWhat = "a type, such as f32[s0, 16]";
  if (in.token().kind != Token::Kind::kIdentifier) in.FailExpected(kWhat);
  const auto dtype = ParseDType(in.token().text);
  if (!dtype) in.FailExpected(kWhat);
  in.Advance();
  TensorType type;
  type.dtype = *dtype;
  if (!type.defined()) return type;
  if (!in.token().Is('['))
    in.FailExpected(fmt::format("'[' and the sizes behind {}", DTypeName(*dtype)));
  const size_t begin = in.token().offset;
  type.sizes = sizes.ParseList('[', ']');
  // Metadata is in braces too, but never directly after the bracket.
  if (in.token().Is('{') && in.token().offset == in.previous_end()) {
    const size_t offset = in.token().offset;
    type.strides = sizes.ParseList('{', '}');
    if (type.strides.size() != type.sizes.size()) {
      in.FailAt(ErrorCode::kGtirSyntax, offset,
                fmt::format("{} sizes but {} strides", type.sizes.size(), type.strides.size()));
    }
  } else {
    in.SetAnchor(begin);
    type.strides = ContiguousStrides(type.sizes, shapes);
  }
  if (in.token().kind == Token::Kind::kGlobal) type.device = ParseDeviceSuffix(in);
  return type;
}

}  // namespace gt
