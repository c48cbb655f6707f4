// MacTable: learning, moving, ageing, limits, and readers beside writers.
#include "switch/mac_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "support/macs.h"
#include "support/random.h"

namespace sluice::fabric {
namespace {

using test::kA;
using test::kB;

using namespace std::chrono_literals;

constexpr std::uint64_t kSeed = 0x1234'5678'9abc'def1;

// An address that a station may have.
PackedMac station(std::uint64_t number) {
  return (number << 8 | 0x02) & net::kMacMask;
}

TEST(MacTable, AnEmptyTableKnowsNothingNotEvenTheZeroAddress) {
  const MacTable table(16, 2, 300s, kSeed);
  EXPECT_EQ(table.find(kA), MacTable::kNoPort);
  EXPECT_EQ(table.find(0), MacTable::kNoPort);
  EXPECT_EQ(table.find(net::kBroadcastMac), MacTable::kNoPort);
}

TEST(MacTable, FindsWhatItLearnedAndMovesItWithTheFirstFrame) {
  MacTable table(16, 3, 300s, kSeed);
  EXPECT_TRUE(table.learn(kA, 0));
  EXPECT_TRUE(table.learn(kB, 1));
  EXPECT_EQ(table.find(kA), 0);
  EXPECT_EQ(table.find(kB), 1);
  EXPECT_TRUE(table.learn(kA, 2));
  EXPECT_EQ(table.find(kA), 2);
  EXPECT_EQ(table.size(), 2U);
}

TEST(MacTable, AgesWhatWasNotSeenAndKeepsWhatWas) {
  MacTable table(16, 2, 10s, kSeed);
  table.learn(kA, 0);
  table.learn(kB, 1);
  table.tick(6s);
  table.learn(kA, 0);
  table.tick(10s);
  EXPECT_EQ(table.find(kA), 0);
  EXPECT_EQ(table.find(kB), MacTable::kNoPort);
  table.tick(15s);
  EXPECT_EQ(table.find(kA), 0);
  table.tick(16s);
  EXPECT_EQ(table.find(kA), MacTable::kNoPort);
  EXPECT_EQ(table.size(), 0U);
}

TEST(MacTable, H45_StaticAddressesNeitherMoveNorAge) {
  MacTable table(16, 2, 10s, kSeed);
  ASSERT_TRUE(table.add_static(kA, 0));
  EXPECT_FALSE(table.learn(kA, 1)) << "an address that is pinned elsewhere";
  EXPECT_TRUE(table.learn(kA, 0));
  EXPECT_FALSE(table.add_static(kA, 1));
  table.tick(1000s);
  table.forget(0);
  EXPECT_EQ(table.find(kA), 0);
  ASSERT_EQ(table.entries().size(), 1U);
  EXPECT_TRUE(table.entries()[0].is_static);
}

// A writer that keeps the table busy must not let a forged source through.
TEST(MacTable, H45_AStaticAddressIsRefusedWhileOthersWrite) {
  MacTable table(4096, 3, 300s, kSeed);
  ASSERT_TRUE(table.add_static(kA, 1));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) table.forget(2);
  });
  int passed = 0;
  for (int i = 0; i < 20'000; ++i) passed += table.learn(kA, 0) ? 1 : 0;
  stop = true;
  writer.join();
  EXPECT_EQ(passed, 0);
  EXPECT_TRUE(table.learn(kA, 1));
}

TEST(MacTable, PinningTakesOverWhatAnotherPortLearned) {
  MacTable table(16, 2, 10s, kSeed);
  table.learn(kA, 1);
  EXPECT_TRUE(table.add_static(kA, 0));
  EXPECT_EQ(table.find(kA), 0);
  EXPECT_EQ(table.size(), 1U);
}

TEST(MacTable, H45_ForgettingAPortLeavesNoEntryOfIt) {
  MacTable table(1024, 3, 300s, kSeed);
  for (std::uint64_t i = 0; i < 300; ++i)
    table.learn(station(i), static_cast<std::uint16_t>(i % 3));
  table.forget(1);
  for (const MacTable::Entry& entry : table.entries()) EXPECT_NE(entry.port, 1);
  EXPECT_EQ(table.find(station(1)), MacTable::kNoPort);
  EXPECT_EQ(table.find(station(2)), 2);
}

