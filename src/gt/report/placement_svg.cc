#include "gt/report/placement_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "gt/base/text.h"
#include "gt/report/placement_rows.h"
#include "gt/report/xml_text.h"

namespace gt {
namespace {

using placement::Placement;
using placement::PlaceProblem;

struct CutStyle {
  std::string_view name, fill, text;
};
// By AxisCut::Kind.
constexpr std::array<CutStyle, 6> kCutStyles = {{{"whole", "#eceff4", "#555555"},
                                                 {"partial sum", "#c8453b", "#ffffff"},
                                                 {"batch", "#2b7bba", "#ffffff"},
                                                 {"sequence", "#3a9d5d", "#ffffff"},
                                                 {"experts", "#8e5ea2", "#ffffff"},
                                                 {"another dimension", "#d9822b", "#ffffff"}}};

const CutStyle& StyleOf(AxisCut::Kind kind) { return kCutStyles[static_cast<size_t>(kind)]; }

std::string ShortName(const std::string& name, size_t most) {
  return name.size() <= most ? name : "..." + name.substr(name.size() - (most - 3));
}

// The picture is 1000 wide. Text is taken to be at most 7 wide a character at size 12, 6.2 at size 11.
class PlacementPicture {
 public:
  PlacementPicture(const PlaceProblem& problem, const Placement& placement)
      : mesh_(problem.pricing().mesh()),
        inputs_(PlacedInputs(problem, placement)),
        modules_(PlacedModules(problem, placement)),
        placement_(placement) {
    for (const PlacedModule& module : modules_) {
      longest_us_ = std::max({longest_us_, module.kernel_us, module.move_us});
    }
  }

  std::string Draw(const std::string& title) {
    DrawTitle(title);
    DrawHead();
    for (const PlacedInput& input : inputs_) {
      if (!input.parameter) DrawRow(input.name, input.count, input.placed, {}, nullptr);
    }
    for (const PlacedModule& module : modules_) {
      const std::vector<const PlacedInput*> parameters = ParametersOf(module.module);
      if (module.kernel_us == 0 && module.move_us == 0 && parameters.empty()) continue;
      DrawRow(module.module, module.count, module.placed, parameters, &module);
    }
    DrawLegend();
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
               "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"sans-serif\" "
               "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
               kWidth, y_ + kMargin) +
           svg_ + "</svg>\n";
  }

 private:
  static constexpr double kWidth = 1000, kMargin = 16;
  static constexpr double kCells = 268, kCellWidth = 76, kLine = 22;
  static constexpr double kBars = 780, kBarWidth = 140;
  static constexpr size_t kLongestName = 32;

