// Fuzz target: a raw byte stream with descriptors at any place, into a session's socket.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "memory/mapping.h"
#include "support/fake_device.h"
#include "support/fuzz_input.h"
#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"
#include "vhost/server.h"

namespace {

using namespace sluice;
using test::FuzzInput;

void send(int socket, std::span<const std::uint8_t> bytes, std::size_t fds) {
  static const test::TestEvent event;
  static const UniqueFd fd = event.copy();
  std::array<char, CMSG_SPACE(sizeof(int) * 16)> control{};
  iovec part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fds > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds);
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int) * fds);
    for (std::size_t i = 0; i < fds; ++i) {
      const int number = fd.get();
      std::memcpy(CMSG_DATA(item) + i * sizeof number, &number, sizeof number);
    }
  }
  static_cast<void>(::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL));
}

// A frame whose header mostly makes sense; what follows is the input's.
void send_frame(int socket, FuzzInput& in) {
  std::array<std::uint8_t, 12 + 64> frame{};
  const std::uint32_t size = in.chance(16) ? in.take<std::uint32_t>() : in.below(64);
  const std::array<std::uint32_t, 3> header = {in.below(48), in.chance(32) ? in.below(4) : 9U,
                                               size};
  std::memcpy(frame.data(), header.data(), sizeof header);
  const auto payload = in.bytes(std::min(size, 64U));
  std::ranges::copy(payload, frame.begin() + 12);
  const std::size_t fds = in.chance(2) ? in.below(12) : 0;
  send(socket, std::span(frame).first(12 + payload.size()), fds);
}

bool readable(int fd) {
  pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, 0) == 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzInput in(data, size);
  test::FakeDevice device(2);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
  const UniqueFd peer(ends[0]);
  auto session = vhost::Session::create(UniqueFd(ends[1]), device, {});
  if (!session) std::abort();
  bool alive = true;
  while (alive && !in.empty()) {
    if (in.chance(4)) {
      const auto bytes = in.bytes(in.below(32));
      if (!bytes.empty()) send(peer.get(), bytes, in.chance(4) ? in.below(12) : 0);
    } else {
      send_frame(peer.get(), in);
    }
    for (int turn = 0; alive && turn < 4 && readable((*session)->fd()); ++turn) {
      alive = (*session)->on_ready().has_value();
    }
    std::array<std::byte, 4096> answers;
    static_cast<void>(::recv(peer.get(), answers.data(), answers.size(), MSG_DONTWAIT));
  }
  session->reset();
  if (device.any_running() || !device.complaint().empty()) std::abort();
  return 0;
}