TEST(MacTable, H46_AFloodOfInventedAddressesIsBoundedAndLeavesOthersTheirPlace) {
  MacTable table(1024, 4, 300s, kSeed);
  std::vector<PackedMac> honest;
  for (std::uint64_t i = 0; i < 60; ++i) honest.push_back(station(0x7000'0000 + i));
  for (const PackedMac mac : honest) table.learn(mac, 1);
  for (std::uint64_t i = 0; i < 200'000; ++i) table.learn(station(i), 0);
  EXPECT_LE(table.size(), table.capacity());
  std::map<std::uint16_t, std::size_t> by_port;
  for (const MacTable::Entry& entry : table.entries()) ++by_port[entry.port];
  EXPECT_LE(by_port[0], 1024U / 2 + 1024U / 8) << "its own part and the shared one";
  for (const PackedMac mac : honest)
    EXPECT_EQ(table.find(mac), 1) << "an honest station was evicted";
  // The part of a port that was silent so far is still free for it.
  std::size_t learned = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    table.learn(station(0x6000'0000 + i), 2);
    learned += table.find(station(0x6000'0000 + i)) == 2 ? 1 : 0;
  }
  EXPECT_GE(learned, 90U);
}

TEST(MacTable, AFullTableStillLearnsByReplacingTheSamePortsOldest) {
  MacTable table(64, 1, 300s, kSeed);
  for (std::uint64_t i = 0; i < 10'000; ++i) table.learn(station(i), 0);
  EXPECT_LE(table.size(), 64U);
  EXPECT_GE(table.size(), 32U);
}

TEST(MacTable, HoldsNearlyAsManyAddressesAsItsSizeSays) {
  MacTable table(4096, 1, 300s, kSeed);
  for (std::uint64_t i = 0; i < 4096; ++i) table.learn(station(i * 7919), 0);
  std::size_t found = 0;
  for (std::uint64_t i = 0; i < 4096; ++i) found += table.find(station(i * 7919)) == 0 ? 1 : 0;
  EXPECT_GE(found, 4096U * 95 / 100);
}

TEST(MacTable, ATableOfOneEntryWorks) {
  MacTable table(1, 2, 300s, kSeed);
  EXPECT_TRUE(table.learn(kA, 0));
  EXPECT_EQ(table.find(kA), 0);
  EXPECT_TRUE(table.learn(kB, 1));
  EXPECT_EQ(table.find(kB), MacTable::kNoPort) << "there is room for one";
  EXPECT_EQ(table.find(kA), 0);
}

// Random operations beside a std::map. The table may know less than the map (no room, another
// writer), never something else.
TEST(MacTable, NeverContradictsAMap) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    test::Random random(seed);
    MacTable table(32, 4, 5s, random.next());
    std::map<PackedMac, std::uint16_t> model;
    std::uint32_t now = 0;
    for (int step = 0; step < 2000; ++step) {
      const PackedMac mac = station(random.below(40));
      const auto port = static_cast<std::uint16_t>(random.below(4));
      if (random.one_in(50)) {
        table.tick(std::chrono::seconds(++now));
      } else if (random.one_in(100)) {
        table.forget(port);
        std::erase_if(model, [&](const auto& entry) { return entry.second == port; });
      } else {
        ASSERT_TRUE(table.learn(mac, port));
        model[mac] = port;
      }
      for (std::uint64_t i = 0; i < 40; ++i) {
        const std::uint16_t found = table.find(station(i));
        if (found == MacTable::kNoPort) continue;
        ASSERT_TRUE(model.contains(station(i))) << "seed " << seed << " step " << step;
        ASSERT_EQ(found, model[station(i)]) << "seed " << seed << " step " << step;
      }
      ASSERT_EQ(table.size(), table.entries().size());
    }
  }
}

// Two writers, a reader and the clock. What a reader finds is what somebody learned.
TEST(MacTable, ReadersSeeWholeEntriesBesideWriters) {
  MacTable table(256, 2, 3s, kSeed);
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (std::uint16_t port = 0; port < 2; ++port) {
    threads.emplace_back([&, port] {
      test::Random random(port + 1U);
      // Odd stations live on port 1, even ones on port 0, one moves.
      while (!stop) {
        table.learn(station(random.below(500) * 2 + port), port);
        table.learn(station(5000), port);
      }
    });
  }
  threads.emplace_back([&] {
    for (std::uint32_t second = 0; !stop; ++second) table.tick(std::chrono::seconds(second));
  });
  std::uint64_t hits = 0;
  const auto end = std::chrono::steady_clock::now() + 300ms;
  while (std::chrono::steady_clock::now() < end) {
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint16_t port = table.find(station(i));
      if (port == MacTable::kNoPort) continue;
      ++hits;
      ASSERT_EQ(port, i % 2);
    }
  }
  stop = true;
  threads.clear();
  EXPECT_GT(hits, 0U);
  EXPECT_EQ(table.size(), table.entries().size());
}

}  // namespace
}  // namespace sluice::fabric
