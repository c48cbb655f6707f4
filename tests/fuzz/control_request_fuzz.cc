// A request at the control socket: whatever the line, the reply is one line that is a JSON object.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <variant>

#include "control/orders.h"
#include "unit/control/fake_controls.h"
#include "unit/control/fake_views.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const sluice::control::FakeViews kViews = [] {
    auto views = sluice::control::two_ports();
    views.port_views[1].kind = "virtio-user";
    return views;
  }();
  sluice::control::FakeControls controls;
  const std::string line(data, data + size);
  const auto given = sluice::control::answer(line, kViews, controls);
  std::string reply;
  if (const auto* const text = std::get_if<std::string>(&given)) {
    reply = *text;
  } else {
    controls.pending->finish(sluice::fabric::ResetReport{});
    reply = std::get<sluice::control::Later>(given)().value_or("no reply");
  }
  const auto document = sluice::control::Json::parse(reply, nullptr, false);
  if (!document.is_object() || reply.find('\n') != std::string::npos) {
    std::fprintf(stderr, "control_request_fuzz: the reply is not one JSON object: %s\n",
                 reply.c_str());
    std::abort();
  }
  return 0;
}
