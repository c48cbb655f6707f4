// Measuring and printing the matrix.
#include "app/bench_matrix.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <tuple>

#include "app/action.h"
#include "app/bar_chart.h"
#include "app/report.h"

namespace sluice::app {

namespace {

constexpr std::array kMatrixRows = {Direction::kToDriver, Direction::kFromDriver,
                                    Direction::kLoopback};

// As the tables of the series name them.
std::string_view title_of(Direction direction) {
  switch (direction) {
    case Direction::kToDriver: return "Vhost->Virtio";
    case Direction::kFromDriver: return "Virtio->Vhost";
    default: return "Loopback";
  }
}

std::string queues_text(std::uint16_t queues) {
  return fmt::format("{} queue{}", queues, queues == 1 ? "" : "s");
}

auto key_of(const BenchCase& what) {
  return std::tuple(what.packed, what.direction, what.queues, what.in_order);
}

const MatrixCell* find(const std::vector<MatrixCell>& cells, const BenchCase& what,
                       std::string_view state) {
  for (const MatrixCell& cell : cells) {
    if (cell.state == state && key_of(cell.what) == key_of(what)) return &cell;
  }
  return nullptr;
}

std::vector<BenchCase> all_cases(const MatrixOptions& options) {
  std::vector<BenchCase> cases;
  for (const bool packed : options.rings) {
    for (const Direction direction : kMatrixRows) {
      for (const std::uint16_t queues : options.queues) {
        for (const bool in_order : {false, true}) {
          BenchCase what = options.base;
          what.packed = packed;
          what.direction = direction;
          what.queues = queues;
          what.in_order = in_order;
          cases.push_back(what);
        }
      }
    }
  }
  return cases;
}

control::Json json_of(const std::vector<MatrixCell>& cells) {
  control::Json rows = control::Json::array();
  for (const MatrixCell& cell : cells) {
    rows.push_back({{"case", name_of(cell.what.direction)},
                    {"ring", cell.what.packed ? "packed" : "split"},
                    {"order", cell.what.in_order ? "in-order" : "any"},
                    {"mrg", cell.what.mergeable ? "on" : "off"},
                    {"queues", cell.what.queues},
                    {"queue_size", cell.what.queue_size},
                    {"size", cell.what.size},
                    {"mpps", cell.median()},
                    {"runs", cell.mpps.size()},
                    {"rtt_ns", cell.rtt_ns},
                    {"state", cell.state}});
  }
  return {{"rows", rows}};
}

// The window now measured, on a terminal only: a document has no use for it.
void show_progress(std::size_t done, std::size_t all) {
  if (::isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\rwindow {} of {} ", done + 1, all);
  if (done + 1 == all) fmt::print(stderr, "\r{:30}\r", "");
  std::fflush(stderr);
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  return file.flush().good();
}

bool print_tables(const MatrixOptions& options, const std::vector<MatrixCell>& cells,
                  std::string_view state) {
  std::string out = fmt::format(
      "Mpps at the receiver, median of {} windows of {} ms, {} bytes, mergeable buffers {},\n"
      "cores {}. In loopback a packet counts once a lap.\n",
      options.runs, options.pair.window.count(), options.base.size,
      options.base.mergeable ? "on" : "off", state);
  for (const bool packed : options.rings) {
    out += "\n" + matrix_table(cells, packed, state, options.queues);
  }
  return print(out);
}

}  // namespace

double MatrixCell::median() const {
  if (mpps.empty()) return 0;
  std::vector<double> sorted = mpps;
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  if (sorted.size() % 2 != 0) return sorted[middle];
  return (sorted[middle - 1] + sorted[middle]) / 2;
}

std::vector<MatrixCell> cells_of(const std::vector<BenchRow>& rows) {
  std::vector<MatrixCell> cells;
  for (const BenchRow& row : rows) {
    const std::string_view state = row.round_trip.state();
    auto cell = std::ranges::find_if(cells, [&](const MatrixCell& one) {
      return one.state == state && key_of(one.what) == key_of(row.what);
    });
    if (cell == cells.end()) {
      cells.push_back({.what = row.what, .state = state, .mpps = {}});
      cell = std::prev(cells.end());
    }
    const double before = static_cast<double>(cell->mpps.size());
    cell->rtt_ns = (cell->rtt_ns * before + row.round_trip.mean_ns()) / (before + 1);
    cell->mpps.push_back(row.mpps);
  }
  return cells;
}

std::string_view usual_state(const std::vector<BenchRow>& rows) {
  std::map<std::string_view, std::size_t> counts;
  for (const BenchRow& row : rows) ++counts[row.round_trip.state()];
  const auto most = std::ranges::max_element(
      counts, [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? std::string_view() : most->first;
}

std::string matrix_table(const std::vector<MatrixCell>& cells, bool packed, std::string_view state,
                         const std::vector<std::uint16_t>& queues) {
  std::string out = fmt::format("{:<14}", packed ? "packed" : "split");
  for (const std::uint16_t count : queues) out += fmt::format("  {:>18}", queues_text(count));
  out += fmt::format("\n{:<14}", "");
  for (std::size_t i = 0; i < queues.size(); ++i) out += "    normal  in-order";
  out += '\n';
  for (const Direction direction : kMatrixRows) {
    out += fmt::format("{:<14}", title_of(direction));
    for (const std::uint16_t count : queues) {
      out += "  ";
      for (const bool in_order : {false, true}) {
        BenchCase what;
        what.packed = packed;
        what.direction = direction;
        what.queues = count;
        what.in_order = in_order;
        const MatrixCell* cell = find(cells, what, state);
        const std::string text = cell == nullptr ? "-" : fmt::format("{:.2f}", cell->median());
        out += fmt::format("{:>{}}", text, in_order ? 10 : 8);
      }
    }
    out += '\n';
  }
  return out;
}

std::string matrix_svg(const std::vector<MatrixCell>& cells, std::string_view state) {
  BarChart chart;
  chart.title = fmt::format("sluice bench matrix, Mpps, cores {}", state);
  chart.series = {"split", "split in-order", "packed", "packed in-order"};
  for (const MatrixCell& cell : cells) {
    if (cell.state != state) continue;
    const std::string group =
        fmt::format("{}, {}", title_of(cell.what.direction), queues_text(cell.what.queues));
    const std::size_t series = (cell.what.packed ? 2U : 0U) + (cell.what.in_order ? 1U : 0U);
    chart.set(group, series, cell.median());
  }
  return chart.svg();
}

int run_matrix(const MatrixOptions& options) {
  const std::vector<BenchCase> cases = all_cases(options);
  const std::size_t all = cases.size() * static_cast<std::size_t>(options.runs);
  std::vector<BenchRow> rows;
  for (int run = 0; run < options.runs; ++run) {
    for (const BenchCase& what : cases) {
      show_progress(rows.size(), all);
      auto row = measure_pair(what, options.pair);
      if (!row.has_value()) {
        return report(ExitCode::kFailure, fmt::format("measure {}", name_of(what.direction)),
                      describe(row.error()), "two cores that this process may use, little load");
      }
      rows.push_back(*std::move(row));
    }
  }
  const std::vector<MatrixCell> cells = cells_of(rows);
  const std::string_view state = usual_state(rows);
  if (!options.svg.empty() && !write_file(options.svg, matrix_svg(cells, state))) {
    return report(ExitCode::kFailure, "write " + options.svg, "the file cannot be written",
                  "give a path in a directory that this user may write to");
  }
  const bool printed = options.pair.json ? print(json_of(cells).dump(2) + "\n")
                                         : print_tables(options, cells, state);
  return static_cast<int>(printed ? ExitCode::kOk : ExitCode::kFailure);
}

}  // namespace sluice::app
