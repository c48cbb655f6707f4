// Each row of the message table against the back-end: sizes, descriptors, negotiation, answers.
#include "vhost/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"

namespace sluice::test {
namespace {

using vhost::FdRule;
using vhost::kMessages;
using vhost::Message;
using vhost::MessageRow;
using vhost::ReplyKind;
using vhost::Request;
using vhost::Support;

class EachMessage : public testing::TestWithParam<MessageRow> {
 protected:
  // A message of the row with `size` bytes, as harmless as zeros can be, and `fds` eventfds.
  Message make(std::size_t size, std::size_t fds) const {
    Message message(GetParam().request, vhost::kFlagNeedReply);
    message.payload.resize(size);
    for (std::size_t i = 0; i < fds; ++i) message.fds.push_back(event_.copy());
    return message;
  }
  bool is_handled() const { return GetParam().support == Support::kHandled; }

  // An answer that says no, in the way of the row.
  void expect_refused(const std::optional<Message>& answer) const {
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->request, static_cast<std::uint32_t>(GetParam().request));
    EXPECT_TRUE(answer->fds.empty());
    if (GetParam().reply == ReplyKind::kData) {
      EXPECT_TRUE(answer->payload.empty());
    } else {
      ASSERT_EQ(answer->payload.size(), 8U);
      EXPECT_NE(answer->get<std::uint64_t>(), 0U);
    }
  }

  VhostBench bench_;
  TestEvent event_;
};

TEST_P(EachMessage, SEC_20_OfTheWrongSizeIsRefused) {
  ASSERT_TRUE(bench_.greet());
  const MessageRow& row = GetParam();
  const std::size_t fds = row.fds == FdRule::kOne || row.fds == FdRule::kRing ? 1 : 0;
  if (row.size_min > 0) {
    expect_refused(bench_.send(make(row.size_min - 1, fds)));
    EXPECT_EQ(bench_.backend->view().last_error_request, row.name);
  }
  expect_refused(bench_.send(make(row.size_max + 1, fds)));
  EXPECT_TRUE(bench_.device.log.empty());
}

TEST_P(EachMessage, H05_SEC_02_SEC_10_SEC_20_WithAWrongNumberOfDescriptorsIsRefusedAndLeaksNone) {
  ASSERT_TRUE(bench_.greet());
  const MessageRow& row = GetParam();
  const LeakCheck leaks;
  const auto right = [&](std::size_t fds) {
    switch (row.fds) {
      case FdRule::kNone: return fds == 0;
      case FdRule::kOne: return fds == 1;
      case FdRule::kAtMostOne: return fds <= 1;
      case FdRule::kRing: return fds == 1;
      case FdRule::kTable: return fds == 0;  // The payload says: no regions.
    }
    return false;
  };
  for (std::size_t fds = 0; fds < 10; ++fds) {
    if (is_handled() && right(fds)) continue;
    expect_refused(bench_.send(make(row.size_min, fds)));
  }
  EXPECT_TRUE(bench_.device.log.empty());
}

class MessageWithFeature : public EachMessage {};
TEST_P(MessageWithFeature, WithoutItsProtocolFeatureIsRefused) {
  const MessageRow& row = GetParam();
  using vhost::ProtocolFeature;
  // All but the one, and those that hang on it.
  std::uint64_t bits = vhost::offered_protocol_features() & ~vhost::bit(*row.needs);
  if (!vhost::inband_is_lawful(bits)) bits &= ~vhost::bit(ProtocolFeature::kInbandNotifications);
  bench_.send(VhostBench::number(Request::kSetProtocolFeatures, bits));
  const std::size_t fds = row.fds == FdRule::kOne ? 1 : 0;
  expect_refused(bench_.send(make(row.size_min, fds)));
  const ErrorCode code = bench_.backend->view().last_error->code;
  EXPECT_EQ(code, is_handled() ? ErrorCode::kNotNegotiated : ErrorCode::kUnsupported);
  EXPECT_TRUE(bench_.device.log.empty());
}

class MessageNotImplemented : public EachMessage {};
TEST_P(MessageNotImplemented, IsRefusedWhateverItHolds) {
  ASSERT_TRUE(bench_.greet());
  for (const std::size_t size : {0U, 1U, 8U, 64U, 4096U}) {
    expect_refused(bench_.send(make(size, 0)));
    expect_refused(bench_.send(make(size, 1)));
  }
  EXPECT_EQ(bench_.backend->view().last_error->code, ErrorCode::kUnsupported);
}

TEST_P(EachMessage, WithTheReplyFlagIsRefused) {
  ASSERT_TRUE(bench_.greet());
  const MessageRow& row = GetParam();
  const std::size_t fds = row.fds == FdRule::kOne || row.fds == FdRule::kRing ? 1 : 0;
  Message message = make(row.size_min, fds);
  message.flags |= vhost::kFlagReply;
  expect_refused(bench_.send(std::move(message)));
}

template <class Condition>
std::vector<MessageRow> rows(Condition condition) {
  std::vector<MessageRow> chosen;
  std::ranges::copy_if(kMessages, std::back_inserter(chosen), condition);
  return chosen;
}
std::string row_name(const testing::TestParamInfo<MessageRow>& test) {
  return std::string(test.param.name);
}
INSTANTIATE_TEST_SUITE_P(Table, EachMessage, testing::ValuesIn(kMessages), row_name);
INSTANTIATE_TEST_SUITE_P(
    Table, MessageWithFeature,
    testing::ValuesIn(rows([](const MessageRow& row) { return row.needs.has_value(); })), row_name);
INSTANTIATE_TEST_SUITE_P(Table, MessageNotImplemented,
                         testing::ValuesIn(rows([](const MessageRow& row) {
                           return row.support == Support::kRefused;
                         })),
                         row_name);

TEST(Messages, AnUnknownRequestIsRefusedAndDoesNotEndTheSession) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  for (const std::uint32_t number : {0U, 45U, 46U, 1000U, 0xffffffffU}) {
    Message message;
    message.request = number;
    EXPECT_FALSE(bench.accepted(std::move(message))) << number;
    Message quiet;
    quiet.request = number;
    EXPECT_FALSE(bench.send(std::move(quiet)).has_value()) << number;
  }
  EXPECT_TRUE(bench.query(Request::kGetFeatures).has_value());
}

