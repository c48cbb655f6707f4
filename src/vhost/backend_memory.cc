// Messages about shared memory: guest memory, the dirty log, the in-flight region.
#include <algorithm>
#include <utility>
#include <vector>

#include "vhost/backend.h"

namespace sluice::vhost {

// New regions are mapped before the rings pause, so a pause is short.
Backend::Answer Backend::use_memory(Result<MemoryPointer> memory) {
  MemoryPointer table = TRY(std::move(memory));
  rings_.change([&](RingEnvironment& env) { env.memory = std::move(table); });
  return Message();
}

Backend::Answer Backend::set_mem_table(Message& message) {
  const auto table = message.get<MemoryTable>();
  if (table.num_regions > kTableRegionsMax ||
      message.payload.size() < sizeof table + table.num_regions * sizeof(MemoryRegion)) {
    return fail(ErrorCode::kProtocol, "the memory table is shorter than it says",
                table.num_regions);
  }
  std::vector<MemoryRegion> regions;
  for (std::uint32_t i = 0; i < table.num_regions; ++i) {
    regions.push_back(message.get<MemoryRegion>(sizeof table + i * sizeof(MemoryRegion)));
  }
  return use_memory(memory_replaced(rings_.environment().memory, regions, message.fds));
}

Backend::Answer Backend::get_max_mem_slots(Message&) {
  return Message().add(std::uint64_t{memory::GuestMemory::kMaxRegions});
}

Backend::Answer Backend::add_mem_reg(Message& message) {
  return use_memory(memory_added(rings_.environment().memory, message.get<SingleRegion>().region,
                                 message.fds.front()));
}

Backend::Answer Backend::rem_mem_reg(Message& message) {
  const MemoryRegion region = message.get<SingleRegion>().region;
  const auto same = [&](const MemoryRegion& other) {
    return other.guest_address == region.guest_address && other.size == region.size &&
           other.user_address == region.user_address;
  };
  Result<MemoryPointer> table = memory_removed(rings_.environment().memory, region);
  // QEMU 7.2 adds and removes each region once for every queue pair.
  if (!table && std::ranges::any_of(removed_, same)) return Message();
  if (table) {
    constexpr std::size_t kRemembered = 64;
    std::erase_if(removed_, same);
    if (removed_.size() == kRemembered) removed_.erase(removed_.begin());
    removed_.push_back(region);
  }
  return use_memory(std::move(table));
}

Backend::Answer Backend::set_log_base(Message& message) {
  const auto wanted = message.get<LogDescription>();
  auto log = std::make_shared<const memory::DirtyLog>(
      TRY(memory::DirtyLog::map(message.fds.front().get(), wanted.offset, wanted.size)));
  log_ = std::move(log);
  if (virtio::FeatureSet::from_low(features_).has(virtio::Feature::kLogAll)) {
    rings_.change([&](RingEnvironment& env) { env.log = log_; });
  }
  return Message();
}

Backend::Answer Backend::get_inflight_fd(Message& message) {
  const RingEnvironment& env = rings_.environment();
  // The format may not be settled yet; blocks of the larger one do for both.
  const bool packed = !env.features_known || env.features.has(virtio::Feature::kRingPacked);
  auto region = TRY(InflightRegion::create(message.get<InflightDescription>(),
                                           static_cast<std::uint16_t>(rings_.count()), packed));
  Message answer;
  answer.add(region.description);
  answer.payload.resize(message.payload.size());  // As long as the peer knows the record.
  answer.fds.push_back(std::move(region.fd));
  return answer;
}

Backend::Answer Backend::set_inflight_fd(Message& message) {
  auto region =
      TRY(InflightRegion::map(message.fds.front().get(), message.get<InflightDescription>(),
                              static_cast<std::uint16_t>(rings_.count())));
  rings_.change([&](RingEnvironment& env) { env.inflight = std::move(region); });
  return Message();
}

}  // namespace sluice::vhost
