// A VhostUserPort with a raw guest, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/conservation.h"
#include "support/macs.h"
#include "support/port_guest.h"
#include "switch/vhost_user_port.h"

namespace sluice::fabric {

using test::kA;
using test::kB;

/// The parameter is the kind of ring: bit 0 packed, bit 1 in order.
class VhostPortFixture : public ::testing::TestWithParam<int> {
 protected:
  void make(VhostUserOptions options = {}) {
    options.name = "p0";
    options.path = "unused";
    auto made = VhostUserPort::create(options, 0, events_);
    ASSERT_TRUE(made.has_value());
    port_ = *std::move(made);
  }
  void attach(test::GuestOptions options = {}) {
    options.packed = (GetParam() & 1) != 0;
    options.in_order = (GetParam() & 2) != 0;
    guest_ = std::make_unique<test::PortGuest>(*port_, options);
  }
  // Sends frames 0, 1, ... `count` - 1 to pair `pair`, as a worker would. Returns how many went.
  std::size_t transmit(std::size_t count, std::uint32_t hint = 0) {
    test::FakePort source("source");
    for (std::uint32_t i = 0; i < count; ++i) source.inject(test::make_frame(kA, kB, i));
    source.receive(0, burst_);
    std::vector<packet::PacketIndex> which(burst_.count);
    for (std::size_t i = 0; i < which.size(); ++i) which[i] = static_cast<packet::PacketIndex>(i);
    const std::size_t went = port_->transmit(hint, burst_, which);
    source.release(0);
    return went;
  }
  // Tags of the frames one receive() gives.
  std::vector<std::uint32_t> receive(std::uint16_t q = 0) {
    std::vector<std::uint32_t> tags;
    const std::size_t count = port_->receive(q, burst_);
    EXPECT_EQ(count, count == 0 ? 0 : burst_.count);
    for (std::size_t i = 0; i < count; ++i) {
      test::Frame frame(burst_.packets[i].length);
      packet::copy_frame(burst_, burst_.packets[i], 0, frame);
      tags.push_back(test::tag_of(frame));
    }
    if (count != 0) port_->release(q);
    return tags;
  }
  std::uint64_t from_drops(net::DropCause cause) {
    return test::dropped(test::stats_of(*port_).from_driver, cause);
  }
  std::uint64_t to_drops(net::DropCause cause) {
    return test::dropped(test::stats_of(*port_).to_driver, cause);
  }
  std::string_view state_of(std::size_t view) { return port_->queues().at(view).state; }

  using Tags = std::vector<std::uint32_t>;
  test::RecordingEvents events_;
  std::unique_ptr<VhostUserPort> port_;
  std::unique_ptr<test::PortGuest> guest_;
  packet::Burst burst_;
};

inline std::string ring_name(const ::testing::TestParamInfo<int>& kind) {
  return std::string((kind.param & 1) != 0 ? "Packed" : "Split") +
         ((kind.param & 2) != 0 ? "InOrder" : "");
}

}  // namespace sluice::fabric
