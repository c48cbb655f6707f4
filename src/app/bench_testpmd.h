// TestpmdPair: two of DPDK's testpmd in the place of our pair, to measure against: net_vhost on the
// device's core, net_virtio_user on the driver's, one vhost-user socket between them.
//
// Both use ordinary 4 KiB pages as we do, and rest while they do not measure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "app/bench_case.h"
#include "app/bench_pair.h"
#include "app/dialogue.h"
#include "app/scratch_directory.h"
#include "base/error.h"

namespace sluice::app {

class TestpmdPair {
 public:
  /// The program, from Debian's package `dpdk`.
  static constexpr std::string_view kProgram = "dpdk-testpmd";

  /// Starts both with the ring of `what`. Errors: kNotFound if testpmd is not installed; those of
  /// Dialogue.
  [[nodiscard]] static Result<TestpmdPair> start(const BenchCase& what, const PairOptions& options);
  TestpmdPair(TestpmdPair&&) noexcept = default;
  TestpmdPair& operator=(TestpmdPair&&) = delete;
  ~TestpmdPair() = default;

  /// Measures one direction (not kBoth, kForward) as measure_pair() does ours.
  [[nodiscard]] Result<BenchRow> measure(Direction direction);
  /// Ends both.
  Status quit();

 private:
  TestpmdPair(const BenchCase& what, const PairOptions& options, ScratchDirectory directory,
              Dialogue vhost, Dialogue virtio);

  BenchCase what_;
  PairOptions options_;
  ScratchDirectory directory_;
  Dialogue vhost_;
  Dialogue virtio_;
};

/// The sum of "Rx-pps" over all ports of `show port stats all`, packets a second.
[[nodiscard]] std::uint64_t received_rate(std::string_view text);

}  // namespace sluice::app
