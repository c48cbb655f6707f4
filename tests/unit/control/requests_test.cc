// Requests and replies of the control socket: the documented shape, and every refusal.
#include "control/requests.h"

#include <gtest/gtest.h>

#include <string>

#include "control/control_socket.h"
#include "control/setting.h"
#include "fake_views.h"

namespace sluice::control {
namespace {

Json answer(std::string_view line, const Views& views) {
  const std::string text = answer_request(line, views);
  EXPECT_EQ(text.find('\n'), std::string::npos) << "a reply is one line";
  return Json::parse(text);
}

std::string error_code(std::string_view line) {
  const Json reply = answer(line, two_ports());
  if (!reply.contains("error")) return "";
  EXPECT_TRUE(reply["error"]["text"].is_string());
  EXPECT_TRUE(reply["error"]["try"].is_string());
  return reply["error"]["code"];
}

TEST(Requests, APortHasAllItsFields) {
  FakeViews views = two_ports();
  fabric::PortView& port = views.port_views[0];
  port.state = "running";
  port.last_error = "ring corrupt: x (3)";
  port.features = {"VERSION_1", "RING_PACKED"};
  port.protocol_features = {"MQ"};
  port.mac = "52:54:00:00:00:01";
  port.speed = 10'000;
  port.sessions = 2;
  port.memory_bytes = 1 << 20;
  port.memory_regions = 1;
  const Json reply = answer(R"({"request":"ports","port":"vm0"})", views);
  const Json expected = {{"id", 0},
                         {"name", "vm0"},
                         {"kind", "vhost-user"},
                         {"path", "/run/vm0.sock"},
                         {"role", "server"},
                         {"state", "running"},
                         {"last_error", "ring corrupt: x (3)"},
                         {"features", {"VERSION_1", "RING_PACKED"}},
                         {"protocol_features", Json::array({"MQ"})},
                         {"mac", "52:54:00:00:00:01"},
                         {"queue_pairs", 1},
                         {"mtu", 65535},
                         {"speed", 10000},
                         {"sessions", 2},
                         {"memory_bytes", 1048576},
                         {"memory_regions", 1}};
  ASSERT_EQ(reply["ports"].size(), 1U);
  EXPECT_EQ(dump(reply["ports"][0]), dump(expected));
}

TEST(Requests, ASpeedThatIsNotKnownIsNull) {
  EXPECT_TRUE(answer(R"({"request":"ports"})", two_ports())["ports"][0]["speed"].is_null());
}

TEST(Requests, WithoutAPortAllAreShown) {
  const FakeViews views = two_ports();
  EXPECT_EQ(answer(R"({"request":"ports"})", views)["ports"].size(), 2U);
  EXPECT_EQ(answer(R"({"request":"stats"})", views)["stats"].size(), 2U);
}

TEST(Requests, StatsNameEveryCauseEvenIfItIsZero) {
  FakeViews views = two_ports();
  views.port_stats[0].from_driver.packets = 10;
  views.port_stats[0].to_driver.drops[static_cast<std::size_t>(net::DropCause::kMtu)] = 3;
  views.port_stats[0].to_driver.drops[static_cast<std::size_t>(net::DropCause::kNoBuffers)] = 4;
  views.forward_totals = {.forwarded = 10, .offers = 11, .flooded = 1};
  const Json reply = answer(R"({"request":"stats","port":"vm0"})", views);
  const Json& stats = reply["stats"][0];
  EXPECT_EQ(stats["name"], "vm0");
  EXPECT_EQ(stats["from_driver"]["packets"], 10);
  EXPECT_EQ(stats["from_driver"]["dropped"], 0);
  EXPECT_EQ(stats["to_driver"]["dropped"], 7);
  EXPECT_EQ(stats["to_driver"]["drops"]["mtu"], 3);
  EXPECT_EQ(stats["to_driver"]["drops"].size(), net::kDropCauses);
  EXPECT_EQ(reply["forwarding"]["offers"], 11);
  EXPECT_GT(reply["time_ns"].get<std::int64_t>(), 0);
}

TEST(Requests, QueuesCarryTheirPortAndTheirCounters) {
  FakeViews views = two_ports();
  net::DirectionCounters counters;
  counters.packets.add(5);
  counters.drop(net::DropCause::kTooLong);
  fabric::QueueView queue;
  queue.kind = "transmitq";
  queue.index = 1;
  queue.state = "broken";
  queue.path = "packed/in-order";
  queue.size = 256;
  queue.avail = 7;
  queue.error = "loop";
  queue.counters = &counters;
  views.queue_views["vm1"] = {queue};
  const Json reply = answer(R"({"request":"queues"})", views);
  ASSERT_EQ(reply["queues"].size(), 1U);
  const Json& shown = reply["queues"][0];
  EXPECT_EQ(shown["port"], "vm1");
  EXPECT_EQ(shown["kind"], "transmitq");
  EXPECT_EQ(shown["state"], "broken");
  EXPECT_EQ(shown["avail"], 7);
  EXPECT_TRUE(shown["used"].is_null()) << "unknown";
  EXPECT_EQ(shown["error"], "loop");
  EXPECT_EQ(shown["counters"]["packets"], 5);
  EXPECT_EQ(shown["counters"]["drops"]["too_long"], 1);
  EXPECT_TRUE(answer(R"({"request":"queues","port":"vm0"})", views)["queues"].empty());
}

TEST(Requests, LearnedAddressesCanBeAskedByPort) {
  FakeViews views = two_ports();
  views.fdb_entries = {{*parse_mac("52:54:00:00:00:01"), "vm0", 3, false},
                       {*parse_mac("52:54:00:00:00:02"), "vm1", 0, true}};
  const Json reply = answer(R"({"request":"fdb","port":"vm1"})", views);
  EXPECT_EQ(reply["entries"], 1);
  EXPECT_EQ(reply["truncated"], false);
  EXPECT_EQ(dump(reply["fdb"]),
            R"([{"mac":"52:54:00:00:00:02","port":"vm1","age_seconds":0,"static":true}])");
}

TEST(Requests, AnEnormousTableOfAddressesIsCutAndSaysSo) {
  FakeViews views = two_ports();
  views.fdb_entries.resize(kFdbShownMax + 1);
  const Json reply = answer(R"({"request":"fdb"})", views);
  EXPECT_EQ(reply["entries"], kFdbShownMax + 1);
  EXPECT_EQ(reply["truncated"], true);
  EXPECT_EQ(reply["fdb"].size(), kFdbShownMax);
}

TEST(Requests, AWorkerWithoutCoreHasNull) {
  FakeViews views = two_ports();
  views.worker_views.resize(2);
  views.worker_views[1].core = 3;
  views.worker_views[1].queues = {"vm0:0"};
  const Json reply = answer(R"({"request":"workers"})", views);
  EXPECT_TRUE(reply["workers"][0]["core"].is_null());
  EXPECT_EQ(reply["workers"][1]["core"], 3);
  EXPECT_EQ(reply["workers"][1]["queues"][0], "vm0:0");
}

TEST(Requests, VersionNamesTheProcess) {
  const Json reply = answer(R"({"request":"version"})", two_ports());
  EXPECT_TRUE(reply["version"].is_string());
  EXPECT_EQ(reply["protocol"], 1);
  EXPECT_EQ(reply["pid"], ::getpid());
}

TEST(Requests, WhatIsNoJsonObjectIsRefused) {
  for (const char* line : {"", "x", "{", "null", "3", "[]", "\"stats\"", "{} {}", "\xff\xfe"}) {
    EXPECT_EQ(error_code(line), "bad_json") << line;
  }
}

TEST(Requests, WrongFieldsAreRefused) {
  EXPECT_EQ(error_code("{}"), "bad_request");
  EXPECT_EQ(error_code(R"({"request":1})"), "bad_request");
  EXPECT_EQ(error_code(R"({"request":null})"), "bad_request");
  EXPECT_EQ(error_code(R"({"request":"stats","port":0})"), "bad_request");
  EXPECT_EQ(error_code(R"({"request":"stats","queue":"1"})"), "bad_request");
  EXPECT_EQ(error_code(R"({"request":"workers","port":"vm0"})"), "bad_request");
}

TEST(Requests, UnknownRequestsAndPortsAreRefusedWithACure) {
  EXPECT_EQ(error_code(R"({"request":"reboot"})"), "unknown_request");
  EXPECT_EQ(error_code(R"({"request":"stats","port":"vm9"})"), "unknown_port");
  EXPECT_EQ(error_code(R"({"request":"stats","port":""})"), "unknown_port");
  const Json near = answer(R"({"request":"stat"})", two_ports());
  EXPECT_EQ(near["error"]["try"], "did you mean 'stats'?");
  const Json port = answer(R"({"request":"stats","port":"vm9"})", two_ports());
  EXPECT_EQ(port["error"]["text"], "no port is called 'vm9'");
  EXPECT_EQ(port["error"]["try"], "the ports are vm0, vm1");
}

TEST(Requests, DeepNestingIsRefusedAndNotFollowed) {
  const std::string half(kRequestMax / 2, '[');
  EXPECT_EQ(error_code(half + std::string(kRequestMax / 2, ']')), "bad_json");
  EXPECT_EQ(error_code(R"({"request":)" + half + std::string(kRequestMax / 2, ']') + "}"),
            "bad_request");
}

TEST(Requests, ABadByteInANameIsEchoedAsValidJson) {
  const std::string line =
      "{\"request\":\"stats\",\"port\":\"" + std::string(200, 'a') + "\\u0000\"}";
  EXPECT_EQ(error_code(line), "unknown_port");
  FakeViews views = two_ports();
  views.port_views[0].last_error = "\xff\xff";
  EXPECT_TRUE(answer(R"({"request":"ports"})", views).contains("ports"));
}

TEST(Requests, TheLineOfARequestIsAnswered) {
  const FakeViews views = two_ports();
  for (const std::string_view name : request_names()) {
    if (name == kResetQueue) continue;  // No question: see orders_test.cc.
    EXPECT_FALSE(answer(request_line(name, ""), views).contains("error")) << name;
  }
  EXPECT_EQ(answer(request_line("ports", "vm1"), views)["ports"][0]["name"], "vm1");
}

TEST(Requests, TheReplyToATooLongLineIsAnErrorLikeAnyOther) {
  EXPECT_EQ(Json::parse(too_long_reply())["error"]["code"], "request_too_long");
}

}  // namespace
}  // namespace sluice::control
