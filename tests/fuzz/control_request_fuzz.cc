// A request at the control socket: whatever the line, the reply is one line that is a JSON object.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "control/requests.h"
#include "unit/control/fake_views.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const sluice::control::FakeViews kViews = sluice::control::two_ports();
  const std::string line(data, data + size);
  const std::string reply = sluice::control::answer_request(line, kViews);
  const auto document = sluice::control::Json::parse(reply, nullptr, false);
  if (!document.is_object() || reply.find('\n') != std::string::npos) {
    std::fprintf(stderr, "control_request_fuzz: the reply is not one JSON object: %s\n",
                 reply.c_str());
    std::abort();
  }
  return 0;
}
