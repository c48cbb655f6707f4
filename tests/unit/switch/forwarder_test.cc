// Forwarder: where packets go, in which order, and what is counted when they go nowhere.
#include "switch/forwarder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "support/conservation.h"
#include "support/fake_port.h"
#include "support/macs.h"

namespace sluice::fabric {
namespace {

using test::kA;
using test::kB;
using test::kC;

using namespace std::chrono_literals;
using net::DropCause;
using net::PackedMac;
using test::Frame;
using test::make_frame;
using test::tag_of;

constexpr PackedMac kGroup = 0x01'00'00'00'00'01;

class ForwarderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 4; ++i) {
      ports_.push_back(std::make_unique<test::FakePort>("p" + std::to_string(i), 2));
      raw_.push_back(ports_.back().get());
    }
    bridge_ = std::make_unique<Forwarder>(raw_, table_);
  }

  // All that waits on a port's queue goes through the forwarder.
  void run(std::uint16_t port, Forwarder& forwarder, std::uint16_t q = 0) {
    while (ports_[port]->receive(q, burst_) != 0) {
      forwarder.forward({.port = port, .hint = q, .counters = &ports_[port]->from_driver(q)},
                        burst_, *scratch_);
      ports_[port]->release(q);
    }
  }
  void send(std::uint16_t port, PackedMac to, PackedMac from, std::uint32_t tag = 0) {
    ports_[port]->inject(make_frame(to, from, tag));
    run(port, *bridge_);
  }
  // How many frames each port got since the last call.
  std::vector<std::size_t> got() {
    std::vector<std::size_t> counts;
    for (auto& port : ports_) counts.push_back(port->sent().size());
    return counts;
  }
  void expect_conserved() {
    std::vector<PortStats> stats;
    for (const auto& port : ports_) stats.push_back(test::stats_of(*port));
    EXPECT_TRUE(test::conserved(stats, test::totals_of(scratch_->counters)));
  }
  std::uint64_t drops(std::uint16_t port, DropCause cause) {
    return test::dropped(test::stats_of(*ports_[port]).from_driver, cause);
  }

  using Counts = std::vector<std::size_t>;
  MacTable table_{64, 4, 300s, 0x1234'5678'9abc'def1};
  std::vector<std::unique_ptr<test::FakePort>> ports_;
  std::vector<Port*> raw_;
  std::unique_ptr<Forwarder> bridge_;
  packet::Burst burst_;
  std::unique_ptr<Forwarder::Scratch> scratch_ = std::make_unique<Forwarder::Scratch>();
};

TEST_F(ForwarderTest, H46_TheSequenceOfTheReport) {
  send(0, kB, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 1, 1})) << "unknown: to all but where it came from";
  send(1, kA, kB);
  EXPECT_EQ(got(), (Counts{1, 0, 0, 0})) << "learned from the source, not the destination";
  send(0, kB, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 0, 0})) << "known goes to one port";
  send(0, net::kBroadcastMac, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 1, 1}));
  // The uplink (port 3) reflects the broadcast: the last writer wins, so A seems to be there ...
  send(3, net::kBroadcastMac, kA);
  EXPECT_EQ(got(), (Counts{1, 1, 1, 0}));
  send(1, kA, kB);
  EXPECT_EQ(got(), (Counts{0, 0, 0, 1}));
  // ... until its next frame.
  send(0, kB, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 0, 0}));
  send(1, kA, kB);
  EXPECT_EQ(got(), (Counts{1, 0, 0, 0}));
  // A moves to port 2: in effect with the first frame.
  send(2, kB, kA);
  got();
  send(1, kA, kB);
  EXPECT_EQ(got(), (Counts{0, 0, 1, 0}));
  expect_conserved();
}

TEST_F(ForwarderTest, H46_GroupAndZeroSourcesAreForwardedButNotLearned) {
  send(0, net::kBroadcastMac, kGroup);
  send(0, net::kBroadcastMac, 0);
  EXPECT_EQ(got(), (Counts{0, 2, 2, 2}));
  EXPECT_EQ(table_.size(), 0U);
  send(1, 0, kB);
  EXPECT_EQ(got(), (Counts{1, 0, 1, 1})) << "the zero address as destination is just unknown";
  expect_conserved();
}

TEST_F(ForwarderTest, H46_AFrameForTheOwnPortsStationIsDroppedAndCounted) {
  send(0, kB, kA);
  got();
  send(0, kA, kC);
  EXPECT_EQ(got(), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(drops(0, DropCause::kNoDestination), 1U);
  expect_conserved();
}

TEST_F(ForwarderTest, H45_AForeignStaticSourceIsDroppedAndCounted) {
  ASSERT_TRUE(table_.add_static(kB, 1));
  send(0, kA, kB);
  EXPECT_EQ(got(), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(drops(0, DropCause::kSourceFilter), 1U);
  send(2, kB, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 0, 0}));
  expect_conserved();
}

