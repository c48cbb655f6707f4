// DeviceSide: a vhost-user port that serves a socket, for tests of the port that drives it; and
// bursts of frames for both.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "support/driver_pair.h"
#include "support/fake_port.h"
#include "support/frame_builder.h"
#include "support/macs.h"
#include "support/port_guest.h"
#include "switch/vhost_link.h"
#include "switch/vhost_user_port.h"

namespace sluice::fabric {

using test::Frame;

// A vhost-user port with a control thread of its own.
class DeviceSide {
 public:
  explicit DeviceSide(const VhostUserOptions& options)
      : port(*VhostUserPort::create(options, 0, events)), link(*VhostLink::create(*port)) {
    EXPECT_TRUE(link->open_socket(options).has_value());
    thread_ = std::thread([this] {
      while (!stop_) {
        pollfd item{.fd = link->fd(), .events = POLLIN, .revents = 0};
        if (::poll(&item, 1, 1) > 0) link->on_ready();
      }
    });
  }
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;
  ~DeviceSide() {
    stop_ = true;
    thread_.join();
    link->close();
  }

  test::RecordingEvents events;
  std::unique_ptr<VhostUserPort> port;
  std::unique_ptr<VhostLink> link;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A burst of frames and who holds them.
struct Sent {
  explicit Sent(std::vector<Frame> all) : frames(std::move(all)) {
    burst->clear();
    for (const Frame& frame : frames) burst->packets[burst->count++] = packet::linear_packet(frame);
  }
  std::size_t to(Port& port, std::uint32_t hint = 0) {
    std::vector<packet::PacketIndex> which(frames.size());
    std::iota(which.begin(), which.end(), packet::PacketIndex{0});
    return port.transmit(hint, *burst, which);
  }
  std::vector<Frame> frames;
  std::unique_ptr<packet::Burst> burst = std::make_unique<packet::Burst>();
};

struct Arrived {
  std::vector<Frame> frames;
  std::vector<packet::Offload> offloads;
};

// Everything that has arrived at queue `q`, looked for until `count` frames are there.
inline Arrived take(Port& port, std::size_t count, std::uint16_t q = 0) {
  Arrived arrived;
  const auto burst = std::make_unique<packet::Burst>();
  const bool all = test::wait_for([&] {
    if (port.receive(q, *burst) == 0) return arrived.frames.size() >= count;
    for (std::uint32_t i = 0; i < burst->count; ++i) {
      const packet::Packet& packet = burst->packets[i];
      Frame frame(packet.length);
      packet::copy_frame(*burst, packet, 0, frame);
      arrived.frames.push_back(std::move(frame));
      arrived.offloads.push_back(packet.offload);
    }
    port.release(q);
    return false;
  });
  EXPECT_TRUE(all) << arrived.frames.size() << " of " << count;
  return arrived;
}

inline std::vector<Frame> frames_of(const std::vector<std::size_t>& sizes) {
  std::vector<Frame> frames;
  for (const std::size_t size : sizes) {
    frames.push_back(test::make_frame(test::kA, test::kB, 1, std::max<std::size_t>(size, 18)));
    frames.back().resize(size);
    for (std::size_t i = 18; i < size; ++i) {
      frames.back()[i] = static_cast<std::byte>(i * 7 + frames.size());
    }
  }
  return frames;
}

}  // namespace sluice::fabric