  template <typename... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }
  void PutText(double x, double y, std::string_view anchor, std::string_view text,
               std::string_view attributes = "") {
    Put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
        attributes, XmlText(text));
  }
  double CellX(int axis) const { return kCells + axis * kCellWidth; }
  double ParametersX() const { return CellX(mesh_.axes()) + 10; }
  size_t LongestParameter() const {
    return static_cast<size_t>((kBars - 10 - ParametersX()) / 6.2);
  }

  // Modules that are laid out in several ways have several rows; the first shows their parameters.
  std::vector<const PlacedInput*> ParametersOf(const std::string& module) {
    std::vector<const PlacedInput*> found;
    for (const PlacedInput& input : inputs_) {
      const size_t point = input.name.rfind('.');
      if (!input.parameter || point == std::string::npos) continue;
      if (LayerPattern(input.name.substr(0, point)) != LayerPattern(module)) continue;
      if (std::find(drawn_.begin(), drawn_.end(), &input) != drawn_.end()) continue;
      drawn_.push_back(&input);
      found.push_back(&input);
    }
    return found;
  }

  void DrawTitle(const std::string& title) {
    PutText(kMargin, 26, "start", ShortName(title, 96), " font-size=\"15\" font-weight=\"bold\"");
    const placement::PlanCost& cost = placement_.cost;
    PutText(
        kMargin, 46, "start",
        fmt::format("mesh {}; step {:.2f} ms, at least {:.2f} ms; kernels {:.2f} ms; waited-for "
                    "communication {:.2f} ms; peak {:.2f} GiB on a rank",
                    mesh_.ToString(), placement_.step_us / 1e3, placement_.bound_us / 1e3,
                    (cost.forward_kernels + cost.backward_kernels) / 1e3, cost.visible / 1e3,
                    static_cast<double>(placement_.peak_bytes) / (1 << 30)),
        " fill=\"#444444\"");
    y_ = 60;
  }

  void DrawHead() {
    constexpr std::string_view kHead = " fill=\"#666666\" font-size=\"11\"";
    PutText(kMargin, y_ + 14, "start", "module", kHead);
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      PutText(CellX(axis) + kCellWidth / 2, y_ + 14, "middle",
              fmt::format("axis {} of {}", axis, mesh_.size(axis)), kHead);
    }
    PutText(ParametersX(), y_ + 14, "start", "parameters", kHead);
    PutText(kBars, y_ + 14, "start", "kernels and moves, ms", kHead);
    y_ += kLine;
  }

  void DrawRow(const std::string& name, int32_t count, const PlacedTensor& placed,
               const std::vector<const PlacedInput*>& parameters, const PlacedModule* times) {
    Put("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" "
        "stroke=\"#e3e6ec\"/>\n",
        kMargin, y_, kWidth - kMargin);
    Put("<g class=\"row\"><title>{}</title>\n", XmlText(name));
    const double base = y_ + kLine - 7;
    PutText(kMargin, base, "start",
            ShortName(name, kLongestName) + (count > 1 ? fmt::format(" x{}", count) : ""));
    for (size_t axis = 0; axis < placed.axes.size(); ++axis) {
      DrawCut(placed.axes[axis], CellX(static_cast<int>(axis)));
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string& full = parameters[i]->name;
      const std::string text = fmt::format(
          "{} {}{}", full.substr(full.rfind('.') + 1), parameters[i]->placed.layout,
          parameters[i]->count == count ? "" : fmt::format(" (x{})", parameters[i]->count));
      Put("<g><title>{} {}</title>", XmlText(full), XmlText(parameters[i]->type));
      PutText(ParametersX(), base + kLine * static_cast<double>(i), "start",
              ShortName(text, LongestParameter()), " font-size=\"11\"");
      Put("</g>\n");
    }
    if (times != nullptr) {
      DrawBar(times->kernel_us, y_ + 3, "kernels", "#6d7f99");
      DrawBar(times->move_us, y_ + kLine / 2 + 1, "moves", "#d06c8c");
    }
    Put("</g>\n");
    y_ += kLine * static_cast<double>(std::max<size_t>(1, parameters.size()));
  }

  void DrawCut(const AxisCut& cut, double x) {
    const CutStyle& style = StyleOf(cut.kind);
    std::string text(style.name);
    if (cut.kind == AxisCut::Kind::kPartial) text = "sum";
    if (cut.kind == AxisCut::Kind::kOther) text = fmt::format("{}: {}", cut.dim, cut.size);
    Put("<rect class=\"cut\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\" "
        "fill=\"{}\"/>\n",
        x + 2, y_ + 3, kCellWidth - 4, kLine - 6, style.fill);
    PutText(x + kCellWidth / 2, y_ + kLine - 7, "middle", ShortName(text, 11),
            fmt::format(" font-size=\"11\" fill=\"{}\"", style.text));
  }

  void DrawBar(double us, double y, std::string_view what, std::string_view color) {
    if (us <= 0) return;
    const double width = std::max(1.0, kBarWidth * us / longest_us_);
    Put("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"7\" "
        "fill=\"{}\"/>\n",
        what, kBars, y, width, color);
    PutText(kBars + width + 5, y + 7, "start", fmt::format("{:.3g}", us / 1e3),
            " font-size=\"9\" fill=\"#444444\"");
  }

  void DrawLegend() {
    y_ += 14;
    double x = kMargin;
    auto entry = [&](std::string_view name, std::string_view color) {
      Put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\" "
          "stroke=\"#00000033\"/>\n",
          x, y_, color);
      PutText(x + 18, y_ + 10, "start", name, " font-size=\"11\"");
      x += 18 + 6.2 * static_cast<double>(name.size()) + 20;
    };
    for (const CutStyle& style : kCutStyles) {
      entry(&style == &kCutStyles.back() ? "another dimension: its number and size" : style.name,
            style.fill);
    }
    entry("time of kernels", "#6d7f99");
    entry("time of moves", "#d06c8c");
    y_ += 14;
  }

  const placement::DeviceMesh& mesh_;
  const std::vector<PlacedInput> inputs_;
  const std::vector<PlacedModule> modules_;
  const Placement& placement_;
  double longest_us_ = 1e-9;
  double y_ = 0;
  std::vector<const PlacedInput*> drawn_;
  std::string svg_;
};

}  // namespace

std::string PlacementSvg(const PlaceProblem& problem, const Placement& placement,
                         const std::string& title) {
  return PlacementPicture(problem, placement).Draw(title);
}

}  // namespace gt
