// H09, H10, H21, SEC-57: sessions of a whole switch that end badly, begin again, or sleep.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memory/mapping.h"
#include "support/fabric_runner.h"
#include "support/macs.h"
#include "support/port_guest.h"
#include "support/raw_split.h"
#include "support/temporary_directory.h"
#include "switch/forwarder.h"
#include "switch/worker.h"
#include "unit/memory/leaks.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

// A front-end whose memory is a plain file that it may shorten: a split ring in its first page, one
// transmit buffer in its last one.
class ShrinkingFrontEnd {
 public:
  static constexpr std::uint64_t kSize = 64 * 4096;
  static constexpr std::uint64_t kGuest = 0x10'0000;
  static constexpr std::uint64_t kUser = 0x7000'0000'0000;

  explicit ShrinkingFrontEnd(const std::string& path) : file_(::memfd_create("guest", 0)) {
    EXPECT_EQ(::ftruncate(file_.get(), kSize), 0);
    mapping_ = std::move(*memory::Mapping::map_file(file_.get(), 0, kSize));
    kick_ = std::make_shared<const EventFd>(*EventFd::create());
    auto source = vhost::FrontendSource::create({.path = path, .frontend = {}});
    auto frontend = source->next(20s);
    EXPECT_TRUE(frontend.has_value());
    frontend_ = *std::move(frontend);
    EXPECT_TRUE(frontend_->offer().has_value());
    const net::SharedRegion region{.record = {.guest = memory::GuestAddress(kGuest),
                                              .size = kSize,
                                              .user = memory::UserAddress(kUser),
                                              .offset = 0},
                                   .fd = file_.get()};
    const net::RingSetup ring{.queue = net::QueueIndex(1),
                              .size = 4,
                              .descriptors = memory::UserAddress(kUser),
                              .driver_area = memory::UserAddress(kUser + 256),
                              .device_area = memory::UserAddress(kUser + 512),
                              .position = {},
                              .kick = kick_,
                              .call = nullptr,
                              .enabled = true};
    EXPECT_TRUE(frontend_
                    ->start({.features = {virtio::Feature::kVersion1},
                             .regions = std::span(&region, 1),
                             .rings = std::span(&ring, 1)})
                    .has_value());
  }
  void post() {
    const SplitDescriptor descriptor{kGuest + kSize - 4096, 100, 0, 0};
    std::memcpy(mapping_.bytes().data(), &descriptor, sizeof descriptor);
    auto* const index = reinterpret_cast<std::uint16_t*>(mapping_.bytes().data() + 258);
    __atomic_store_n(index, static_cast<std::uint16_t>(1), __ATOMIC_RELEASE);
    kick_->signal();
  }
  void shrink() { EXPECT_EQ(::ftruncate(file_.get(), kSize / 2), 0); }
  [[nodiscard]] bool connected() { return frontend_->connected(); }

 private:
  UniqueFd file_;
  memory::Mapping mapping_;
  std::shared_ptr<const EventFd> kick_;
  std::unique_ptr<vhost::Frontend> frontend_;
};

TEST(SwitchSessions, SEC_57_AFrontEndThatShortensItsMemoryLosesItsSessionAndNothingElse) {
  const TemporaryDirectory directory;
  fabric::SwitchOptions options;
  options.vhost_user = {{.path = directory / "a.sock"}, {.path = directory / "b.sock"}};
  FabricRunner fabric(options);
  const auto honest = connect_driver(directory / "b.sock");
  ASSERT_TRUE(honest->start().has_value());
  ShrinkingFrontEnd hostile(directory / "a.sock");
  hostile.shrink();
  hostile.post();
  EXPECT_TRUE(wait_for([&] { return !hostile.connected(); }));
  EXPECT_NE(fabric.port(0).last_error.find("truncated"), std::string::npos)
      << fabric.port(0).last_error;
  EXPECT_EQ(fabric.port(0).state, "listening");
  EXPECT_EQ(fabric.port(1).state, "running");
  EXPECT_TRUE(honest->transport().connected());
  // And the port serves the next one.
  const auto next = connect_driver(directory / "a.sock");
  ASSERT_TRUE(next->start().has_value());
  DriverPair pair(*next);
  EXPECT_EQ(pair.send(10), 10U);
  EXPECT_TRUE(wait_for([&] { return fabric.stats(0).from_driver.packets >= 10; }));
}

