// BarChart: groups of bars as an SVG picture.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice::app {

class BarChart {
 public:
  std::string title;
  std::vector<std::string> series;  // One colour each; at most six.

  /// The bar of `group` (made at the first mention) in series number `index`.
  /// Requires: index < series.size().
  void set(const std::string& group, std::size_t index, double value);
  /// The picture. Bars that were not set are left out.
  [[nodiscard]] std::string svg() const;

 private:
  struct Group {
    std::string name;
    std::vector<double> values;  // One a series; below 0: none.
  };
  std::vector<Group> groups_;
};

}  // namespace sluice::app
