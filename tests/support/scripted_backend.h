// ScriptedBackend: a vhost-user back-end in a thread, made of raw bytes, that behaves unless told
// otherwise. It shares no code with the product's two ends, so it does not share their mistakes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace sluice::test {

class ScriptedBackend {
 public:
  struct Request {
    std::uint32_t id = 0;
    std::uint32_t flags = 0;
    std::vector<std::byte> payload;
    std::vector<UniqueFd> fds;

    [[nodiscard]] bool needs_reply() const { return (flags & 8) != 0; }
    template <class T>
    [[nodiscard]] T at(std::size_t offset) const {
      T value{};
      if (offset + sizeof value <= payload.size()) {
        std::memcpy(&value, payload.data() + offset, sizeof value);
      }
      return value;
    }
  };
  /// One line of the log: what came, without its descriptors.
  struct Entry {
    std::uint32_t id;
    std::uint32_t flags;
    std::vector<std::byte> payload;
    std::size_t fds;
  };
  /// Looks at a request before the default behaviour does. True: it was handled here.
  using Hook = std::function<bool(ScriptedBackend&, Request&)>;

  // What it offers. Set before the front-end speaks.
  std::uint64_t features = 0;
  std::uint64_t protocol_features = 0;
  std::uint64_t queue_num = 4;
  std::uint64_t slots = 32;
  std::vector<std::byte> config;
  std::uint64_t ack = 0;            // Answer to need_reply.
  std::uint8_t status_mask = 0xff;  // Status bits that can be set.

  explicit ScriptedBackend(Hook hook = {});
  ~ScriptedBackend();
  ScriptedBackend(const ScriptedBackend&) = delete;
  ScriptedBackend& operator=(const ScriptedBackend&) = delete;

  /// The front-end's end; starts the thread. Call once.
  [[nodiscard]] UniqueFd start();
  /// The same on a socket that was accepted or connected elsewhere.
  void start_on(UniqueFd socket);
  /// Hangs up and waits for the thread.
  void stop();

  [[nodiscard]] std::vector<Entry> log() const;
  [[nodiscard]] std::vector<std::uint32_t> ids() const;

  // For hooks: they run in the thread.
  void send(std::uint32_t id, std::uint32_t flags, std::span<const std::byte> payload,
            std::span<const int> fds = {});
  void send_u64(std::uint32_t id, std::uint64_t value, std::uint32_t flags = 5);
  void send_raw(std::span<const std::byte> bytes, std::span<const int> fds = {});
  /// Both directions end. The loop ends after the hook.
  void hang_up();
  /// The end of the back-end channel that the front-end gave, or -1.
  [[nodiscard]] int channel() const { return channel_.get(); }

 private:
  void run();
  [[nodiscard]] std::optional<Request> next();
  void answer(Request& request);
  void answer_query(const Request& request);

  Hook hook_;
  UniqueFd socket_;
  UniqueFd channel_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<Entry> log_;
  std::map<std::uint32_t, std::uint32_t> bases_;
  std::uint8_t status_ = 0;
};

/// The bytes of a value.
template <class T>
[[nodiscard]] std::vector<std::byte> bytes_of(const T& value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

}  // namespace sluice::test
