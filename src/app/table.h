// Table: rows of text under a line of headings, columns aligned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::app {

enum class Align : std::uint8_t { kLeft, kRight };

struct Column {
  std::string_view heading;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Requires: as many cells as there are columns. An empty cell is shown as "-".
  void add(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  /// The headings and all rows, each line ended by a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "1.23 M": three digits and a prefix. Units: those of `value`.
[[nodiscard]] std::string with_prefix(double value);
/// "512 MiB", "4 KiB".
[[nodiscard]] std::string in_bytes(std::uint64_t bytes);

}  // namespace sluice::app
