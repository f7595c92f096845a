// A small train step of equal layers as .gtir text: each adds relu(x W^T) to x, with W stored in f32 and
// used in bf16. The first layer is like all others.
#pragma once

#include <fmt/format.h>

#include <string>

namespace gt::testing {

struct LayeredStep {
  int layers = 2;
  int64_t batch = 16;
  int64_t sequence = 2048;
  int64_t width = 4096;

  // Parameters w0, w1, ..., inputs x and dy, results y and dx.
  std::string Text() const {
    std::string text = "graph @layered(\n";
    for (int k = 0; k < layers; ++k) {
      text += fmt::format("    %w{0}: param \"w{0}\" f32[{1}, {1}],\n", k, width);
    }
    text += fmt::format("    %x: input \"x\" {0}, %dy: input \"dy\" {0}) {{\n", Type());
    text += fmt::format("  %first = aten::neg(%x) : {}\n", Type());
    std::string x = "first";
    for (int k = 0; k < layers; ++k) x = AddForward(k, x, text);
    text += fmt::format("  %last = aten::neg(%dy) : {} {{phase = backward}}\n", Type());
    std::string dx = "last";
    for (int k = layers; k-- > 0;) dx = AddBackward(k, dx, text);
    text += fmt::format("  return result \"y\" %{}, result \"dx\" %{}", x, dx);
    for (int k = 0; k < layers; ++k) text += fmt::format(", gradient \"w{0}\" %dw{0}", k);
    return text + "\n}\n";
  }

 private:
  int64_t rows() const { return batch * sequence; }
  std::string Type() const { return fmt::format("bf16[{}, {}, {}]", batch, sequence, width); }
  std::string Rows() const { return fmt::format("bf16[{}, {}]", rows(), width); }
  std::string Input(int k) const { return k == 0 ? "first" : fmt::format("x{}", k - 1); }

  // The name of the layer's result.
  std::string AddForward(int k, const std::string& x, std::string& text) const {
    text += fmt::format(
        "  %b{0} = aten::_to_copy(%w{0}, dtype = bf16) : bf16[{1}, {1}]\n"
        "  %t{0} = aten::t(%b{0}) : bf16[{1}, {1}]{{1, {1}}}\n"
        "  %rows{0} = aten::view(%{2}, size = [{3}, {1}]) : {4}\n"
        "  %mm{0} = aten::mm(%rows{0}, %t{0}) : {4}\n"
        "  %h{0} = aten::view(%mm{0}, size = [{5}, {6}, {1}]) : {7}\n"
        "  %r{0} = aten::relu(%h{0}) : {7}\n"
        "  %x{0} = aten::add.Tensor(%{2}, %r{0}) : {7}\n",
        k, width, x, rows(), Rows(), batch, sequence, Type());
    return fmt::format("x{}", k);
  }

  std::string AddBackward(int k, const std::string& dx, std::string& text) const {
    text += fmt::format(
        "  %dr{0} = aten::threshold_backward(%{2}, %r{0}, threshold = 0) : {7} {8}\n"
        "  %dh{0} = aten::view(%dr{0}, size = [{3}, {1}]) : {4} {8}\n"
        "  %dh_t{0} = aten::t(%dh{0}) : bf16[{1}, {3}]{{1, {1}}} {8}\n"
        "  %again{0} = aten::view(%{9}, size = [{3}, {1}]) : {4} {8}\n"
        "  %dw_mm{0} = aten::mm(%dh_t{0}, %again{0}) : bf16[{1}, {1}] {8}\n"
        "  %dw{0} = aten::_to_copy(%dw_mm{0}, dtype = f32) : f32[{1}, {1}] {8}\n"
        "  %b_again{0} = aten::t(%t{0}) : bf16[{1}, {1}] {8}\n"
        "  %dx_mm{0} = aten::mm(%dh{0}, %b_again{0}) : {4} {8}\n"
        "  %dx_view{0} = aten::view(%dx_mm{0}, size = [{5}, {6}, {1}]) : {7} {8}\n"
        "  %dx{0} = aten::add.Tensor(%{2}, %dx_view{0}) : {7} {8}\n",
        k, width, dx, rows(), Rows(), batch, sequence, Type(), "{phase = backward}", Input(k));
    return fmt::format("dx{}", k);
  }
};

}  // namespace gt::testing
