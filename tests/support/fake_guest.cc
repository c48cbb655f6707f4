// FakeGuest: regions of shared memory with the test's own mapping beside the device's.
#include "support/fake_guest.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace sluice::test {

namespace {

[[noreturn]] void give_up(const char* text) {
  std::fprintf(stderr, "fake guest: %s\n", text);
  std::abort();
}

template <class T>
T must(Result<T> result, const char* text) {
  if (!result) give_up(text);
  return std::move(*result);
}

}  // namespace

FakeGuest::FakeGuest() : FakeGuest({{kBase, kDefaultSize}}) {}

FakeGuest::FakeGuest(std::initializer_list<RegionPlan> plan) {
  std::vector<std::shared_ptr<const memory::Region>> regions;
  for (const RegionPlan& region : plan) {
    auto shared = must(memory::Mapping::create_shared("fake-guest", region.size), "no memory");
    const memory::RegionRecord record{.guest = memory::GuestAddress(region.guest),
                                      .size = region.size,
                                      .user = user(region.guest),
                                      .offset = 0};
    regions.push_back(must(memory::Region::map(record, shared.fd.get()), "region not mapped"));
    views_.push_back({region, std::move(shared.mapping), std::move(shared.fd)});
  }
  memory_ = must(memory::GuestMemory::create(std::move(regions)), "table refused");
  next_ = views_.front().plan.guest;
}

std::uint64_t FakeGuest::allocate(std::uint64_t size, std::uint64_t alignment) {
  const std::uint64_t start = (next_ + alignment - 1) / alignment * alignment;
  std::memset(at(start, size), 0, size);
  next_ = start + size;
  return start;
}

bool FakeGuest::contains(std::uint64_t address, std::uint64_t length) const {
  for (const View& view : views_) {
    const std::uint64_t offset = address - view.plan.guest;
    if (offset >= view.plan.size) continue;
    const std::uint64_t here = view.plan.size - offset;
    return length <= here || contains(address + here, length - here);
  }
  return false;
}

std::byte* FakeGuest::at(std::uint64_t address, std::uint64_t length) const {
  for (const View& view : views_) {
    const std::uint64_t offset = address - view.plan.guest;
    if (offset < view.plan.size && length <= view.plan.size - offset) {
      return view.mapping.bytes().data() + offset;
    }
  }
  give_up("the test touches an address outside its memory");
}

std::byte* FakeGuest::device_view(std::uint64_t address, std::uint64_t length) const {
  std::byte* found = memory_->translate(memory::GuestAddress(address), length);
  if (found == nullptr) give_up("no such device address");
  return found;
}

void FakeGuest::protect_device_view(std::uint64_t address, std::uint64_t length,
                                    bool read_only) const {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(device_view(address, length));
  const std::uintptr_t start = first / page * page;
  const int rights = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  if (mprotect(reinterpret_cast<void*>(start), first + length - start, rights) != 0) {
    give_up("mprotect");
  }
}

void FakeGuest::fill(std::uint64_t address, std::uint64_t length, std::uint8_t value) const {
  std::memset(at(address, length), value, length);
}

void FakeGuest::put(std::uint64_t address, std::span<const std::byte> bytes) const {
  for (std::size_t i = 0; i < bytes.size(); ++i) *at(address + i) = bytes[i];
}

std::vector<std::byte> FakeGuest::get(std::uint64_t address, std::uint64_t length) const {
  std::vector<std::byte> bytes(length);
  for (std::uint64_t i = 0; i < length; ++i) bytes[i] = *at(address + i);
  return bytes;
}

std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

}  // namespace sluice::test
