// Backend: the vhost-user back-end as a state machine. A message goes in, an answer may come out.
//
// It knows no main socket: whoever owns it moves messages (vhost/server.h, tests, the fuzzer).
// Each message is checked against its row of vhost/messages.h before its handler sees it; a message
// that is refused changes nothing. Handlers return the answer's payload, empty for a plain
// acknowledgement.
//
// Threads: the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "net/transport.h"
#include "vhost/backend_channel.h"
#include "vhost/connection.h"
#include "vhost/memory_table.h"
#include "vhost/messages.h"
#include "vhost/protocol.h"
#include "vhost/ring_records.h"
#include "vhost/session_view.h"
#include "vhost/vring.h"
#include "virtio/features.h"

namespace sluice::vhost {

/// Protocol features that we offer: all that we implement.
[[nodiscard]] std::uint64_t offered_protocol_features();

class Backend {
 public:
  /// Begins a session. `records` may be null.
  /// Requires: `device` outlives this, and serves no other.
  Backend(net::Device& device, std::shared_ptr<RingRecords> records);
  /// Ends it: all queues are stopped, the device is reset.
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// Handles one message. Nothing: it asks for no answer. Errors: the connection must be closed.
  [[nodiscard]] Result<std::optional<Message>> handle(Message message);

  /// See Session::config_changed().
  void config_changed();

  /// The back-end channel, if the front-end gave one. It changes with SET_BACKEND_REQ_FD.
  [[nodiscard]] const std::shared_ptr<BackendChannel>& channel() const { return channel_; }
  [[nodiscard]] const RingSet& rings() const { return rings_; }
  [[nodiscard]] SessionView view() const;
  [[nodiscard]] bool memory_shrunk() const;

 private:
  using Answer = Result<Message>;
  using Handler = Answer (Backend::*)(Message&);
  struct Handlers;  // The handler of each row that is not refused.

  [[nodiscard]] Status process(const MessageRow& row, Message& message, Message& answer);
  [[nodiscard]] std::optional<Message> reply_to(const MessageRow* row, const Message& message,
                                                const Status& outcome, Message answer) const;
  void note_refusal(const MessageRow* row, const Error& error);
  [[nodiscard]] bool negotiated(ProtocolFeature feature) const;
  [[nodiscard]] Result<std::size_t> ring_of(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t offered_features() const;
  void reset_device();
  void tell_config_changed();
  void refresh_inband_targets();
  Answer use_memory(Result<MemoryPointer> memory);
  [[nodiscard]] Result<std::shared_ptr<net::Notifier>> target(Message& message, BackendRequest kind,
                                                              std::size_t ring) const;
  [[nodiscard]] std::shared_ptr<net::Notifier> inband_target(BackendRequest kind,
                                                             std::size_t ring) const;

  // Session and features (backend.cc).
  Answer get_features(Message& message);
  Answer set_features(Message& message);
  Answer set_owner(Message& message);
  Answer reset_owner(Message& message);
  Answer get_protocol_features(Message& message);
  Answer set_protocol_features(Message& message);
  Answer get_queue_num(Message& message);
  Answer handle_reset_device(Message& message);
  Answer set_status(Message& message);
  Answer get_status(Message& message);
  Answer set_backend_req_fd(Message& message);
  // The device (backend_device.cc).
  Answer get_config(Message& message);
  Answer set_config(Message& message);
  Answer net_set_mtu(Message& message);
  Answer send_rarp(Message& message);
  // Memory (backend_memory.cc).
  Answer set_mem_table(Message& message);
  Answer get_max_mem_slots(Message& message);
  Answer add_mem_reg(Message& message);
  Answer rem_mem_reg(Message& message);
  Answer set_log_base(Message& message);
  Answer get_inflight_fd(Message& message);
  Answer set_inflight_fd(Message& message);
  // Rings (backend_rings.cc).
  Answer set_vring_num(Message& message);
  Answer set_vring_addr(Message& message);
  Answer set_vring_base(Message& message);
  Answer get_vring_base(Message& message);
  Answer set_vring_kick(Message& message);
  Answer set_vring_call(Message& message);
  Answer set_vring_err(Message& message);
  Answer set_vring_enable(Message& message);
  Answer vring_kick(Message& message);

  net::Device& device_;
  RingSet rings_;
  std::uint64_t features_ = 0;  // As SET_FEATURES gave them.
  std::uint64_t protocol_features_ = 0;
  std::optional<std::uint8_t> status_;  // None: the front-end keeps the status to itself.
  std::shared_ptr<const memory::DirtyLog> log_;
  std::vector<MemoryRegion> removed_;  // By REM_MEM_REG, of late.
  std::shared_ptr<BackendChannel> channel_;
  bool config_change_waits_ = false;
  std::optional<Error> fatal_;  // Set by a handler: the connection must end.

  std::uint64_t messages_ = 0;
  std::uint64_t refused_ = 0;
  std::optional<Error> last_error_;
  std::string_view last_error_request_;
};

}  // namespace sluice::vhost
