// The control queue by clause: raw command bytes in a raw ring, raw answers (virtio 1.3, 5.1.6.5).
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/control_queue.h"
#include "net/net_device.h"
#include "support/counting_notifier.h"
#include "support/fake_guest.h"
#include "support/random.h"
#include "support/raw_driver.h"

namespace sluice::net {
namespace {

using test::CountingNotifier;
using test::Piece;
using virtio::Feature;
using virtio::FeatureSet;
using Command = std::vector<std::uint8_t>;

constexpr int kUntouched = 0xee;

// Takes commands, and says what it took.
class Target final : public ControlTarget {
 public:
  void set_promiscuous(bool on) override { promiscuous = on; }
  void set_all_multicast(bool on) override { all_multicast = on; }
  void set_mac_tables(std::span<const PackedMac> u, std::span<const PackedMac> m) override {
    unicast.assign(u.begin(), u.end());
    multicast.assign(m.begin(), m.end());
    ++tables;
  }
  bool set_mac_address(PackedMac address) override {
    mac = address;
    return accept;
  }
  void announced() override { ++announcements; }
  bool use_queue_pairs(std::uint16_t count) override {
    pairs = count;
    return accept;
  }
  [[nodiscard]] std::uint16_t command_max_queue_pairs() const override { return 4; }
  bool set_guest_offloads(const FeatureSet& set) override {
    offloads = set;
    return accept;
  }

  bool accept = true;
  std::optional<bool> promiscuous;
  std::optional<bool> all_multicast;
  std::vector<PackedMac> unicast;
  std::vector<PackedMac> multicast;
  int tables = 0;
  PackedMac mac = 0;
  int announcements = 0;
  std::uint16_t pairs = 0;
  std::optional<FeatureSet> offloads;
};

constexpr FeatureSet kAll = {
    Feature::kVersion1,  Feature::kCtrlVq,      Feature::kCtrlRx,
    Feature::kMq,        Feature::kCtrlMacAddr, Feature::kGuestAnnounce,
    Feature::kGuestCsum, Feature::kGuestTso4,   Feature::kCtrlGuestOffloads};

class VirtioNetControl : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { begin(kAll); }

  void begin(FeatureSet features) {
    const bool packed = (GetParam() & 1) != 0;
    const bool in_order = (GetParam() & 2) != 0;
    if (packed) features.add(Feature::kRingPacked);
    if (in_order) features.add(Feature::kInOrder);
    const test::DriverOptions options{.size = 64, .in_order = in_order};
    if (packed) {
      driver_ = std::make_unique<test::RawPackedDriver>(guest_, options);
    } else {
      driver_ = std::make_unique<test::RawSplitDriver>(guest_, options);
    }
    QueueStart start;
    start.ring = driver_->config();
    start.ring.indirect = true;
    start.features = features;
    start.memory = guest_.shared_memory();
    start.call = calls_;
    queue_ = std::make_unique<ControlQueue>(start, target_);
    page_ = guest_.allocate(0x10000, 4096);
  }

  // Posts a command cut into pieces of the given sizes (the last takes the rest), then room for
  // the answer.
  void post(const Command& command, const std::vector<std::size_t>& cuts = {},
            std::uint32_t answer_bytes = 1) {
    guest_.fill(page_, 0x8000, kUntouched);
    std::vector<Piece> pieces;
    std::size_t at = 0;
    const auto add = [&](std::size_t size) {
      const std::uint64_t address = page_ + 0x100 * pieces.size() * 2;
      guest_.put(address, std::as_bytes(std::span(command).subspan(at, size)));
      pieces.push_back({.address = address, .length = static_cast<std::uint32_t>(size)});
      at += size;
    };
    for (const std::size_t cut : cuts) add(cut);
    if (at < command.size()) add(command.size() - at);
    answer_ = page_ + 0xf000;
    guest_.fill(answer_, 16, kUntouched);
    if (answer_bytes != 0) {
      pieces.push_back({.address = answer_, .length = answer_bytes, .writable = true});
    }
    ASSERT_TRUE(driver_->post(pieces).has_value());
  }
  // Posts, serves, and gives the answer's byte.
  int run(const Command& command, const std::vector<std::size_t>& cuts = {},
          std::uint32_t answer_bytes = 1) {
    post(command, cuts, answer_bytes);
    EXPECT_FALSE(queue_->serve());
    returned_ = driver_->reap();
    EXPECT_EQ(returned_.size(), 1U) << "every command is used";
    EXPECT_EQ(driver_->complaint(), "");
    return guest_.read<std::uint8_t>(answer_);
  }

