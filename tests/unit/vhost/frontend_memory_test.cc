// Memory that is shared and taken back while rings run: by the whole table, or by slots.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "frontend_fixture.h"

namespace sluice::vhost {
namespace {

constexpr std::uint64_t kAcknowledge = 1ULL << 3;
constexpr std::uint64_t kMemorySlots = 1ULL << 15;

class FrontendMemory : public FrontendTest {
 protected:
  // Starts two rings; `own_` is then shared.
  void run(std::uint64_t protocol, Backend::Hook hook = {}) {
    serve(protocol, std::move(hook));
    meet();
    std::vector<net::RingSetup> setups = {ring(0, 0x10000), ring(1, 0x10000)};
    ASSERT_TRUE(frontend_->start(
        {.features = virtio::FeatureSet::from_low(kVersion1), .regions = own_, .rings = setups}));
    started_ = ids().size();
  }
  // Requests since the start, without questions that stand for acknowledgements.
  [[nodiscard]] std::vector<std::uint32_t> since_start() const {
    std::vector<std::uint32_t> all = ids();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(started_));
    std::erase(all, std::uint32_t{GET_FEATURES});
    return all;
  }
  std::vector<net::SharedRegion> own_ = {region(0x10000)};
  std::size_t started_ = 0;
};

TEST_F(FrontendMemory, WithoutSlotsARunningBackendGetsTheWholeTableAnew) {
  for (const std::uint64_t protocol : {std::uint64_t{0}, kAcknowledge}) {
    run(protocol);
    std::vector<net::SharedRegion> more = own_;
    more.push_back(region(0x1000'0000));
    ASSERT_TRUE(frontend_->set_memory(more));
    ASSERT_TRUE(frontend_->set_memory(own_));
    EXPECT_EQ(since_start(), (std::vector<std::uint32_t>{SET_MEM_TABLE, SET_MEM_TABLE}))
        << "no ring is touched";
    const auto tables = entries(SET_MEM_TABLE);
    ASSERT_EQ(tables.size(), 3U);
    EXPECT_EQ(word(tables[1], 0), 2U);
    EXPECT_EQ(tables[1].fds, 2U);
    EXPECT_EQ(number(tables[1], 8), 0x10000U) << "what rings use stays where it was";
    EXPECT_EQ(number(tables[1], 40), 0x1000'0000U);
    EXPECT_EQ(word(tables[2], 0), 1U);
    EXPECT_TRUE(entries(ADD_MEM_REG).empty());
  }
}

TEST_F(FrontendMemory, WithSlotsARunningBackendGetsWhatChangedOnly) {
  run(kAcknowledge | kMemorySlots);
  std::vector<net::SharedRegion> more = own_;
  more.push_back(region(0x1000'0000));
  ASSERT_TRUE(frontend_->set_memory(more));
  ASSERT_TRUE(frontend_->set_memory(own_));
  EXPECT_EQ(since_start(), (std::vector<std::uint32_t>{ADD_MEM_REG, REM_MEM_REG}));
  EXPECT_EQ(number(entries(ADD_MEM_REG).back(), 8), 0x1000'0000U);
  EXPECT_EQ(number(entries(REM_MEM_REG).back(), 8), 0x1000'0000U);
  EXPECT_TRUE(entries(SET_MEM_TABLE).empty());
}

// Whoever takes memory back may use it otherwise at once: the back-end must have let go by then.
TEST_F(FrontendMemory, AChangeReturnsOnlyWhenTheBackendAcknowledgedIt) {
  for (const std::uint64_t protocol :
       {std::uint64_t{0}, kAcknowledge, kAcknowledge | kMemorySlots}) {
    std::atomic<int> done{0};
    run(protocol, [&](Backend&, Request& request) {
      if (request.id == SET_MEM_TABLE || request.id == REM_MEM_REG) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        ++done;
      }
      return false;
    });
    std::vector<net::SharedRegion> more = own_;
    more.push_back(region(0x1000'0000));
    ASSERT_TRUE(frontend_->set_memory(more));
    const int before = done;
    ASSERT_TRUE(frontend_->set_memory(own_));
    EXPECT_EQ(done, before + 1) << protocol;
    backend_->stop();
  }
}

TEST_F(FrontendMemory, ARefusedChangeIsAnErrorAndTheSessionGoesOn) {
  for (const std::uint64_t protocol : {kAcknowledge, kAcknowledge | kMemorySlots}) {
    std::atomic<bool> refuse{false};
    run(protocol, [&](Backend& backend, Request& request) {
      if (!refuse || (request.id != SET_MEM_TABLE && request.id != ADD_MEM_REG)) return false;
      backend.send_u64(request.id, 1);
      return true;
    });
    std::vector<net::SharedRegion> more = own_;
    more.push_back(region(0x1000'0000));
    refuse = true;
    const Status refused = frontend_->set_memory(more);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
    EXPECT_TRUE(frontend_->connected());
    refuse = false;
    EXPECT_TRUE(frontend_->set_memory(own_));
    EXPECT_TRUE(frontend_->set_memory(more));
    backend_->stop();
  }
}

}  // namespace
}  // namespace sluice::vhost
