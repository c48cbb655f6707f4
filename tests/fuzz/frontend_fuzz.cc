// Fuzz target: a driver over a vhost-user front-end whose back-end answers what the input says.
//
// One byte of input for each request decides: a good answer (most of the time, else no session gets
// far), a good answer with damage, bytes of the input instead of an answer, or the end. In the end
// nothing may be left open.
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "memory/mapping.h"
#include "net/net_driver.h"
#include "support/scripted_backend.h"
#include "vhost/frontend.h"

namespace {

using namespace sluice;
using test::ScriptedBackend;

// The input, read from the front; zero once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> out(count);
    for (std::byte& value : out) value = std::byte(byte());
    return out;
  }

 private:
  std::span<const std::uint8_t> left_;
};

// A header and a payload that may be anything.
void send_damaged(ScriptedBackend& backend, std::uint32_t id, Input& input) {
  const std::uint8_t what = input.byte();
  const std::uint32_t answered = (what & 1) != 0 ? input.byte() : id;
  const std::uint32_t flags = (what & 2) != 0 ? input.byte() : 5;
  const std::vector<std::byte> payload = input.bytes((what & 4) != 0 ? input.byte() : 8);
  const std::array<int, 10> fds{};  // Standard input, several times.
  const std::size_t count = (what & 8) != 0 ? input.byte() % (fds.size() + 1) : 0;
  backend.send(answered, flags, payload, std::span(fds).first(count));
}

// What goes to the front-end on the back-end's own channel.
void disturb(ScriptedBackend& backend, Input& input) {
  if (backend.channel() < 0) return;
  const std::vector<std::byte> bytes = input.bytes(input.byte() % 64);
  static_cast<void>(
      ::send(backend.channel(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

bool act(ScriptedBackend& backend, ScriptedBackend::Request& request, Input& input) {
  switch (input.byte() % 16) {
    case 12: disturb(backend, input); return false;
    case 13: send_damaged(backend, request.id, input); return true;
    case 14: backend.send_raw(input.bytes(input.byte())); return true;
    case 15: backend.hang_up(); return true;
    default: return false;
  }
}

// Errors are what is expected; crashes, hangs and leaks are looked for.
void drive(std::unique_ptr<vhost::Frontend> frontend, Input& choice) {
  vhost::Frontend& control = *frontend;
  net::NetDriverOptions options{.queue_size = 4};
  if (choice.byte() % 2 != 0) options.wanted.add(virtio::Feature::kRingPacked);
  const auto driver = net::NetDriver::create(options, std::move(frontend));
  if (!driver) return;
  static_cast<void>((*driver)->start());
  static_cast<void>((*driver)->restart_queue(net::QueueIndex(1)));
  static_cast<void>(control.set_mtu(1500));
  std::array<std::byte, 24> config{};
  static_cast<void>(control.read_config(0, config));
  if (const auto inflight = control.get_inflight(2, 4)) {
    static_cast<void>(control.set_inflight(*inflight));
  }
  static_cast<void>(control.config_changes());
  static_cast<void>((*driver)->stop());
  static_cast<void>((*driver)->reset());
  static_cast<void>((*driver)->start());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::size_t mappings = memory::Mapping::live_count();
  {
    Input choice(data, size < 1 ? size : 1);
    Input input(data, size);
    ScriptedBackend backend([&](ScriptedBackend& self, ScriptedBackend::Request& request) {
      return act(self, request, input);
    });
    backend.features = 1ULL << 30 | 1ULL << 32 | 1ULL << 34 | 1ULL << 5;
    backend.protocol_features = vhost::Frontend::kProtocolFeatures;
    // Short: an answer cut off half way costs the whole of it.
    auto frontend =
        vhost::Frontend::adopt(backend.start(), {.timeout = std::chrono::milliseconds(20)});
    if (frontend) drive(std::move(*frontend), choice);
  }
  if (memory::Mapping::live_count() != mappings) std::abort();
  return 0;
}