  test::FakeGuest guest_;
  std::unique_ptr<test::RawDriver> driver_;
  std::shared_ptr<CountingNotifier> calls_ = std::make_shared<CountingNotifier>();
  Target target_;
  std::unique_ptr<ControlQueue> queue_;
  std::vector<test::Returned> returned_;
  std::uint64_t page_ = 0;
  std::uint64_t answer_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Rings, VirtioNetControl, ::testing::Values(0, 1, 2, 3),
                         [](const auto& test) {
                           return std::string((test.param & 1) != 0 ? "Packed" : "Split") +
                                  ((test.param & 2) != 0 ? "InOrder" : "");
                         });

Command with_tables(std::uint32_t unicast, const Command& rest) {
  Command command = {1,
                     0,
                     std::uint8_t(unicast),
                     std::uint8_t(unicast >> 8),
                     std::uint8_t(unicast >> 16),
                     std::uint8_t(unicast >> 24)};
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

TEST_P(VirtioNetControl, CTL_01_EveryCommandIsAnsweredEvenUnknownOnes) {
  EXPECT_EQ(run({0, 0, 1}), 0);
  for (int command_class = 0; command_class < 256; ++command_class) {
    for (const int command : {2, 7, 255}) {
      EXPECT_EQ(run({std::uint8_t(command_class), std::uint8_t(command), 0, 0}), 1)
          << command_class << "/" << command;
      ASSERT_EQ(returned_[0].length, 1U) << "the answer's byte was written";
    }
  }
  EXPECT_EQ(target_.tables, 0);
}

TEST_P(VirtioNetControl, CTL_01_ShortAndLongCommandsAreAnsweredWithAnError) {
  for (const Command& command : std::vector<Command>{{0},
                                                     {0, 0},
                                                     {0, 0, 1, 1},
                                                     {1, 1, 2, 0, 0, 0, 0},
                                                     {1, 1, 2, 0, 0, 0, 0, 1, 0},
                                                     {3, 0, 0},
                                                     {4, 0, 1},
                                                     {4, 0, 1, 0, 0},
                                                     {5, 0, 0, 0, 0, 0, 0, 0, 0},
                                                     {1, 0, 0, 0, 0, 0}}) {
    EXPECT_EQ(run(command), 1) << "class " << int{command[0]} << ", " << command.size() << " bytes";
  }
  EXPECT_FALSE(target_.promiscuous.has_value());
  EXPECT_EQ(target_.pairs, 0);
  EXPECT_EQ(target_.announcements, 0);
}

TEST_P(VirtioNetControl, CTL_01_ACommandWithoutRoomForTheAnswerIsUsedAllTheSame) {
  EXPECT_EQ(run({0, 0, 1}, {}, 0), kUntouched);
  EXPECT_EQ(returned_[0].length, 0U);
  EXPECT_EQ(run({0, 0, 0}), 0) << "and the next one is served";
}

TEST_P(VirtioNetControl, CTL_01_OnlyTheFirstByteOfALongAnswerIsWritten) {
  EXPECT_EQ(run({0, 0, 1}, {}, 8), 0);
  EXPECT_EQ(guest_.read<std::uint8_t>(answer_ + 1), kUntouched);
}

TEST_P(VirtioNetControl, CTL_01_AnEmptyBufferIsAnsweredWithAnError) {
  ASSERT_TRUE(driver_->post({.address = page_ + 0xf000, .length = 1, .writable = true}));
  guest_.fill(page_ + 0xf000, 1, kUntouched);
  queue_->serve();
  EXPECT_EQ(driver_->reap().size(), 1U);
  EXPECT_EQ(guest_.read<std::uint8_t>(page_ + 0xf000), 1);
}

TEST_P(VirtioNetControl, CTL_02_ACommandMayBeCutAnywhere) {
  const Command command =
      with_tables(2, {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0x5e, 0, 0, 9});
  const auto expect_tables = [&] {
    ASSERT_EQ(target_.unicast.size(), 2U);
    EXPECT_EQ(target_.unicast[1], 0x02'00'00'00'00'02U);
    ASSERT_EQ(target_.multicast.size(), 1U);
    EXPECT_EQ(target_.multicast[0], 0x09'00'00'5e'00'01U);
  };
  for (std::size_t cut = 1; cut < command.size(); ++cut) {
    target_ = {};
    EXPECT_EQ(run(command, {cut}), 0) << "cut behind byte " << cut;
    expect_tables();
  }
  target_ = {};
  EXPECT_EQ(run(command, std::vector<std::size_t>(command.size() - 1, 1)), 0) << "byte by byte";
  expect_tables();
}

TEST_P(VirtioNetControl, CTL_02_SEC_14_AChainThatIsALoopBreaksTheQueueAndNothingElse) {
  if ((GetParam() & 1) != 0) {  // Packed: a chain that goes once around and never ends.
    const auto& ring = static_cast<test::RawPackedDriver&>(*driver_).ring();
    for (std::uint16_t slot = 0; slot < 64; ++slot) {
      ring.set_descriptor(slot, {page_, 2, slot, test::kNext | test::kAvailBit});
    }
  } else {
    const auto& ring = static_cast<test::RawSplitDriver&>(*driver_).ring();
    ring.set_descriptor(0, {page_, 2, test::kNext, 1});
    ring.set_descriptor(1, {page_, 2, test::kNext, 0});
    ring.publish(0);
  }
  EXPECT_FALSE(queue_->serve());
  ASSERT_TRUE(queue_->error().has_value());
  EXPECT_EQ(queue_->error()->code, ErrorCode::kRingCorrupt);
  EXPECT_FALSE(queue_->serve()) << "and it stays so";
}

TEST_P(VirtioNetControl, CTL_02_ACommandLongerThanAnyIsAnsweredWithAnError) {
  Command huge(kControlCommandMax + 1);
  huge[0] = 1;
  guest_.put(page_, std::as_bytes(std::span(huge)));
  const std::vector<Piece> pieces = {
      {.address = page_, .length = static_cast<std::uint32_t>(huge.size())},
      {.address = page_ + 0xf000, .length = 1, .writable = true}};
  ASSERT_TRUE(driver_->post(pieces).has_value());
  queue_->serve();
  EXPECT_EQ(driver_->reap().size(), 1U);
  EXPECT_EQ(guest_.read<std::uint8_t>(page_ + 0xf000), 1);
}

TEST_P(VirtioNetControl, CTL_03_CountsOfTheAddressTablesAreCheckedAgainstWhatIsThere) {
  const Command empty_table = {0, 0, 0, 0};
  EXPECT_EQ(run(with_tables(0, empty_table)), 0);
  for (const std::uint32_t count :
       {1U, 2U, 0x2aaa'aaabU, 0x5555'5556U, 0xffff'ffffU, 0x8000'0000U}) {
    EXPECT_EQ(run(with_tables(count, empty_table)), 1) << count;
  }
  EXPECT_EQ(target_.tables, 1);
  // The second table alone is wrong, or missing.
  EXPECT_EQ(run(with_tables(0, {0xab, 0xaa, 0xaa, 0x2a, 1, 2, 3, 4, 5, 6})), 1);
  EXPECT_EQ(run(with_tables(1, {2, 0, 0, 0, 0, 1})), 1);
  EXPECT_EQ(target_.tables, 1);
}

TEST_P(VirtioNetControl, CTL_04_AQueuePairCountOutOfRangeIsAnError) {
  for (const int pairs : {0, 5, 0x8000, 0x8001, 0xffff}) {
    EXPECT_EQ(run({4, 0, std::uint8_t(pairs), std::uint8_t(pairs >> 8)}), 1) << pairs;
    EXPECT_EQ(target_.pairs, 0);
  }
  EXPECT_EQ(run({4, 0, 4, 0}), 0);
  EXPECT_EQ(target_.pairs, 4);
  target_.accept = false;
  EXPECT_EQ(run({4, 0, 1, 0}), 1) << "what the device cannot do is not acknowledged";
}

TEST_P(VirtioNetControl, CTL_05_RssAndHashCommandsAreRefusedForTheyAreNotOffered) {
  EXPECT_EQ(run({4, 1, 0, 0, 0, 0}), 1);
  EXPECT_EQ(run({4, 2, 0, 0, 0, 0}), 1);
}

TEST_P(VirtioNetControl, CTL_07_OffloadsOutsideWhatWasNegotiatedAreRefused) {
  EXPECT_EQ(run({5, 0, 0x82, 0, 0, 0, 0, 0, 0, 0}), 0);
  EXPECT_EQ(target_.offloads, (FeatureSet{Feature::kGuestCsum, Feature::kGuestTso4}));
  EXPECT_EQ(run({5, 0, 0, 0, 0, 0, 0, 0, 0, 0}), 0);
  EXPECT_TRUE(target_.offloads->empty());
  target_.offloads.reset();
  EXPECT_EQ(run({5, 0, 0x02, 1, 0, 0, 0, 0, 0, 0}), 1) << "TSO6 was not negotiated";
  EXPECT_EQ(run({5, 0, 0x01, 0, 0, 0, 0, 0, 0, 0}), 1) << "CSUM is no offload of the driver's";
  EXPECT_EQ(run({5, 0, 0, 0, 0, 0, 0, 0x40, 0, 0}), 1) << "tunnel bit";
  EXPECT_FALSE(target_.offloads.has_value());
}

TEST_P(VirtioNetControl, ANN_01_TheAcknowledgementIsPassedOn) {
  EXPECT_EQ(run({3, 0}), 0);
  EXPECT_EQ(target_.announcements, 1);
}

TEST_P(VirtioNetControl, TheMacAddressIsThatOfAStation) {
  EXPECT_EQ(run({1, 1, 2, 0, 0, 0, 0, 7}), 0);
  EXPECT_EQ(target_.mac, 0x07'00'00'00'00'02U);
  EXPECT_EQ(run({1, 1, 1, 0, 0, 0, 0, 7}), 1) << "a group address";
  EXPECT_EQ(run({1, 1, 0, 0, 0, 0, 0, 0}), 1) << "zero";
}

TEST_P(VirtioNetControl, CommandsWhoseFeatureWasNotNegotiatedAreRefused) {
  begin({Feature::kVersion1, Feature::kCtrlVq});
  for (const Command& command : std::vector<Command>{{0, 0, 1},
                                                     {0, 1, 1},
                                                     with_tables(0, {0, 0, 0, 0}),
                                                     {1, 1, 2, 0, 0, 0, 0, 7},
                                                     {3, 0},
                                                     {4, 0, 1, 0},
                                                     {5, 0, 0, 0, 0, 0, 0, 0, 0, 0}}) {
    EXPECT_EQ(run(command), 1) << "class " << int{command[0]};
  }
}

TEST_P(VirtioNetControl, AManyTimesWrappedQueueStillAnswers) {  // SEC-16
  for (int i = 0; i < 70'000; ++i) {
    ASSERT_EQ(run({0, 1, std::uint8_t(i & 1)}), 0) << i;
  }
  EXPECT_EQ(queue_->commands(), 70'000U);
  EXPECT_EQ(queue_->position(), driver_->expected_position());
}

TEST_P(VirtioNetControl, RandomBytesInRandomPiecesNeverGoUnanswered) {
  test::Random random(static_cast<unsigned>(GetParam()) + 1U);
  for (int i = 0; i < 3000; ++i) {
    Command command(1 + random.below(40));
    for (auto& byte : command) byte = std::uint8_t(random.below(random.one_in(2) ? 8 : 256));
    std::vector<std::size_t> cuts;
    for (std::size_t left = command.size(); left > 1 && cuts.size() < 20;) {
      cuts.push_back(1 + random.below(left - 1));
      left -= cuts.back();
    }
    const int answer = run(command, cuts);
    ASSERT_TRUE(answer == 0 || answer == 1) << answer;
  }
  EXPECT_FALSE(queue_->error().has_value());
}

TEST_P(VirtioNetControl, TheDriverIsInterruptedForItsAnswers) {
  run({0, 0, 1});
  EXPECT_EQ(calls_->count(), 1U);
  const auto other = std::make_shared<CountingNotifier>();
  queue_->set_call(other);
  const std::uint64_t first = other->count();
  run({0, 0, 1});
  EXPECT_EQ(other->count(), first + 1);
  EXPECT_EQ(calls_->count(), 1U);
}

}  // namespace
}  // namespace sluice::net
