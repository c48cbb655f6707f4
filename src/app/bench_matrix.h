// `sluice bench matrix`: every cell of direction x queues x order, as the tables of DPDK's IN_ORDER
// series show them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/bench_case.h"
#include "app/bench_pair.h"

namespace sluice::app {

struct MatrixOptions {
  PairOptions pair;  // Its cases are made from what follows; `json` is obeyed.
  std::vector<bool> rings = {false, true};  // Packed or not: one table each.
  std::vector<std::uint16_t> queues = {1, 2, 4};
  BenchCase base;   // What all cells have in common.
  int runs = 3;     // Windows of each cell, one a lap, so that all cells see all times.
  std::string svg;  // File for a picture; empty: none.
  /// Each window of ours has one of a testpmd pair right behind it.
  bool against_testpmd = false;
};

/// The windows of one cell in one state of the machine.
struct MatrixCell {
  BenchCase what;
  std::string_view state;
  std::vector<double> mpps;
  double rtt_ns = 0;  // Mean.

  [[nodiscard]] double median() const;
};

/// Sorts rows into cells, one for each case and state, in the order in which they first came.
[[nodiscard]] std::vector<MatrixCell> cells_of(const std::vector<BenchRow>& rows);
/// The state that most windows were in; "" without rows.
[[nodiscard]] std::string_view usual_state(const std::vector<BenchRow>& rows);
/// What a table shows, and of what.
struct MatrixView {
  std::string title;  // Above the names of the rows.
  bool packed = false;
  std::string_view state;
  std::vector<std::uint16_t> queues;
};
/// The table of one ring format in one state; a cell that was not seen in it shows "-".
[[nodiscard]] std::string matrix_table(const std::vector<MatrixCell>& cells,
                                       const MatrixView& view);
/// Cells that hold how many times faster `ours` are than `theirs`, where both were seen.
[[nodiscard]] std::vector<MatrixCell> ratios_of(const std::vector<MatrixCell>& ours,
                                                const std::vector<MatrixCell>& theirs);
/// The same as a picture: bars by direction and number of queues, one colour for each order.
[[nodiscard]] std::string matrix_svg(const std::vector<MatrixCell>& cells, std::string_view state);

/// Measures all and prints. Returns an ExitCode.
int run_matrix(const MatrixOptions& options);

}  // namespace sluice::app
