// Measuring and printing the matrix.
#include "app/bench_matrix.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "app/action.h"
#include "app/bar_chart.h"
#include "app/bench_testpmd.h"
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

// The cases that one testpmd pair can serve: they differ in direction only.
using Group = std::vector<BenchCase>;

std::vector<Group> all_groups(const MatrixOptions& options) {
  std::vector<Group> groups;
  for (const bool packed : options.rings) {
    for (const std::uint16_t queues : options.queues) {
      for (const bool in_order : {false, true}) {
        Group group(kMatrixRows.size(), options.base);
        for (std::size_t i = 0; i < group.size(); ++i) {
          group[i].packed = packed;
          group[i].direction = kMatrixRows[i];
          group[i].queues = queues;
          group[i].in_order = in_order;
        }
        groups.push_back(std::move(group));
      }
    }
  }
  return groups;
}

// What was measured, ours and theirs.
struct Rows {
  std::vector<BenchRow> ours;
  std::vector<BenchRow> theirs;
};

control::Json json_of(const std::vector<MatrixCell>& cells, const std::vector<MatrixCell>& theirs) {
  control::Json rows = control::Json::array();
  for (const MatrixCell& cell : cells) {
    control::Json row{{"case", name_of(cell.what.direction)},
                      {"ring", cell.what.packed ? "packed" : "split"},
                      {"order", cell.what.in_order ? "in-order" : "any"},
                      {"mrg", cell.what.mergeable ? "on" : "off"},
                      {"queues", cell.what.queues},
                      {"queue_size", cell.what.queue_size},
                      {"size", cell.what.size},
                      {"mpps", cell.median()},
                      {"runs", cell.mpps.size()},
                      {"rtt_ns", cell.rtt_ns},
                      {"state", cell.state}};
    if (const MatrixCell* peer = find(theirs, cell.what, cell.state)) {
      row["testpmd_mpps"] = peer->median();
      row["testpmd_runs"] = peer->mpps.size();
      row["ratio"] = cell.median() / peer->median();
    }
    rows.push_back(row);
  }
  return {{"rows", rows}};
}

// The row now measured, on a terminal only: a document has no use for it.
void show_progress(std::size_t done, std::size_t all) {
  if (::isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\rrow {} of {} ", done + 1, all);
  if (done + 1 == all) fmt::print(stderr, "\r{:30}\r", "");
  std::fflush(stderr);
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  return file.flush().good();
}

bool print_tables(const MatrixOptions& options, const std::vector<MatrixCell>& cells,
                  const std::vector<MatrixCell>& theirs, std::string_view state) {
  std::string out = fmt::format(
      "Mpps at the receiver, median of {} windows of {} ms, {} bytes, mergeable buffers {},\n"
      "cores {}. In loopback a packet counts once a lap.\n",
      options.runs, options.pair.window.count(), options.base.size,
      options.base.mergeable ? "on" : "off", state);
  for (const bool packed : options.rings) {
    const std::string name = packed ? "packed" : "split";
    MatrixView view{.title = name, .packed = packed, .state = state, .queues = options.queues};
    out += "\n" + matrix_table(cells, view);
    if (!options.against_testpmd) continue;
    view.title = name + " testpmd";
    out += "\n" + matrix_table(theirs, view);
    view.title = name + " ratio";
    out += "\n" + matrix_table(ratios_of(cells, theirs), view);
  }
  return print(out);
}

// Measures the cases of one group, each with a window of theirs behind it if that is wanted.
Status measure_group(const Group& group, const MatrixOptions& options, Rows& rows) {
  std::optional<TestpmdPair> peer;
  if (options.against_testpmd) peer.emplace(TRY(TestpmdPair::start(group[0], options.pair)));
  for (const BenchCase& what : group) {
    rows.ours.push_back(TRY(measure_pair(what, options.pair)));
    if (peer) rows.theirs.push_back(TRY(peer->measure(what.direction)));
  }
  return peer ? peer->quit() : Status{};
}

int report_failure(const MatrixOptions& options, const Error& error) {
  if (options.against_testpmd && error.code == ErrorCode::kNotFound) {
    return report(ExitCode::kFailure, fmt::format("start {}", TestpmdPair::kProgram),
                  describe(error), "apt-get install dpdk");
  }
  return report(ExitCode::kFailure, "measure a cell", describe(error),
                "two cores that this process may use, little load");
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

std::vector<MatrixCell> ratios_of(const std::vector<MatrixCell>& ours,
                                  const std::vector<MatrixCell>& theirs) {
  std::vector<MatrixCell> ratios;
  for (const MatrixCell& cell : ours) {
    const MatrixCell* peer = find(theirs, cell.what, cell.state);
    if (peer == nullptr || peer->median() <= 0) continue;
    ratios.push_back(cell);
    ratios.back().mpps = {cell.median() / peer->median()};
  }
  return ratios;
}

std::string matrix_table(const std::vector<MatrixCell>& cells, const MatrixView& view) {
  const std::vector<std::uint16_t>& queues = view.queues;
  std::string out = fmt::format("{:<14}", view.title);
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
        what.packed = view.packed;
        what.direction = direction;
        what.queues = count;
        what.in_order = in_order;
        const MatrixCell* cell = find(cells, what, view.state);
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
  const std::vector<Group> groups = all_groups(options);
  const std::size_t all = groups.size() * static_cast<std::size_t>(options.runs);
  std::size_t done = 0;
  Rows rows;
  for (int run = 0; run < options.runs; ++run) {
    for (const Group& group : groups) {
      show_progress(done++, all);
      const Status measured = measure_group(group, options, rows);
      if (!measured.has_value()) return report_failure(options, measured.error());
    }
  }
  const std::vector<MatrixCell> cells = cells_of(rows.ours);
  const std::vector<MatrixCell> theirs = cells_of(rows.theirs);
  const std::string_view state = usual_state(rows.ours);
  if (!options.svg.empty() && !write_file(options.svg, matrix_svg(cells, state))) {
    return report(ExitCode::kFailure, "write " + options.svg, "the file cannot be written",
                  "give a path in a directory that this user may write to");
  }
  const bool printed = options.pair.json ? print(json_of(cells, theirs).dump(2) + "\n")
                                         : print_tables(options, cells, theirs, state);
  return static_cast<int>(printed ? ExitCode::kOk : ExitCode::kFailure);
}

}  // namespace sluice::app
