// The request that resets a queue: what it orders, its reply when there is one, every refusal.
#include "control/orders.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <variant>

#include "control/requests.h"
#include "fake_controls.h"
#include "fake_views.h"

namespace sluice::control {
namespace {

class Orders : public ::testing::Test {
 protected:
  Orders() {
    views_.port_views[1].kind = "virtio-user";
    views_.port_views[1].queue_pairs = 2;
    fabric::PortView sink;
    sink.name = "s";
    sink.kind = "sink";
    views_.port_views.push_back(sink);
  }

  // The reply to a line that is answered at once.
  Json at_once(std::string_view line) {
    const Reply reply = answer(line, views_, controls_);
    const auto* text = std::get_if<std::string>(&reply);
    EXPECT_NE(text, nullptr) << "it is answered later";
    return text == nullptr ? Json() : Json::parse(*text);
  }
  std::string code(std::string_view line) {
    const Json reply = at_once(line);
    if (!reply.contains("error")) return "";
    EXPECT_TRUE(reply["error"]["text"].is_string());
    EXPECT_NE(reply["error"]["try"], "");
    return reply["error"]["code"];
  }
  // The reply to an order that was begun and came to `outcome`.
  Json in_the_end(std::string_view line, Result<fabric::ResetReport> outcome) {
    const Reply reply = answer(line, views_, controls_);
    const auto* later = std::get_if<Later>(&reply);
    EXPECT_NE(later, nullptr) << std::get<std::string>(reply);
    if (later == nullptr) return {};
    EXPECT_FALSE((*later)().has_value()) << "there is no outcome yet";
    controls_.pending->finish(std::move(outcome));
    const auto text = (*later)();
    EXPECT_TRUE(text.has_value());
    EXPECT_EQ(text.value_or("").find('\n'), std::string::npos);
    return Json::parse(text.value_or("null"));
  }