TEST(Messages, AcknowledgeOnlyWhenAskedAndNegotiated) {
  VhostBench bench;
  Message early(Request::kSetOwner, vhost::kFlagNeedReply);
  EXPECT_FALSE(bench.send(std::move(early)).has_value());
  ASSERT_TRUE(bench.greet());
  EXPECT_FALSE(bench.send(Message(Request::kSetOwner)).has_value());
  EXPECT_TRUE(bench.accepted(Message(Request::kSetOwner)));
}

TEST(Messages, AQueryIsAnsweredOnceAlsoWhenItAsksForAnAcknowledgement) {
  VhostBench bench;
  ASSERT_TRUE(bench.greet());
  const auto answer = bench.send(Message(Request::kGetFeatures, vhost::kFlagNeedReply));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->payload.size(), 8U);
  EXPECT_NE(answer->get<std::uint64_t>(), 0U);
}

// The table itself against the protocol's numbers (facts of the document, not of our code).
TEST(Messages, SEC_20_TheTableHasTheNumbersAndSizesOfTheDocument) {
  const auto row = [](std::uint32_t number) -> const MessageRow& {
    return *vhost::find_message(number);
  };
  EXPECT_EQ(kMessages.size(), 44U);
  EXPECT_EQ(vhost::find_message(0), nullptr);
  EXPECT_EQ(vhost::find_message(45), nullptr);
  EXPECT_EQ(row(5).name, "SET_MEM_TABLE");
  EXPECT_EQ(row(5).size_max, 8U + 8 * 32);
  EXPECT_EQ(row(9).size_min, 40U);
  EXPECT_EQ(row(12).fds, FdRule::kRing);
  EXPECT_EQ(row(24).size_max, 12U + 256);
  EXPECT_EQ(row(32).fds, FdRule::kOne);
  EXPECT_EQ(row(37).size_min, 40U);
  EXPECT_EQ(row(40).name, "GET_STATUS");
}

}  // namespace
}  // namespace sluice::test
