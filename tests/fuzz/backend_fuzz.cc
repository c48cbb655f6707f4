// Fuzz target: messages in any order with any descriptors against the back-end, rings served in
// between, ring memory written by the input.
//
// Most sessions begin with rings that run already, or the input would rarely get that far. Then
// each step is a message, mostly one that makes sense (known request, right size, small numbers),
// or a buffer posted or bytes written into guest memory, or a ring that is served.
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "memory/mapping.h"
#include "support/fake_device.h"
#include "support/fake_guest.h"
#include "support/fuzz_input.h"
#include "support/temporary_directory.h"
#include "support/vhost_bench.h"
#include "unit/memory/leaks.h"
#include "vhost/backend.h"
#include "vhost/ring_records.h"

namespace {

using namespace sluice;
using test::FakeGuest;
using test::FuzzInput;
using vhost::Message;
using vhost::Request;

constexpr std::uint64_t kArea = 64 * 1024;  // Where rings and buffers of the inputs lie.

// What outlives an input: memory, descriptors to send, the record file.
struct World {
  FakeGuest guest;
  test::TestEvent event;
  test::TemporaryDirectory directory;
  std::shared_ptr<vhost::RingRecords> records =
      *vhost::RingRecords::open(directory / "fuzz.rings", 5);
  UniqueFd log = [] { return std::move(memory::Mapping::create_shared("log", kArea)->fd); }();
};

World& world() {
  static World instance;
  return instance;
}

[[noreturn]] void complain(const char* text) {
  std::fprintf(stderr, "backend_fuzz: %s\n", text);
  std::abort();
}

UniqueFd any_fd(FuzzInput& in) {
  switch (in.below(8)) {
    case 0: return test::copy_of(world().log.get());
    case 1: return UniqueFd(::memfd_create("small", 0));
    case 2:
    case 3: return test::copy_of(world().guest.fd());
    default: return world().event.copy();
  }
}

std::uint64_t address(FuzzInput& in, std::uint64_t base) {
  if (in.chance(16)) return in.take<std::uint64_t>();
  const std::uint64_t unit = in.chance(8) ? 1 : 64;
  return base + in.take<std::uint16_t>() * unit % kArea;
}

vhost::MemoryRegion region(FuzzInput& in) {
  vhost::MemoryRegion region{FakeGuest::kBase, FakeGuest::kDefaultSize,
                             FakeGuest::user(FakeGuest::kBase).raw(), 0};
  if (in.chance(2)) return region;
  const std::uint64_t shift = in.below(16) * 4096;
  region = {region.guest_address + shift, 4096U * (1 + in.below(8)), region.user_address + shift,
            shift};
  if (in.chance(4)) (in.chance(2) ? region.size : region.mmap_offset) = in.take<std::uint64_t>();
  return region;
}

std::uint32_t ring(FuzzInput& in) {
  return in.chance(32) ? in.take<std::uint32_t>() : in.below(6);
}

void fill(Message& message, FuzzInput& in) {
  const std::uint64_t user = FakeGuest::user(FakeGuest::kBase).raw();
  switch (static_cast<Request>(message.request)) {
    case Request::kSetFeatures:
      message.add((in.take<std::uint64_t>() & 0xd'7fff'ffffULL) | 1ULL << 32);
      break;
    case Request::kSetProtocolFeatures:
      message.add(vhost::offered_protocol_features() & ~std::uint64_t{in.below(4)});
      break;
    case Request::kSetMemTable: {
      const std::uint32_t count = in.below(4);
      message.add(vhost::MemoryTable{count, 0});
      for (std::uint32_t i = 0; i < count; ++i) message.add(region(in));
      break;
    }
    case Request::kAddMemReg:
    case Request::kRemMemReg: message.add(vhost::SingleRegion{0, region(in)}); break;
    case Request::kSetVringAddr:
      message.add(vhost::VringAddress{ring(in), in.below(3), address(in, user), address(in, user),
                                      address(in, user), address(in, FakeGuest::kBase)});
      break;
    case Request::kSetVringNum: message.add(vhost::VringState{ring(in), 1U << in.below(10)}); break;
    case Request::kSetVringBase:
      message.add(vhost::VringState{ring(in), in.take<std::uint32_t>() & 0x800f'800f});
      break;
    case Request::kSetVringEnable: message.add(vhost::VringState{ring(in), in.below(3)}); break;
    case Request::kSetVringKick:
    case Request::kSetVringCall:
    case Request::kSetVringErr:
      message.add(std::uint64_t{ring(in) | (in.chance(4) ? 0x100U : 0U)});
      break;
    case Request::kSetStatus: message.add(std::uint64_t{in.below(17)}); break;
    case Request::kGetInflightFd:
    case Request::kSetInflightFd:
      message.add(vhost::InflightDescription{FakeGuest::kDefaultSize, in.below(2) * 4096U,
                                             static_cast<std::uint16_t>(in.below(7)),
                                             static_cast<std::uint16_t>(1U << in.below(10)), 0});
      break;
    default:
      for (const std::uint8_t byte : in.bytes(in.below(48))) message.add(byte);
  }
}

Message any_message(FuzzInput& in) {
  Message message;
  message.request = in.chance(64) ? in.take<std::uint32_t>() : 1 + in.below(45);
  message.flags = vhost::kVersion | (in.chance(2) ? vhost::kFlagNeedReply : 0);
  fill(message, in);
  if (in.chance(16)) message.payload.resize(in.below(255));
  const vhost::MessageRow* row = vhost::find_message(message.request);
  std::size_t fds = row != nullptr && row->fds != vhost::FdRule::kNone ? 1 : 0;
  if (message.is(Request::kSetMemTable)) fds = message.get<std::uint32_t>();
  if (in.chance(16)) fds = in.below(9);
  for (std::size_t i = 0; i < std::min<std::size_t>(fds, 8); ++i) {
    message.fds.push_back(any_fd(in));
  }
  return message;
}

constexpr std::uint32_t kRings = 4;
constexpr std::uint32_t kRingSize = 8;

// Ring `index` of the prologue: descriptors, driver area, device area.
std::array<std::uint64_t, 3> ring_place(std::uint32_t index) {
  const std::uint64_t start = FakeGuest::kBase + index * std::uint64_t{0x1000};
  return {start, start + 0x400, start + 0x800};
}

// Rings that run, of the format and with the extras that the input chose. True: packed ones.
bool prologue(FuzzInput& in, vhost::Backend& backend) {
  using Bench = test::VhostBench;
  const std::uint32_t choice = in.below(16);
  if (choice < 2) return choice == 0;
  const bool packed = choice % 2 == 0;
  const auto send = [&](Message message) { static_cast<void>(backend.handle(std::move(message))); };
  const auto shared = [&](Message message, int fd) {
    send(Bench::with_fd(std::move(message), test::copy_of(fd)));
  };
  send(Bench::number(Request::kSetProtocolFeatures, vhost::offered_protocol_features()));
  const std::uint64_t log = choice == 4 || choice == 5 ? test::kLogAllBit : 0;
  if (log != 0) {
    // Long enough for the guest's pages, which begin at kBase.
    shared(Message(Request::kSetLogBase).add(vhost::LogDescription{kArea, 0}), world().log.get());
  }
  send(
      Bench::number(Request::kSetFeatures, (packed ? test::kPackedFeatures : test::kSplitFeatures) |
                                               log | (choice < 8 ? test::kInOrderBit : 0)));
  Message table(Request::kSetMemTable);
  table.add(vhost::MemoryTable{1, 0})
      .add(vhost::MemoryRegion{FakeGuest::kBase, FakeGuest::kDefaultSize,
                               FakeGuest::user(FakeGuest::kBase).raw(), 0});
  shared(std::move(table), world().guest.fd());
  if (choice > 12) {
    const std::uint64_t size = choice == 13 ? FakeGuest::kDefaultSize : kArea;
    const std::uint64_t offset = FakeGuest::kDefaultSize - size;
    shared(Message(Request::kSetInflightFd)
               .add(vhost::InflightDescription{size, offset, 4, kRingSize, 0}),
           world().guest.fd());
  }
  for (std::uint32_t index = 0; index < kRings; ++index) {
    const auto place = ring_place(index);
    const auto user = [](std::uint64_t guest) { return FakeGuest::user(guest).raw(); };
    send(Bench::state(Request::kSetVringNum, index, kRingSize));
    send(Bench::state(Request::kSetVringBase, index, packed ? 0x8000 : 0));
    send(Message(Request::kSetVringAddr)
             .add(vhost::VringAddress{index, log != 0 ? 1U : 0U, user(place[0]), user(place[2]),
                                      user(place[1]), place[2]}));
    shared(Bench::number(Request::kSetVringCall, index), world().event.copy().get());
    shared(Bench::number(Request::kSetVringKick, index), world().event.copy().get());
    send(Bench::state(Request::kSetVringEnable, index, 1));
  }
  return packed;
}

// A driver of the prologue's rings that mostly does the right thing.
class Driver {
 public:
  explicit Driver(bool packed) : packed_(packed) {}

  void post(FuzzInput& in) {
    const std::uint32_t index = in.below(kRings);
    const auto place = ring_place(index);
    const FakeGuest& guest = world().guest;
    const std::uint16_t next = next_[index]++;
    const std::uint32_t slot = in.chance(16) ? in.below(kRingSize) : next % kRingSize;
    const std::uint64_t descriptor = place[0] + 16 * std::uint64_t{slot};
    guest.write(descriptor, address(in, FakeGuest::kBase));
    const std::uint32_t length = in.take<std::uint16_t>();
    guest.write(descriptor + 8, in.chance(16) ? length * 65537 : length);
    unsigned flags = index % 2 == 0 ? test::kWrite : 0U;
    if (in.chance(4)) flags = in.below(8);  // NEXT, WRITE, INDIRECT
    if (packed_) {
      const bool wrap = (next / kRingSize % 2 == 0) != in.chance(32);
      guest.write(descriptor + 12, static_cast<std::uint16_t>(slot));
      guest.write(descriptor + 14, static_cast<std::uint16_t>(flags | test::available(wrap)));
      return;
    }
    guest.write(descriptor + 12, static_cast<std::uint16_t>(flags));
    guest.write(descriptor + 14, static_cast<std::uint16_t>(in.below(kRingSize)));
    guest.write(place[1] + 4 + 2 * (next % kRingSize), static_cast<std::uint16_t>(slot));
    guest.write(place[1] + 2, static_cast<std::uint16_t>(next + 1));
  }

 private:
  bool packed_;
  std::array<std::uint16_t, kRings> next_{};
};

void write_memory(FuzzInput& in) {
  const std::uint64_t place = FakeGuest::kBase + in.take<std::uint16_t>();
  const auto bytes = in.bytes(in.below(64));
  world().guest.put(place, std::as_bytes(bytes));
}

// True until the session ends.
bool step(FuzzInput& in, vhost::Backend& backend, test::FakeDevice& device, Driver& driver) {
  switch (in.below(12)) {
    case 0: write_memory(in); return true;
    case 1:
    case 2:
    case 3:
    case 4: driver.post(in); return true;
    case 5:
    case 7:
    case 8: device.serve(in.below(5), 64, in.below(128)); return true;
    case 6: backend.config_changed(); return true;
    default: break;
  }
  Message message = any_message(in);
  const auto answer = backend.handle(std::move(message));
  if (!answer) return false;
  if (*answer && ((*answer)->flags & vhost::kFlagReply) == 0) complain("an answer is no reply");
  if (!device.complaint().empty()) complain(device.complaint().c_str());
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  World& outer = world();
  outer.guest.fill(FakeGuest::kBase, 2 * kArea, 0);
  const std::size_t mappings = memory::Mapping::live_count();
  static std::size_t runs = 0;
  const bool count = ++runs % 64 == 0;  // It costs more than the run itself.
  const std::size_t descriptors = count ? test::open_descriptors() : 0;
  {
    FuzzInput in(data, size);
    test::FakeDevice device(2);
    for (int session = 0; session < 3 && !in.empty(); ++session) {
      std::optional<vhost::Backend> backend(std::in_place, device, outer.records);
      Driver driver(prologue(in, *backend));
      while (!in.empty() && step(in, *backend, device, driver)) {
        if (in.chance(64)) break;  // The line is dead.
      }
      static_cast<void>(backend->view());
      backend.reset();
      if (device.any_running()) complain("a queue runs on after its session");
    }
  }
  if (memory::Mapping::live_count() != mappings) complain("a mapping leaked");
  if (count && !test::descriptors_settle_at(descriptors)) complain("a descriptor leaked");
  return 0;
}
