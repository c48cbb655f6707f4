// The front-end's memory messages: regions, the dirty log, the in-flight region; and configuration.
#include <sys/stat.h>

#include <algorithm>

#include "base/foreign_fd.h"
#include "vhost/frontend.h"

namespace sluice::vhost {
namespace {

MemoryRegion wire_record(const memory::RegionRecord& record) {
  return {.guest_address = record.guest.raw(),
          .size = record.size,
          .user_address = record.user.raw(),
          .mmap_offset = record.offset};
}

Message single_region(Request request, const memory::RegionRecord& record) {
  Message message(request);
  message.add(SingleRegion{.padding = 0, .region = wire_record(record)});
  return message;
}

}  // namespace

Result<Frontend::SharedFile> Frontend::identify(const net::SharedRegion& region) {
  struct stat info{};
  if (::fstat(region.fd, &info) != 0) return fail_errno("cannot look at shared memory");
  return SharedFile{.record = region.record, .device = info.st_dev, .inode = info.st_ino};
}

Status Frontend::set_memory(std::span<const net::SharedRegion> regions) {
  TRY(offer());
  const bool slots = has(protocol_, ProtocolFeature::kConfigureMemSlots);
  const std::uint64_t most = slots ? slots_ : kTableRegionsMax;
  if (regions.size() > most) {
    return fail(ErrorCode::kOutOfRange, "the back-end takes fewer memory regions",
                static_cast<std::int64_t>(most));
  }
  return slots ? send_slots(regions) : send_table(regions);
}

// The table replaces all regions at once.
Status Frontend::send_table(std::span<const net::SharedRegion> regions) {
  Message message(Request::kSetMemTable);
  message.add(MemoryTable{.num_regions = static_cast<std::uint32_t>(regions.size()), .padding = 0});
  std::vector<SharedFile> files;
  for (const net::SharedRegion& region : regions) {
    message.add(wire_record(region.record));
    message.fds.push_back(TRY(copy_to_send(region.fd)));
    files.push_back(TRY(identify(region)));
  }
  TRY(channel_.command(std::move(message)));
  regions_ = std::move(files);
  return {};
}

// Old regions go first: a new one may lie where an old one did.
Status Frontend::send_slots(std::span<const net::SharedRegion> regions) {
  std::vector<SharedFile> files;
  for (const net::SharedRegion& region : regions) files.push_back(TRY(identify(region)));
  const auto lists = [](const std::vector<SharedFile>& list, const SharedFile& file) {
    return std::find(list.begin(), list.end(), file) != list.end();
  };
  const std::vector<SharedFile> before = regions_;
  for (const SharedFile& file : before) {
    if (lists(files, file)) continue;
    TRY(channel_.command(single_region(Request::kRemMemReg, file.record)));
    std::erase(regions_, file);
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (lists(regions_, files[i])) continue;
    Message message = single_region(Request::kAddMemReg, files[i].record);
    message.fds.push_back(TRY(copy_to_send(regions[i].fd)));
    TRY(channel_.command(std::move(message)));
    regions_.push_back(files[i]);
  }
  return {};
}

Status Frontend::remove_regions() {
  if (!has(protocol_, ProtocolFeature::kConfigureMemSlots)) return {};
  return send_slots({});
}

Result<std::uint64_t> Frontend::guest_address(memory::UserAddress address) const {
  for (const SharedFile& file : regions_) {
    const std::uint64_t offset = address.raw() - file.record.user.raw();
    if (offset < file.record.size) return file.record.guest.raw() + offset;
  }
  return fail(ErrorCode::kBadAddress, "the ring does not lie in shared memory");
}

// --- Dirty log -----------------------------------------------------------------------------------

Status Frontend::set_log(int fd, std::uint64_t offset, std::uint64_t size) {
  TRY(require(ProtocolFeature::kLogShmfd));
  Message message(Request::kSetLogBase);
  message.add(LogDescription{.size = size, .offset = offset});
  message.fds.push_back(TRY(copy_to_send(fd)));
  // Back-ends answer with nothing or with an integer that means nothing.
  TRY(channel_.ask(std::move(message), {.size_min = 0, .size_max = sizeof(LogDescription)}));
  log_set_ = true;
  return {};
}

Status Frontend::set_logging(bool on) {
  if (!transport_offer_.has(virtio::Feature::kLogAll)) {
    return fail(ErrorCode::kNotNegotiated, "the back-end cannot log the pages it writes");
  }
  if (on && !log_set_) return fail(ErrorCode::kWrongState, "there is no log to write to");
  logging_ = on;
  TRY(send_features());
  for (const auto& [queue, ring] : running_) TRY(send_address(ring));
  return {};
}

// --- In-flight region ----------------------------------------------------------------------------

Result<Frontend::Inflight> Frontend::get_inflight(std::uint16_t queues, std::uint16_t queue_size) {
  TRY(require(ProtocolFeature::kInflightShmfd));
  Message message(Request::kGetInflightFd);
  message.add(InflightDescription{.mmap_size = 0,
                                  .mmap_offset = 0,
                                  .num_queues = queues,
                                  .queue_size = queue_size,
                                  .padding = 0});
  Message answer = TRY(channel_.ask(
      std::move(message),
      {.size_min = kInflightShort, .size_max = sizeof(InflightDescription), .fds = 1}));
  const auto region = answer.get<InflightDescription>();
  if (region.mmap_size == 0) {
    return fail(ErrorCode::kPermission, "the back-end gives no in-flight region",
                static_cast<std::int64_t>(Request::kGetInflightFd));
  }
  if (answer.fds.empty() || !lives_in_memory(answer.fds[0].get())) {
    return channel_.broken("the back-end's in-flight region has no memory");
  }
  return Inflight{.fd = std::move(answer.fds[0]),
                  .size = region.mmap_size,
                  .offset = region.mmap_offset,
                  .queues = queues,
                  .queue_size = queue_size};
}

Status Frontend::set_inflight(const Inflight& inflight) {
  TRY(require(ProtocolFeature::kInflightShmfd));
  Message message(Request::kSetInflightFd);
  message.add(InflightDescription{.mmap_size = inflight.size,
                                  .mmap_offset = inflight.offset,
                                  .num_queues = inflight.queues,
                                  .queue_size = inflight.queue_size,
                                  .padding = 0});
  message.fds.push_back(TRY(copy_to_send(inflight.fd.get())));
  return channel_.command(std::move(message));
}

// --- Configuration -------------------------------------------------------------------------------

Result<std::size_t> Frontend::read_config(std::uint32_t offset, std::span<std::byte> out) {
  TRY(require(ProtocolFeature::kConfig));
  if (offset >= kConfigMax || out.empty()) return 0;
  const auto size = static_cast<std::uint32_t>(
      std::min<std::size_t>(out.size(), kConfigMax - std::size_t{offset}));
  Message message(Request::kGetConfig);
  message.add(ConfigDescription{.offset = offset, .size = size, .flags = 0});
  message.payload.resize(sizeof(ConfigDescription) + size);
  const Message answer = TRY(channel_.ask(
      std::move(message), {.size_min = 0, .size_max = sizeof(ConfigDescription) + size}));
  const auto got = answer.get<ConfigDescription>();
  // An error is an answer of no bytes; what lies beyond the device's space is one (INI-11).
  if (answer.payload.size() <= sizeof(ConfigDescription) || got.size == 0) return 0;
  if (got.offset != offset || got.size != size ||
      answer.payload.size() != sizeof(ConfigDescription) + size) {
    return channel_.broken("the back-end answered with another part of configuration");
  }
  std::copy_n(answer.payload.begin() + sizeof(ConfigDescription), size, out.begin());
  return size;
}

Status Frontend::write_config(std::uint32_t offset, std::span<const std::byte> data) {
  TRY(require(ProtocolFeature::kConfig));
  if (data.empty() || data.size() > kConfigMax || offset > kConfigMax - data.size()) {
    return fail(ErrorCode::kOutOfRange, "configuration space has 256 bytes", offset);
  }
  Message message(Request::kSetConfig);
  message.add(ConfigDescription{
      .offset = offset, .size = static_cast<std::uint32_t>(data.size()), .flags = kConfigWritable});
  message.payload.insert(message.payload.end(), data.begin(), data.end());
  return channel_.command(std::move(message));
}

Status Frontend::set_mtu(std::uint16_t mtu) {
  TRY(require(ProtocolFeature::kNetMtu));
  Message message(Request::kNetSetMtu);
  message.add(std::uint64_t{mtu});
  return channel_.command(std::move(message));
}

Status Frontend::send_rarp(std::span<const std::byte, 6> mac) {
  TRY(require(ProtocolFeature::kRarp));
  Message message(Request::kSendRarp);
  std::array<std::byte, 8> bytes{};
  std::copy(mac.begin(), mac.end(), bytes.begin());
  message.add(bytes);
  return channel_.command(std::move(message));
}

std::uint64_t Frontend::config_changes() {
  channel_.poll_now();
  return channel_.config_changes();
}

}  // namespace sluice::vhost