  FakeViews views_ = two_ports();
  FakeControls controls_;
};

constexpr std::string_view kQueueThree = R"({"request":"reset_queue","port":"vm1","queue":3})";

TEST_F(Orders, AResetIsAnsweredWhenItHasEnded) {
  const Json reply = in_the_end(R"({"request":"reset_queue","port":"vm1","queue":3,"size":512})",
                                {{.buffers = 7, .size = 512}});
  EXPECT_EQ(dump(reply),
            R"({"reset":{"port":"vm1","queue":3,"size":512,"whole_device":false,"buffers":7}})");
  ASSERT_EQ(controls_.orders.size(), 1U);
  EXPECT_EQ(controls_.orders[0].first, "vm1");
  EXPECT_EQ(controls_.orders[0].second.queue, 3);
  EXPECT_EQ(controls_.orders[0].second.size, 512U);
  EXPECT_FALSE(controls_.orders[0].second.whole_device);
}

TEST_F(Orders, AResetOfTheWholeDeviceNeedsNoQueue) {
  const Json reply = in_the_end(R"({"request":"reset_queue","port":"vm1","whole_device":true})",
                                {{.buffers = 1024, .size = 0}});
  EXPECT_EQ(
      dump(reply),
      R"({"reset":{"port":"vm1","queue":null,"size":null,"whole_device":true,"buffers":1024}})");
  EXPECT_TRUE(controls_.orders.at(0).second.whole_device);
  EXPECT_FALSE(controls_.orders.at(0).second.queue.has_value());
}

TEST_F(Orders, TheLineOfAnOrderIsThatOrder) {
  const fabric::ResetOrder order{.queue = 2, .size = 64, .whole_device = true};
  in_the_end(reset_line("vm1", order), fabric::ResetReport{});
  in_the_end(reset_line("vm1", {.queue = 0}), fabric::ResetReport{});
  EXPECT_EQ(controls_.orders.at(0).second.queue, 2);
  EXPECT_EQ(controls_.orders.at(0).second.size, 64U);
  EXPECT_TRUE(controls_.orders.at(0).second.whole_device);
  EXPECT_EQ(controls_.orders.at(1).second.queue, 0);
  EXPECT_EQ(controls_.orders.at(1).second.size, 0U);
}

TEST_F(Orders, WrongFieldsAreRefusedAndNothingIsBegun) {
  for (const char* fields :
       {R"("queue":3)", R"("port":"vm1")", R"("port":1,"queue":3)", R"("port":"vm1","queue":"3")",
        R"("port":"vm1","queue":-1)", R"("port":"vm1","queue":65536)",
        R"("port":"vm1","queue":1.0)", R"("port":"vm1","queue":1,"size":0)",
        R"("port":"vm1","queue":1,"size":4294967296)", R"("port":"vm1","queue":1,"size":"64")",
        R"("port":"vm1","queue":1,"whole_device":1)", R"("port":"vm1","queue":1,"force":true)",
        R"("port":"vm1","whole_device":true,"size":64)"}) {
    EXPECT_EQ(code(std::string(R"({"request":"reset_queue",)") + fields + "}"), "bad_request")
        << fields;
  }
  EXPECT_TRUE(controls_.orders.empty());
}

TEST_F(Orders, WhatIsNoQueueOfADriverIsRefusedWithACure) {
  EXPECT_EQ(code(R"({"request":"reset_queue","port":"vm9","queue":0})"), "unknown_port");
  EXPECT_EQ(code(R"({"request":"reset_queue","port":"vm0","queue":0})"), "not_a_driver");
  EXPECT_EQ(code(R"({"request":"reset_queue","port":"s","queue":0})"), "not_a_driver");
  const Json queue = at_once(R"({"request":"reset_queue","port":"vm1","queue":4})");
  EXPECT_EQ(queue["error"]["code"], "unknown_queue");
  EXPECT_EQ(queue["error"]["text"], "vm1 has no queue 4");
  EXPECT_EQ(queue["error"]["try"], "its queues are 0 to 3; see `sluice queue show vm1`");
  EXPECT_TRUE(controls_.orders.empty());
}

TEST_F(Orders, WhatTheSwitchRefusesIsToldAtOnce) {
  controls_.allowed = fail(ErrorCode::kWrongState, "x");
  EXPECT_EQ(code(kQueueThree), "not_running");
  controls_.allowed = fail(ErrorCode::kExists, "x");
  EXPECT_EQ(code(kQueueThree), "busy");
}

TEST_F(Orders, WhatTheDeviceCannotDoIsToldInTheEnd) {
  const auto outcome = [&](ErrorCode error, std::int64_t detail = 0) {
    return in_the_end(R"({"request":"reset_queue","port":"vm1","queue":3,"size":2000})",
                      fail(error, "the reason", detail))["error"];
  };
  const Json reset = outcome(ErrorCode::kNotNegotiated);
  EXPECT_EQ(reset["code"], "no_ring_reset");
  EXPECT_NE(reset["try"].get<std::string>().find("--whole-device"), std::string::npos);
  const Json large = outcome(ErrorCode::kOutOfRange, 1024);
  EXPECT_EQ(large["code"], "bad_size");
  EXPECT_EQ(large["text"], "the queue cannot grow to 2000 buffers");
  EXPECT_EQ(large["try"], "give at most 1024, or start the port with a larger queue_size");
  const Json odd = outcome(ErrorCode::kInvalidArgument);
  EXPECT_EQ(odd["code"], "bad_size");
  EXPECT_EQ(odd["text"], "2000 buffers: the reason");
  const Json gone = outcome(ErrorCode::kClosed);
  EXPECT_EQ(gone["code"], "reset_failed");
  EXPECT_EQ(gone["text"], "the reason; the port connects anew");
}

TEST_F(Orders, QuestionsAreAnsweredAsBefore) {
  EXPECT_EQ(at_once(R"({"request":"ports"})")["ports"].size(), 3U);
  for (const char* line : {"", "[]", "{}", R"({"request":3})"}) {
    EXPECT_EQ(at_once(line), Json::parse(answer_request(line, views_))) << line;
  }
  EXPECT_EQ(at_once(R"({"request":"reset_queu"})")["error"]["try"], "did you mean 'reset_queue'?");
}

}  // namespace
}  // namespace sluice::control
