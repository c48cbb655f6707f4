// Premapped buffers end to end: a driver opposite a switch's port sends and fills real frames in
// memory of the application, shared (a UMEM) and behind a bounce area (a heap array), while other
// memory is mapped and unmapped; and goes on after the switch was replaced by another.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/driver_virtqueue.h"
#include "net/net_driver.h"
#include "net/net_header.h"
#include "support/driver_pair.h"
#include "support/fabric_runner.h"
#include "support/temporary_directory.h"

namespace sluice::test {
namespace {

using net::DmaSegment;
using net::QueueIndex;
using virtio::Feature;

constexpr std::uint32_t kChunk = 2048;
constexpr std::uint32_t kFrame = 200;

// Chunks of mapped memory, named by number.
struct Chunks {
  std::span<std::byte> bytes;
  memory::DmaMapping mapping;

  [[nodiscard]] DmaSegment at(std::uint32_t chunk, std::uint32_t offset, std::uint32_t size) const {
    return {memory::GuestAddress(mapping.device.raw() + std::uint64_t{chunk} * kChunk + offset),
            size};
  }
  [[nodiscard]] std::byte* data(std::uint32_t chunk) const { return &bytes[chunk * kChunk]; }
};

// One queue pair whose frames come back, with numbers in them. Buffer n lies in memory n % count;
// received frames in chunks 0..kWindow-1 of each, sent ones in those behind.
class PremappedEcho {
 public:
  static constexpr std::uint32_t kWindow = 32;
  static constexpr std::uint64_t kBytes = 2ULL * kWindow * kChunk;

  PremappedEcho(net::NetDriver& driver, std::uint16_t pair)
      : header_(static_cast<std::uint32_t>(net::header_size(driver.features()))) {
    const auto receive = driver.queue(QueueIndex(static_cast<std::uint16_t>(2 * pair)));
    const auto transmit = driver.queue(QueueIndex(static_cast<std::uint16_t>(2 * pair + 1)));
    EXPECT_TRUE(receive && transmit);
    if (!receive || !transmit) return;
    in_ = net::DriverVirtqueue::make(*receive);
    out_ = net::DriverVirtqueue::make(*transmit);
  }
  /// Goes on in this memory. Requires: nothing is outstanding.
  void use(std::vector<Chunks> memory) {
    memory_ = std::move(memory);
    free_.clear();
    repost_ = true;
    for (std::uint32_t i = 0; i < kWindow; ++i) {
      post(i);
      free_.push_back(i);
    }
    in_.kick();
  }

  /// Sends what the window allows, at most `most`, and takes what came. False: something is wrong.
  void turn(std::uint64_t most = ~0ULL) {
    while (!free_.empty() && sent_ - received_ < kWindow && most-- > 0) send();
    out_.kick();
    std::array<net::ReturnedBuffer, kWindow> back;
    for (std::size_t i = 0, n = out_.collect(back); i < n; ++i) {
      free_.push_back(static_cast<std::uint32_t>(back[i].token));
    }
    const std::size_t n = in_.collect(back);
    for (std::size_t i = 0; i < n; ++i) take(back[i]);
    if (n != 0) in_.kick();
  }
  /// Until all that was sent came back.
  void drain() {
    EXPECT_TRUE(wait_for([&] {
      turn(0);
      return (received_ == sent_ && out_.outstanding() == 0) || ::testing::Test::HasFailure();
    })) << received_
        << " of " << sent_;
    EXPECT_FALSE(in_.error() || out_.error());
  }
  /// Fills what is posted and posts no more, until nothing is outstanding.
  void leave() {
    repost_ = false;
    EXPECT_TRUE(wait_for([&] {
      turn(in_.outstanding() - (sent_ - received_));
      return (in_.outstanding() == 0 && out_.outstanding() == 0) || ::testing::Test::HasFailure();
    })) << in_.outstanding();
    EXPECT_EQ(received_, sent_);
  }
  [[nodiscard]] std::uint64_t received() const { return received_; }
  net::DriverVirtqueue& in() { return in_; }
  net::DriverVirtqueue& out() { return out_; }

