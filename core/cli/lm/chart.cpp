// SPDX-License-Identifier: Apache-2.0
// Draws the loss curve as SVG.
#include "cli/lm/chart.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tenon::lm {
namespace {

using Points = std::vector<std::pair<int64_t, double>>;

constexpr double kWidth = 720, kHeight = 400, kLeft = 60, kRight = 20, kTop = 20, kBottom = 45;

std::string number(double v, int digits = 1) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, v);
  return text;
}

struct Scale {
  double steps, low, high;
  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * step / steps; }
  double y(double loss) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * (loss - low) / (high - low);
  }
};

std::string polyline(const Points& points, const Scale& scale, const char* color, double width) {
  std::string line = "<polyline fill=\"none\" stroke=\"" + std::string(color) +
                     "\" stroke-width=\"" + number(width) + "\" points=\"";
  for (const auto& [step, loss] : points)
    if (std::isfinite(loss))
      line += number(scale.x(static_cast<double>(step))) + "," + number(scale.y(loss)) + " ";
  return line + "\"/>\n";
}

std::string label(double x, double y, const char* anchor, const std::string& text,
                  const char* color = "#444") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor +
         "\" fill=\"" + color + "\">" + text + "</text>\n";
}

}  // namespace

std::string loss_chart(const TrainingState& state) {
  double low = 1e300, high = -1e300;
  for (const Points* points : {&state.losses, &state.held_out})
    for (const auto& [step, loss] : *points)
      if (std::isfinite(loss)) low = std::min(low, loss), high = std::max(high, loss);
  if (low > high) low = 0, high = 1;
  low = std::floor(low * 2) / 2;
  high = std::max(std::ceil(high * 2) / 2, low + 0.5);
  const Scale scale{static_cast<double>(std::max<int64_t>(state.total_steps, 1)), low, high};

  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 400\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"720\" height=\"400\" fill=\"white\"/>\n";
  for (int i = 0; i <= 4; ++i) {
    const double loss = low + (high - low) * i / 4, step = scale.steps * i / 4;
    svg += "<line x1=\"60\" x2=\"700\" y1=\"" + number(scale.y(loss)) + "\" y2=\"" +
           number(scale.y(loss)) + "\" stroke=\"#ddd\"/>\n";
    svg += label(kLeft - 8, scale.y(loss) + 4, "end", number(loss, 2));
    svg += label(scale.x(step), kHeight - kBottom + 18, "middle", number(step, 0));
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "step");
  svg += polyline(state.losses, scale, "#9db8d9", 1);
  svg += polyline(state.held_out, scale, "#c0392b", 2);
  svg += label(kWidth - kRight - 4, kTop + 14, "end", "training loss (nats per byte)", "#5b86b8");
  svg += label(kWidth - kRight - 4, kTop + 30, "end", "held-out loss", "#c0392b");
  return svg + "</svg>\n";
}

}  // namespace tenon::lm