TEST_F(ForwarderTest, FloodsOnlyToPortsThatAreReady) {
  ports_[1]->set_ready(false);
  send(0, kB, kA);
  EXPECT_EQ(got(), (Counts{0, 0, 1, 1}));
  ports_[2]->set_ready(false);
  ports_[3]->set_ready(false);
  send(0, kB, kA);
  EXPECT_EQ(drops(0, DropCause::kNoDestination), 1U);
  expect_conserved();
}

TEST_F(ForwarderTest, AKnownStationWhosePortIsDownCostsThePacketThere) {
  send(1, kA, kB);
  got();
  ports_[1]->set_ready(false);
  send(0, kB, kA);
  EXPECT_EQ(got(), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(test::dropped(test::stats_of(*ports_[1]).to_driver, DropCause::kNotReady), 1U);
  expect_conserved();
}

TEST_F(ForwarderTest, FloodsOnlyWhatAPortsFilterWants) {
  net::ReceiveFilter filter;
  filter.set_promiscuous(false);
  filter.set_address(kC);
  ports_[2]->set_filter(&filter);
  bridge_ = std::make_unique<Forwarder>(raw_, table_);
  send(0, kB, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 0, 1}));
  send(0, kC, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 1, 1}));
  send(0, kGroup, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 0, 1}));
  send(0, net::kBroadcastMac, kA);
  EXPECT_EQ(got(), (Counts{0, 1, 1, 1}));
  expect_conserved();
}

// Unicast, flooded and unknown packets of one burst reach a port in the order of the burst.
TEST_F(ForwarderTest, KeepsTheOrderOfABurstForEachReceiver) {
  send(1, kA, kB);
  send(2, kA, kC);
  got();
  for (std::uint32_t tag = 0; tag < 64; ++tag) {
    const PackedMac to = tag % 3 == 0 ? kB : tag % 3 == 1 ? net::kBroadcastMac : kC;
    ports_[0]->inject(make_frame(to, kA, tag));
  }
  run(0, *bridge_);
  for (std::uint16_t port = 1; port < 4; ++port) {
    std::uint32_t last = 0;
    bool first = true;
    for (const Frame& frame : ports_[port]->sent()) {
      if (!first) {
        EXPECT_GT(tag_of(frame), last);
      }
      last = tag_of(frame);
      first = false;
    }
  }
  expect_conserved();
}

TEST_F(ForwarderTest, GivesEachReceiverItsBurstInOneCallWithTheQueueAsHint) {
  for (std::uint32_t tag = 0; tag < 40; ++tag) {
    ports_[0]->inject(make_frame(net::kBroadcastMac, kA, tag), 1);
  }
  run(0, *bridge_, 1);
  EXPECT_EQ(ports_[1]->hints(), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(ports_[1]->sent().size(), 40U);
  EXPECT_EQ(scratch_->counters.forwarded.value(), 40U);
  EXPECT_EQ(scratch_->counters.flooded.value(), 40U);
  EXPECT_EQ(scratch_->counters.offers.value(), 120U);
}

TEST_F(ForwarderTest, PatchConnectsPairsEchoesAndDropsTheUnpaired) {
  Forwarder patch(raw_, {1, 0, 2, Forwarder::kNoPeer});
  ports_[0]->inject(make_frame(kB, kA, 7));
  ports_[1]->inject(make_frame(kA, kB, 8));
  ports_[2]->inject(make_frame(kA, kC, 9));
  ports_[3]->inject(make_frame(kA, kC, 10));
  for (std::uint16_t port = 0; port < 4; ++port) run(port, patch);
  EXPECT_EQ(tag_of(ports_[1]->sent().at(0)), 7U);
  EXPECT_EQ(tag_of(ports_[0]->sent().at(0)), 8U);
  EXPECT_EQ(tag_of(ports_[2]->sent().at(0)), 9U);
  EXPECT_EQ(ports_[3]->sent().size(), 0U);
  EXPECT_EQ(drops(3, DropCause::kNoDestination), 1U);
  expect_conserved();
}

TEST_F(ForwarderTest, AReceiverWithoutRoomCostsOnlyItsOwnPackets) {
  ports_[1]->set_room(3);
  for (std::uint32_t tag = 0; tag < 10; ++tag) {
    ports_[0]->inject(make_frame(net::kBroadcastMac, kA, tag));
  }
  run(0, *bridge_);
  EXPECT_EQ(got(), (Counts{0, 3, 10, 10}));
  expect_conserved();
}

}  // namespace
}  // namespace sluice::fabric