 private:
  [[nodiscard]] const Chunks& memory(std::uint32_t number) const {
    return memory_[number % memory_.size()];
  }
  static void sync_out(net::DriverVirtqueue& queue, std::span<const DmaSegment> segments) {
    for (const DmaSegment& segment : segments) {
      ASSERT_TRUE(queue.memory().sync_for_device(segment.address, segment.length));
    }
  }
  void post(std::uint32_t number) {
    const std::array one = {memory(number).at(number, 0, kChunk)};
    ASSERT_TRUE(in_.add_inbuf_premapped(number, one));
  }
  // Header and data are two segments, apart.
  void send() {
    const std::uint32_t number = free_.front();
    const std::uint32_t chunk = kWindow + number;
    const Chunks& place = memory(number);
    std::memset(place.data(chunk), 0, header_);
    std::byte* const frame = place.data(chunk) + 500;
    std::memset(frame, 0x5a, kFrame);
    std::memcpy(frame + 20, &sent_, sizeof sent_);
    std::memcpy(frame + kFrame - sizeof sent_, &sent_, sizeof sent_);
    const std::array segments = {place.at(chunk, 0, header_), place.at(chunk, 500, kFrame)};
    sync_out(out_, segments);
    if (!out_.add_outbuf_premapped(number, segments)) return;  // Full, without tables.
    free_.pop_front();
    ++sent_;
  }
  void take(const net::ReturnedBuffer& buffer) {
    const auto number = static_cast<std::uint32_t>(buffer.token);
    const DmaSegment all = memory(number).at(number, 0, buffer.written);
    ASSERT_TRUE(in_.memory().sync_for_cpu(all.address, all.length));
    ASSERT_EQ(buffer.written, header_ + kFrame);
    const std::byte* const frame = memory(number).data(number) + header_;
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::memcpy(&first, frame + 20, sizeof first);
    std::memcpy(&last, frame + kFrame - sizeof last, sizeof last);
    ASSERT_EQ(first, received_) << "frames of one queue keep their order";
    ASSERT_EQ(last, received_);
    ASSERT_EQ(frame[100], std::byte{0x5a});
    ++received_;
    if (repost_) post(number);
  }

  std::vector<Chunks> memory_;
  std::uint32_t header_;
  net::DriverVirtqueue in_;
  net::DriverVirtqueue out_;
  std::deque<std::uint32_t> free_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  bool repost_ = true;
};

// The parameter's bits: packed, in order, whole memory tables instead of slots, no indirect tables.
class PremappedBuffers : public ::testing::TestWithParam<int> {
 protected:
  PremappedBuffers() {
    start_switch();
    net::NetDriverOptions options{.queue_pairs = 2};
    options.wanted = {Feature::kMrgRxbuf, Feature::kEventIdx};
    if (bit(0)) options.required.add(Feature::kRingPacked);
    if (bit(1)) options.required.add(Feature::kInOrder);
    if (!bit(3)) options.required.add(Feature::kIndirectDesc);
    auto driver = net::NetDriver::create(options, connect());
    EXPECT_TRUE(driver.has_value()) << driver.error().text;
    if (driver) driver_ = *std::move(driver);
  }
  [[nodiscard]] static bool bit(int number) { return (GetParam() >> number & 1) != 0; }

