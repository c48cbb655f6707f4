// Draws bars. All lengths are pixels.
#include "app/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace sluice::app {

namespace {

constexpr std::array<std::string_view, 6> kColours = {"#9ecae1", "#3182bd", "#fdae6b",
                                                      "#e6550d", "#a1d99b", "#31a354"};
constexpr double kBar = 18;
constexpr double kGap = 24;      // Between groups.
constexpr double kLeft = 60;     // Of the first group, for the scale.
constexpr double kTop = 60;      // Of the plot, for title and key.
constexpr double kHeight = 260;  // Of the plot.
constexpr double kBottom = 50;   // For the groups' names.

// What a mark of the scale stands for: 1, 2 or 5 times a power of ten, about five marks.
double step_for(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (most / (factor * power) <= 6) return factor * power;
  }
  return 10 * power;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

std::string rectangle(double x, double y, double width, double height, std::string_view colour) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y,
      width, height, colour);
}

}  // namespace

void BarChart::set(const std::string& group, std::size_t index, double value) {
  auto found = std::ranges::find(groups_, group, &Group::name);
  if (found == groups_.end()) {
    groups_.push_back({group, std::vector<double>(series.size(), -1)});
    found = std::prev(groups_.end());
  }
  found->values.at(index) = value;
}

std::string BarChart::svg() const {
  double most = 1;
  for (const Group& group : groups_) most = std::max(most, std::ranges::max(group.values));
  const double step = step_for(most);
  const double scale = kHeight / (std::ceil(most / step) * step);
  const double group_width = kBar * static_cast<double>(series.size());
  const double width = kLeft + static_cast<double>(groups_.size()) * (group_width + kGap) + kGap;
  const double floor = kTop + kHeight;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      width, floor + kBottom);
  out += rectangle(0, 0, width, floor + kBottom, "white");
  out += text_at(kLeft, 20, "start", title);
  double key = kLeft;
  for (std::size_t i = 0; i < series.size(); ++i) {
    out += rectangle(key, 32, 10, 10, kColours[i % kColours.size()]);
    out += text_at(key + 14, 41, "start", series[i]);
    key += 30 + 7 * static_cast<double>(series[i].size());
  }
  for (double mark = 0; mark <= most + step / 2; mark += step) {
    out += rectangle(kLeft - 4, floor - mark * scale, width - kLeft, 0.5, "#cccccc");
    out += text_at(kLeft - 8, floor - mark * scale + 4, "end", fmt::format("{:g}", mark));
  }
  double x = kLeft + kGap / 2;
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < group.values.size(); ++i) {
      const double value = group.values[i];
      if (value < 0) continue;
      const double at = x + kBar * static_cast<double>(i);
      out += rectangle(at, floor - value * scale, kBar - 2, value * scale,
                       kColours[i % kColours.size()]);
    }
    const std::size_t comma = std::min(group.name.find(", "), group.name.size());
    out += text_at(x + group_width / 2, floor + 16, "middle", group.name.substr(0, comma));
    if (comma < group.name.size()) {
      out += text_at(x + group_width / 2, floor + 32, "middle", group.name.substr(comma + 2));
    }
    x += group_width + kGap;
  }
  return out + "</svg>\n";
}

}  // namespace sluice::app