TEST(SwitchSessions, H09_H10_AClientPortFollowsItsFrontEndForEver) {
  const TemporaryDirectory directory;
  fabric::SwitchOptions options;
  options.vhost_user = {{.path = directory / "a.sock", .name = "a", .client = true}};
  options.sinks = {{}};
  FabricRunner fabric(options);
  EXPECT_EQ(fabric.port(0).state, "connecting");
  std::uint64_t packets = 0;
  const auto visit = [&](vhost::FrontendSource& source, const net::NetDriverOptions& wanted) {
    auto frontend = source.next(20s);
    ASSERT_TRUE(frontend.has_value()) << frontend.error().text;
    auto driver = net::NetDriver::create(wanted, *std::move(frontend));
    ASSERT_TRUE(driver.has_value()) << driver.error().text;
    ASSERT_TRUE((*driver)->start().has_value());
    DriverPair pair(**driver);
    packets += pair.send(20);
    EXPECT_TRUE(wait_for([&] { return fabric.stats(0).from_driver.packets == packets; }));
  };
  net::NetDriverOptions plain;
  plain.wanted = {};
  net::NetDriverOptions packed;
  packed.wanted.add(virtio::Feature::kRingPacked);
  for (const net::NetDriverOptions& wanted : {net::NetDriverOptions{}, packed, plain, packed}) {
    // The socket is made anew each time, at the same path.
    auto source = vhost::FrontendSource::create(
        {.path = directory / "a.sock", .server = true, .frontend = {}});
    ASSERT_TRUE(source.has_value()) << source.error().text;
    visit(*source, wanted);
  }
  EXPECT_GE(fabric.port(0).sessions, 4U);
}

// Sends 10,000 frames through a ring of 16 and wants to hear of it only when the ring is full.
TEST(SwitchSessions, H21_ASenderWithAFullRingIsCalledWhenItsBuffersComeBack) {
  for (const bool packed : {false, true}) {
    SCOPED_TRACE(packed ? "packed" : "split");
    RecordingEvents events;
    fabric::VhostUserOptions port_options;
    port_options.name = "p";
    const auto port = *fabric::VhostUserPort::create(port_options, 0, events);
    fabric::Forwarder forwarder({port.get()}, {fabric::Forwarder::kNoPeer});
    PortGuest guest(*port, {.packed = packed, .event_idx = true, .size = 16});
    guest.start_all();
    guest.driver(1).want_interrupts(false);
    auto worker =
        *fabric::Worker::create({.poll = fabric::PollMode::kInterrupt},
                                {{.port = port.get(), .port_number = 0, .queue = 0}}, forwarder);
    ASSERT_TRUE(worker->start().has_value());
    std::uint32_t sent = 0;
    while (sent < 10'000) {
      while (guest.send(0, make_frame(kA, kB, sent))) ++sent;
      if (guest.driver(1).kick_due()) port->wake_source(0).event->signal();
      const std::uint64_t calls = guest.call(1).count();
      guest.driver(1).want_interrupts(true);
      std::size_t back = guest.sent_back(0);  // What came before the wish.
      if (back == 0) {
        ASSERT_TRUE(wait_for([&] { return guest.call(1).count() > calls; })) << "at frame " << sent;
        back = guest.sent_back(0);
      }
      ASSERT_GT(back, 0U);
      guest.driver(1).want_interrupts(false);
    }
    worker->stop();
    EXPECT_EQ(guest.driver(1).complaint(), "");
  }
}

}  // namespace
}  // namespace sluice::test
