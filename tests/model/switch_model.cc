// The forwarder beside a reference switch: random bursts between random stations.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "model/reference_switch.h"
#include "support/conservation.h"
#include "support/fake_port.h"
#include "support/random.h"
#include "switch/forwarder.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

class SwitchModel {
 public:
  explicit SwitchModel(std::uint64_t seed)
      : random_(seed),
        count_(static_cast<std::uint16_t>(2 + random_.below(6))),
        reference_(count_),
        // Room enough that the table never refuses: what it does then has tests of its own.
        table_(8192, count_, 300s, random_.next()) {
    std::vector<fabric::Port*> raw;
    for (std::uint16_t i = 0; i < count_; ++i) {
      ports_.push_back(std::make_unique<FakePort>("p" + std::to_string(i)));
      raw.push_back(ports_.back().get());
    }
    if (random_.one_in(2)) pin(station(1), static_cast<std::uint16_t>(random_.below(count_)));
    forwarder_ = std::make_unique<fabric::Forwarder>(raw, table_);
    // Swarm: each run has its own mixture of stations, groups and moves.
    stations_ = 1 + random_.below(12);
    group_weight_ = random_.below(4);
    home_weight_ = random_.below(8);
  }

  void step() {
    if (random_.one_in(40)) {
      const auto port = static_cast<std::uint16_t>(random_.below(count_));
      reference_.ready[port] = !reference_.ready[port];
      ports_[port]->set_ready(reference_.ready[port]);
    } else if (random_.one_in(60)) {
      const auto port = static_cast<std::uint16_t>(random_.below(count_));
      reference_.forget(port);
      table_.forget(port);
    } else {
      burst();
    }
  }

  void check_conservation() {
    std::vector<fabric::PortStats> stats;
    for (const auto& port : ports_) stats.push_back(stats_of(*port));
    EXPECT_TRUE(conserved(stats, totals_of(scratch_->counters)));
    EXPECT_EQ(dropped_by(net::DropCause::kSourceFilter), spoofed_);
    EXPECT_EQ(dropped_by(net::DropCause::kNoDestination), nowhere_);
  }

 private:
  static net::PackedMac station(std::uint64_t number) { return number << 8 | 0x02; }

  void pin(net::PackedMac mac, std::uint16_t port) {
    ASSERT_TRUE(table_.add_static(mac, port));
    reference_.pinned[mac] = port;
  }

  net::PackedMac any_address(std::uint16_t port) {
    if (random_.below(10) < group_weight_) {
      return random_.one_in(2) ? net::kBroadcastMac : net::PackedMac{0x01};
    }
    if (random_.one_in(30)) return 0;
    // Mostly stations of the own port, now and then somebody else's: a move.
    if (random_.below(8) < home_weight_) return station(port + 1U);
    return station(random_.below(stations_));
  }

  void burst() {
    const auto from = static_cast<std::uint16_t>(random_.below(count_));
    const std::size_t frames = 1 + random_.below(packet::kBurstMax);
    std::vector<std::vector<Frame>> expected(count_);
    net::PackedMac to = any_address(from);
    net::PackedMac source = any_address(from);
    for (std::size_t i = 0; i < frames; ++i) {
      if (random_.one_in(4)) to = any_address(static_cast<std::uint16_t>(random_.below(count_)));
      if (random_.one_in(6)) source = any_address(from);
      Frame frame = make_frame(to, source, tag_++, 18 + random_.below(100));
      const auto verdict = reference_.pass(from, to, source);
      for (const std::uint16_t port : verdict.receivers) {
        // A unicast for a port that is down is offered, and lost there.
        if (reference_.ready[port]) expected[port].push_back(frame);
      }
      if (verdict.spoofed) {
        ++spoofed_;
      } else if (verdict.receivers.empty()) {
        ++nowhere_;
      }
      ports_[from]->inject(std::move(frame));
    }
    while (ports_[from]->receive(0, burst_) != 0) {
      forwarder_->forward({.port = from, .hint = 0, .counters = &ports_[from]->from_driver(0)},
                          burst_, *scratch_);
      ports_[from]->release(0);
    }
    for (std::uint16_t port = 0; port < count_; ++port) {
      ASSERT_EQ(ports_[port]->sent(), expected[port]) << "port " << port;
    }
  }

  std::uint64_t dropped_by(net::DropCause cause) {
    std::uint64_t sum = 0;
    for (const auto& port : ports_) sum += dropped(stats_of(*port).from_driver, cause);
    return sum;
  }

  Random random_;
  const std::uint16_t count_;
  ReferenceSwitch reference_;
  fabric::MacTable table_;
  std::vector<std::unique_ptr<FakePort>> ports_;
  std::unique_ptr<fabric::Forwarder> forwarder_;
  std::unique_ptr<fabric::Forwarder::Scratch> scratch_ =
      std::make_unique<fabric::Forwarder::Scratch>();
  packet::Burst burst_;
  std::uint32_t stations_ = 0;
  std::uint32_t group_weight_ = 0;
  std::uint32_t home_weight_ = 0;
  std::uint32_t tag_ = 0;
  std::uint64_t spoofed_ = 0;
  std::uint64_t nowhere_ = 0;
};

TEST(SwitchModel, ForwardsEveryFrameLikeTheReferenceAndConservesThem) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SwitchModel model(seed);
    for (int step = 0; step < 150; ++step) {
      model.step();
      if (::testing::Test::HasFailure()) return;
    }
    model.check_conservation();
  }
}

}  // namespace
}  // namespace sluice::test
