// What a switch shows of itself: ports, counters, queues, learned addresses, workers.
#include <cerrno>
#include <cstring>
#include <utility>

#include "switch/fabric_impl.h"

namespace sluice::fabric {

namespace {

std::string words_of(const Error& error) {
  std::string words;
  if (error.code != ErrorCode::kSystem) words = std::string(to_string(error.code)) + ": ";
  words += error.text;
  // With kPermission the number need not be an errno.
  const bool denied = error.code == ErrorCode::kPermission &&
                      (error.detail == EACCES || error.detail == EPERM || error.detail == EROFS);
  const bool from_system =
      denied || error.code == ErrorCode::kSystem || error.code == ErrorCode::kNoMemory;
  if (from_system && error.detail > 0) {
    words += ": ";
    words += std::strerror(static_cast<int>(error.detail));
  } else if (error.detail != 0) {
    words += " (" + std::to_string(error.detail) + ")";
  }
  return words;
}

std::string text_of(net::PackedMac mac) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < 6; ++i) {
    const auto byte = static_cast<unsigned>(mac >> (8 * i) & 0xff);
    if (i != 0) text += ':';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

net::PackedMac packed(const MacAddress& mac) {
  net::PackedMac bits = 0;
  std::memcpy(&bits, mac.data(), mac.size());
  return bits;
}

void add(PortTotals& totals, const net::DirectionCounters& counters) {
  totals.packets += counters.packets.value();
  totals.bytes += counters.bytes.value();
  totals.bursts += counters.bursts.value();
  totals.notifications += counters.notifications.value();
  for (std::size_t i = 0; i < net::kDropCauses; ++i) totals.drops[i] += counters.drops[i].value();
}

void add_refusals(PortTotals& totals, const Refusals& refusals) {
  const auto count = [&](net::DropCause cause, const std::atomic<std::uint64_t>& value) {
    totals.drops[static_cast<std::size_t>(cause)] += value.load(std::memory_order_relaxed);
  };
  count(net::DropCause::kNotReady, refusals.not_ready);
  count(net::DropCause::kQueueBusy, refusals.queue_busy);
}

std::string_view name_of(PollMode mode) {
  switch (mode) {
    case PollMode::kBusy: return "busy";
    case PollMode::kAdaptive: return "adaptive";
    case PollMode::kInterrupt: return "interrupt";
  }
  return "";
}

// The part of a port's view that only vhost-user ports have.
void describe(const VhostUserPort& port, const VhostLink& link, const VhostUserOptions& options,
              PortView& view) {
  view.path = options.path;
  view.role = options.client ? "client" : "server";
  view.state = link.state();
  if (port.mac().has_value()) view.mac = text_of(*port.mac());
  view.mtu = port.mtu();
  view.sessions = link.sessions();
  if (const auto session = link.session_view()) {
    for (const std::string_view name : virtio::names_of(session->features)) {
      view.features.emplace_back(name);
    }
    for (const std::string_view name : session->protocol_features) {
      view.protocol_features.emplace_back(name);
    }
    view.memory_bytes = session->memory_bytes;
    view.memory_regions = session->memory_regions;
    if (session->last_error.has_value()) {
      view.last_error =
          std::string(session->last_error_request) + ": " + words_of(*session->last_error);
    }
  }
  // What stopped traffic says more than a request that was refused.
  if (const auto error = link.last_error()) view.last_error = words_of(*error);
  if (link.left_in_negotiation()) {
    view.last_error = "closed during negotiation; it may ask for more than " +
                      std::to_string(options.queues) +
                      (options.queues == 1 ? " queue pair" : " queue pairs");
  }
  if (const auto& error = port.last_error()) view.last_error = words_of(*error);
}

// The same of a virtio-user port.
void describe(const VirtioUserLink& link, const VirtioUserOptions& options, PortView& view) {
  const VirtioUserLink::View shown = link.view();
  view.path = options.path;
  view.role = options.server ? "server" : "client";
  view.state = shown.state;
  if (options.mac.has_value()) view.mac = text_of(packed(*options.mac));
  view.mtu = options.mtu;
  view.speed = options.speed;
  view.sessions = shown.sessions;
  for (const std::string_view name : virtio::names_of(shown.features)) {
    view.features.emplace_back(name);
  }
  for (const std::string_view name : shown.protocol_features) {
    view.protocol_features.emplace_back(name);
  }
  view.memory_bytes = shown.memory_bytes;
  view.memory_regions = shown.memory_bytes == 0 ? 0 : 1;
  if (shown.last_error) view.last_error = words_of(*shown.last_error);
}

}  // namespace

std::vector<PortView> Fabric::ports() const {
  std::vector<PortView> views;
  for (std::size_t i = 0; i < impl_->ports.size(); ++i) {
    const Port& port = *impl_->ports[i];
    PortView view;
    view.id = PortId(static_cast<std::uint16_t>(i));
    view.name = port.name();
    view.kind = port.kind();
    view.state = impl_->state == Impl::State::kRunning ? "running" : "stopped";
    view.queue_pairs = port.queue_pairs();
    if (i < impl_->vhost_ports.size()) {
      describe(*impl_->vhost_ports[i], *impl_->links[i], impl_->options.vhost_user[i], view);
    } else if (const std::size_t d = i - impl_->vhost_ports.size();
               d < impl_->driver_links.size()) {
      describe(*impl_->driver_links[d], impl_->options.virtio_user[d], view);
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<PortStats> Fabric::stats() const {
  std::vector<PortStats> result;
  for (const auto& port : impl_->ports) {
    PortStats stats;
    stats.name = port->name();
    for (std::uint16_t q = 0; q < port->queue_pairs(); ++q) {
      add(stats.from_driver, std::as_const(*port).from_driver(q));
      add(stats.to_driver, port->to_driver(q));
    }
    add_refusals(stats.to_driver, port->refusals());
    result.push_back(std::move(stats));
  }
  return result;
}

std::vector<QueueView> Fabric::queues(const std::string& port) const {
  for (const auto& candidate : impl_->ports) {
    if (candidate->name() == port) return candidate->queues();
  }
  return {};
}

std::vector<FdbEntry> Fabric::fdb() const {
  std::vector<FdbEntry> result;
  if (impl_->table == nullptr) return result;
  for (const MacTable::Entry& entry : impl_->table->entries()) {
    FdbEntry shown;
    std::memcpy(shown.mac.data(), &entry.mac, shown.mac.size());
    shown.port = impl_->ports[entry.port]->name();
    shown.age_seconds = entry.age_seconds;
    shown.is_static = entry.is_static;
    result.push_back(std::move(shown));
  }
  return result;
}

ForwardTotals Fabric::forwarding() const {
  ForwardTotals totals;
  const auto add_counters = [&](const ForwardCounters& counters) {
    totals.forwarded += counters.forwarded.value();
    totals.offers += counters.offers.value();
    totals.flooded += counters.flooded.value();
  };
  for (const auto& worker : impl_->workers) add_counters(worker->forward_counters());
  add_counters(impl_->sender->scratch.counters);
  return totals;
}

std::vector<WorkerView> Fabric::workers() const {
  std::vector<WorkerView> views;
  for (const auto& worker : impl_->workers) {
    WorkerView view{.id = worker->options().id,
                    .core = worker->options().core,
                    .poll = std::string(name_of(worker->options().poll)),
                    .iterations = worker->counters().iterations.value(),
                    .busy_iterations = worker->counters().busy_iterations.value(),
                    .sleeps = worker->counters().sleeps.value(),
                    .queues = {}};
    for (const WorkerQueue& queue : worker->queues()) {
      view.queues.push_back(std::string(queue.port->name()) + ":" + std::to_string(queue.queue));
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace sluice::fabric
