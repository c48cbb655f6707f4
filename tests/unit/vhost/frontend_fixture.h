// A Frontend and a ScriptedBackend that face each other, for the tests of the front-end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "memory/mapping.h"
#include "support/scripted_backend.h"
#include "unit/memory/leaks.h"
#include "vhost/frontend.h"

namespace sluice::vhost {

using test::descriptors_settle_at;
using test::open_descriptors;

inline constexpr std::uint64_t kProtocolBit = 1ULL << 30;
inline constexpr std::uint64_t kVersion1 = 1ULL << 32;
inline constexpr std::uint64_t kPackedBit = 1ULL << 34;

// Numbers as the protocol has them, so that a wrong constant of the product is seen.
enum Number : std::uint32_t {
  GET_FEATURES = 1,
  SET_FEATURES = 2,
  SET_OWNER = 3,
  SET_MEM_TABLE = 5,
  SET_LOG_BASE = 6,
  SET_VRING_NUM = 8,
  SET_VRING_ADDR = 9,
  SET_VRING_BASE = 10,
  GET_VRING_BASE = 11,
  SET_VRING_KICK = 12,
  SET_VRING_CALL = 13,
  GET_PROTOCOL_FEATURES = 15,
  SET_PROTOCOL_FEATURES = 16,
  GET_QUEUE_NUM = 17,
  SET_VRING_ENABLE = 18,
  SEND_RARP = 19,
  NET_SET_MTU = 20,
  SET_BACKEND_REQ_FD = 21,
  GET_CONFIG = 24,
  SET_CONFIG = 25,
  GET_INFLIGHT_FD = 31,
  SET_INFLIGHT_FD = 32,
  RESET_DEVICE = 34,
  GET_MAX_MEM_SLOTS = 36,
  ADD_MEM_REG = 37,
  REM_MEM_REG = 38,
  SET_STATUS = 39,
  GET_STATUS = 40,
};

class FrontendTest : public ::testing::Test {
 protected:
  using Backend = test::ScriptedBackend;
  using Request = Backend::Request;

  /// A back-end that offers everything of `protocol`.
  Backend& serve(std::uint64_t protocol, Backend::Hook hook = {}) {
    backend_ = std::make_unique<Backend>(std::move(hook));
    backend_->features = kVersion1 | kPackedBit | kProtocolBit | (1ULL << 26) | (1ULL << 22);
    backend_->protocol_features = protocol;
    return *backend_;
  }
  void meet(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    auto made = Frontend::adopt(backend_->start(), {.timeout = timeout});
    ASSERT_TRUE(made);
    frontend_ = std::move(*made);
  }

  /// A region of shared memory; its file lives as long as the test.
  net::SharedRegion region(std::uint64_t guest, std::uint64_t size = 1 << 16) {
    auto shared = memory::Mapping::create_shared("frontend-test", size);
    EXPECT_TRUE(shared);
    files_.push_back(std::move(shared->fd));
    return {.record = {.guest = memory::GuestAddress(guest),
                       .size = size,
                       .user = memory::UserAddress(guest + 0x7000'0000'0000),
                       .offset = 0},
            .fd = files_.back().get()};
  }
  static net::RingSetup ring(std::uint16_t index, std::uint64_t guest) {
    const std::uint64_t user = guest + 0x7000'0000'0000 + std::uint64_t{index} * 0x3000;
    net::RingSetup setup;
    setup.queue = net::QueueIndex(index);
    setup.size = 64;
    setup.descriptors = memory::UserAddress(user);
    setup.driver_area = memory::UserAddress(user + 0x1000);
    setup.device_area = memory::UserAddress(user + 0x2000);
    setup.kick = std::make_shared<const EventFd>(std::move(*EventFd::create()));
    setup.call = std::make_shared<const EventFd>(std::move(*EventFd::create()));
    return setup;
  }
  Status start(std::uint64_t features = kVersion1, int rings = 2) {
    const net::SharedRegion regions[] = {region(0x10000)};
    std::vector<net::RingSetup> setups;
    for (int i = 0; i < rings; ++i) {
      setups.push_back(ring(static_cast<std::uint16_t>(i), 0x10000));
    }
    return frontend_->start(
        {.features = virtio::FeatureSet::from_low(features), .regions = regions, .rings = setups});
  }
  /// Requests so far, without the questions that stand for acknowledgements.
  std::vector<std::uint32_t> ids() const { return backend_->ids(); }
  std::vector<Backend::Entry> entries(std::uint32_t id) const {
    std::vector<Backend::Entry> found;
    for (auto& entry : backend_->log()) {
      if (entry.id == id) found.push_back(entry);
    }
    return found;
  }
  static std::uint32_t word(const Backend::Entry& entry, std::size_t offset) {
    std::uint32_t value = 0;
    EXPECT_LE(offset + 4, entry.payload.size());
    std::memcpy(&value, entry.payload.data() + offset, sizeof value);
    return value;
  }
  static std::uint64_t number(const Backend::Entry& entry, std::size_t offset = 0) {
    return word(entry, offset) | std::uint64_t{word(entry, offset + 4)} << 32;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Frontend> frontend_;
  std::vector<UniqueFd> files_;
};

}  // namespace sluice::vhost