  void start_switch() {
    fabric::SwitchOptions options;
    options.vhost_user.push_back({.path = path_, .name = "a", .queues = 2});
    options.forward = fabric::Forward::kPatch;
    options.patches = {{"a", "a"}};
    fabric_ = std::make_unique<FabricRunner>(options);
  }
  std::unique_ptr<vhost::Frontend> connect() {
    vhost::FrontendOptions options;
    if (bit(2)) {
      options.protocol_features &= ~(vhost::bit(vhost::ProtocolFeature::kConfigureMemSlots) |
                                     vhost::bit(vhost::ProtocolFeature::kReplyAck));
    }
    auto source = vhost::FrontendSource::create({.path = path_, .frontend = options});
    EXPECT_TRUE(source.has_value());
    auto frontend = source->next(std::chrono::seconds(20));
    EXPECT_TRUE(frontend.has_value());
    return frontend ? *std::move(frontend) : nullptr;
  }
  void map_both() {
    const auto umem = driver_->map_memory(umem_.mapping.bytes(), umem_.fd.get(), 0);
    const auto heap = driver_->map_memory(heap_);
    ASSERT_TRUE(umem && heap);
    EXPECT_FALSE(umem->bounced);
    EXPECT_TRUE(heap->bounced);
    both_ = {{umem_.mapping.bytes(), *umem}, {heap_, *heap}};
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "a.sock";
  memory::Mapping::SharedMemory umem_ =
      *memory::Mapping::create_shared("umem", PremappedEcho::kBytes);
  std::vector<std::byte> heap_ = std::vector<std::byte>(PremappedEcho::kBytes);
  std::vector<Chunks> both_;
  std::unique_ptr<FabricRunner> fabric_;
  std::unique_ptr<net::NetDriver> driver_;
};

TEST_P(PremappedBuffers, CarryFramesBothWaysInSharedAndBouncedMemory) {
  ASSERT_NE(driver_, nullptr);
  map_both();
  ASSERT_TRUE(driver_->start());
  PremappedEcho echo(*driver_, 0);
  echo.use(both_);
  EXPECT_TRUE(wait_for([&] {
    echo.turn();
    return echo.received() >= 3000 || HasFatalFailure();
  }));
  echo.drain();
  EXPECT_EQ(driver_->unmap_memory(both_[1].mapping.id).error().code, ErrorCode::kWrongState);
  // Once the device stopped, what it had comes back, and the mapping can go.
  ASSERT_TRUE(driver_->stop());
  std::vector<bool> seen(PremappedEcho::kWindow);
  echo.in().recall([&](std::uint64_t token) {
    EXPECT_FALSE(seen.at(token));
    seen.at(token) = true;
  });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), PremappedEcho::kWindow);
  EXPECT_TRUE(driver_->unmap_memory(both_[1].mapping.id));
  EXPECT_TRUE(driver_->unmap_memory(both_[0].mapping.id));
  fabric_->stop();
  EXPECT_TRUE(fabric_->conserved());
}

// One pair carries packets and loses none, while memory comes, is used by the other, and goes.
TEST_P(PremappedBuffers, MemoryComesAndGoesUnderTrafficAndNoFrameIsLost) {
  ASSERT_NE(driver_, nullptr);
  ASSERT_TRUE(driver_->start());
  map_both();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> received{0};
  std::thread traffic([&] {
    PremappedEcho echo(*driver_, 0);
    echo.use(both_);
    while (!stop) {
      echo.turn();
      received = echo.received();
    }
    echo.drain();
  });
  PremappedEcho other(*driver_, 1);
  for (int lap = 0; lap < 25 && !HasFailure(); ++lap) {
    auto late = *memory::Mapping::create_shared("late", PremappedEcho::kBytes);
    std::vector<std::byte> heap(PremappedEcho::kBytes);
    const auto shared = driver_->map_memory(late.mapping.bytes(), late.fd.get(), 0);
    const auto bounced = driver_->map_memory(heap);
    if (!shared || !bounced) {
      ADD_FAILURE() << "not mapped in lap " << lap;
      break;
    }
    other.use({{late.mapping.bytes(), *shared}, {heap, *bounced}});
    const std::uint64_t goal = other.received() + 50;
    EXPECT_TRUE(wait_for([&] {
      other.turn(4);
      return other.received() >= goal || HasFailure();
    }));
    EXPECT_EQ(driver_->unmap_memory(shared->id).error().code, ErrorCode::kWrongState);
    other.leave();
    EXPECT_TRUE(driver_->unmap_memory(shared->id));
    EXPECT_TRUE(driver_->unmap_memory(bounced->id));
    const std::uint64_t before = received;
    EXPECT_TRUE(wait_for([&] { return received > before || HasFailure(); }))
        << "the other pair stands";
  }
  stop = true;
  traffic.join();
  EXPECT_EQ(driver_->dma().size(), 2U);
  EXPECT_EQ(driver_->dma().retired(), 0U);
  fabric_->stop();
  EXPECT_TRUE(fabric_->conserved());
}

TEST_P(PremappedBuffers, MappingsKeepTheirAddressesWhenTheDeviceIsReplaced) {
  ASSERT_NE(driver_, nullptr);
  map_both();
  ASSERT_TRUE(driver_->start());
  for (int life = 0; life < 3; ++life) {
    if (life != 0) {
      fabric_.reset();
      start_switch();
      ASSERT_TRUE(driver_->reconnect(connect()));
      ASSERT_TRUE(driver_->start());
    }
    PremappedEcho echo(*driver_, 0);
    echo.use(both_);
    EXPECT_TRUE(wait_for([&] {
      echo.turn();
      return echo.received() >= 200 || HasFatalFailure();
    })) << "life "
        << life;
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, PremappedBuffers, ::testing::Range(0, 16), [](const auto& kind) {
  return std::string((kind.param & 1) != 0 ? "Packed" : "Split") +
         ((kind.param & 2) != 0 ? "InOrder" : "") + ((kind.param & 4) != 0 ? "Table" : "Slots") +
         ((kind.param & 8) != 0 ? "" : "Indirect");
});

}  // namespace
}  // namespace sluice::test
