// The messages and steps of VhostBench.
#include "support/vhost_bench.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace sluice::test {

using vhost::Message;
using vhost::Request;

TestEvent::TestEvent() {
  auto event = EventFd::create();
  if (!event) std::abort();
  event_ = std::move(*event);
}

UniqueFd TestEvent::copy() const {
  return copy_of(event_.fd());
}

std::uint64_t TestEvent::take() const {
  std::uint64_t count = 0;
  return ::read(event_.fd(), &count, sizeof count) == sizeof count ? count : 0;
}

UniqueFd copy_of(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) std::abort();
  return copy;
}

VhostBench::VhostBench(std::uint16_t pairs, std::shared_ptr<vhost::RingRecords> records_of_port)
    : device(pairs), records(std::move(records_of_port)) {
  reconnect();
}

void VhostBench::reconnect() {
  backend.reset();
  backend.emplace(device, records);
}

std::optional<Message> VhostBench::send(Message message) {
  auto answer = backend->handle(std::move(message));
  if (!answer) {
    ADD_FAILURE() << "the session ended: " << answer.error().text;
    return std::nullopt;
  }
  return std::move(*answer);
}

bool VhostBench::accepted(Message message) {
  message.flags |= vhost::kFlagNeedReply;
  const std::uint32_t request = message.request;
  const auto answer = send(std::move(message));
  if (!answer) return false;
  EXPECT_EQ(answer->request, request);
  EXPECT_EQ(answer->flags, vhost::kVersion | vhost::kFlagReply);
  EXPECT_EQ(answer->payload.size(), 8U);
  return answer->get<std::uint64_t>() == 0;
}

std::optional<std::uint64_t> VhostBench::query(Request request) {
  const auto answer = send(Message(request));
  if (!answer || answer->payload.empty()) return std::nullopt;
  EXPECT_EQ(answer->payload.size(), 8U);
  return answer->get<std::uint64_t>();
}

Message VhostBench::number(Request request, std::uint64_t value) {
  return Message(request).add(value);
}

Message VhostBench::state(Request request, std::uint32_t index, std::uint32_t num) {
  return Message(request).add(vhost::VringState{index, num});
}

Message VhostBench::with_fd(Message message, UniqueFd fd) {
  message.fds.push_back(std::move(fd));
  return message;
}

Message VhostBench::ring_fd(Request request, std::uint32_t index, UniqueFd fd) {
  if (!fd) return number(request, index | vhost::kVringNoFd);
  return with_fd(number(request, index), std::move(fd));
}

vhost::MemoryRegion VhostBench::region(std::size_t index) const {
  const auto& record = guest.memory().regions()[index]->record;
  return {record.guest.raw(), record.size, record.user.raw(), record.offset};
}

Message VhostBench::mem_table(const std::vector<std::size_t>& regions) const {
  Message message(Request::kSetMemTable);
  message.add(vhost::MemoryTable{static_cast<std::uint32_t>(regions.size()), 0});
  for (const std::size_t index : regions) {
    message.add(region(index));
    message.fds.push_back(copy_of(guest.fd(index)));
  }
  return message;
}

Message VhostBench::addresses(std::uint32_t index, const virtio::RingConfig& ring,
                              const FakeGuest& guest, std::uint32_t flags, std::uint64_t log) {
  const auto user = [&](const std::byte* place) {
    return FakeGuest::user(guest.memory().guest_address(place).raw()).raw();
  };
  return Message(Request::kSetVringAddr)
      .add(vhost::VringAddress{index, flags, user(ring.descriptors), user(ring.device_area),
                               user(ring.driver_area), log});
}

bool VhostBench::greet() {
  send(Message(Request::kSetOwner));
  const auto offered = query(Request::kGetProtocolFeatures);
  if (!offered) return false;
  send(number(Request::kSetProtocolFeatures, *offered));
  return true;
}

bool VhostBench::negotiate(std::uint64_t features) {
  return greet() && accepted(number(Request::kSetFeatures, features)) && accepted(mem_table());
}

bool VhostBench::start_ring(std::uint32_t index, const RawDriver& driver, std::uint32_t base) {
  const virtio::RingConfig ring = driver.config();
  return accepted(ring_fd(Request::kSetVringCall, index, call.copy())) &&
         accepted(state(Request::kSetVringNum, index, ring.size)) &&
         accepted(state(Request::kSetVringBase, index, base)) &&
         accepted(addresses(index, ring, guest)) &&
         accepted(ring_fd(Request::kSetVringKick, index, kick.copy()));
}

bool VhostBench::enable(std::uint32_t index, bool on) {
  return accepted(state(Request::kSetVringEnable, index, on ? 1 : 0));
}

std::optional<std::uint32_t> VhostBench::stop_ring(std::uint32_t index) {
  const auto answer = send(state(Request::kGetVringBase, index, 0));
  if (!answer || answer->payload.size() != sizeof(vhost::VringState)) return std::nullopt;
  const auto position = answer->get<vhost::VringState>();
  EXPECT_EQ(position.index, index);
  return position.num;
}

}  // namespace sluice::test
