// Widths, padding and short numbers.
#include "app/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace sluice::app {

void Table::add(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size(), "a row has as many cells as there are columns");
  for (std::string& cell : cells) {
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.heading.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  const auto put = [&](std::size_t i, std::string_view cell) {
    if (i > 0) out += "  ";
    if (columns_[i].align == Align::kRight) {
      fmt::format_to(std::back_inserter(out), "{:>{}}", cell, widths[i]);
    } else if (i + 1 == columns_.size()) {
      out += cell;  // No blanks at the end of a line.
    } else {
      fmt::format_to(std::back_inserter(out), "{:<{}}", cell, widths[i]);
    }
  };
  for (std::size_t i = 0; i < columns_.size(); ++i) put(i, columns_[i].heading);
  out += '\n';
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) put(i, row[i]);
    out += '\n';
  }
  return out;
}

std::string with_prefix(double value) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"", " k", " M", " G", " T"};
  constexpr double kStep = 1000.0;
  constexpr double kRounded = 999.5;  // From here on three digits would show 1000.
  std::size_t prefix = 0;
  while (value >= kRounded && prefix + 1 < kPrefixes.size()) {
    value /= kStep;
    ++prefix;
  }
  const int decimals = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, kPrefixes[prefix]);
}

std::string in_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, kUnits[unit]);
}

}  // namespace sluice::app
