// FrontendChannel: requests to a back-end one at a time, each with its outcome and a deadline; and
// the back-end's own channel, which is served meanwhile.
//
// With REPLY_ACK the outcome of a command is its acknowledgement. Without, a harmless question
// (GET_FEATURES) follows each command: its answer says that the back-end is still there, hence
// took the command. A back-end that hangs up instead has refused it.
//
// After any error but a refusal the socket is closed: an answer that comes late can never be taken
// for the answer to something else.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/unique_fd.h"
#include "vhost/connection.h"
#include "vhost/protocol.h"

namespace sluice::vhost {

/// What an answer must look like.
struct AnswerShape {
  std::size_t size_min = 0;  // Of the payload, bytes.
  std::size_t size_max = 0;
  std::size_t fds = 0;  // At most.

  [[nodiscard]] static constexpr AnswerShape of(std::size_t size, std::size_t fds = 0) {
    return {.size_min = size, .size_max = size, .fds = fds};
  }
};

/// A second descriptor of the same file. A message owns its descriptors and closes them once sent;
/// what is sent here is still ours.
[[nodiscard]] Result<UniqueFd> copy_to_send(int fd);

class FrontendChannel {
 public:
  [[nodiscard]] static Result<FrontendChannel> adopt(UniqueFd socket,
                                                     std::chrono::milliseconds timeout);

  /// Sends a command and waits until the back-end took it.
  /// Errors: kPermission if it refused, with the request's number as `detail`.
  Status command(Message message);
  /// Sends a question and waits for the answer, which has the right number, flags and shape.
  [[nodiscard]] Result<Message> ask(Message message, AnswerShape shape);
  /// A question whose answer is one integer.
  [[nodiscard]] Result<std::uint64_t> ask_number(Request request);

  /// Ends the session because of what an answer said.
  [[nodiscard]] std::unexpected<Error> broken(const char* text, std::int64_t detail = 0);

  /// Errors: kClosed if the session is over.
  [[nodiscard]] Result<UniqueFd> duplicate_socket() const;

  void use_reply_ack(bool on) { reply_ack_ = on; }
  /// Makes the back-end's channel. Returns the end to send to it.
  [[nodiscard]] Result<UniqueFd> open_back_channel();

  /// Serves the back-end's channel and notices a hang-up, without waiting. False: it is over.
  bool poll_now();
  [[nodiscard]] std::uint64_t config_changes() const { return config_changes_; }

 private:
  using Clock = std::chrono::steady_clock;

  FrontendChannel(Connection main, std::chrono::milliseconds timeout)
      : main_(std::move(main)), timeout_(timeout) {}
  Status transmit(Message message, Clock::time_point deadline);
  [[nodiscard]] Result<Message> await(Request request, AnswerShape shape,
                                      Clock::time_point deadline);
  Status wait(Clock::time_point deadline);
  void serve_back_channel();
  Status answer_back_channel(const Message& message);
  /// Closes everything: the session cannot go on.
  [[nodiscard]] std::unexpected<Error> give_up(Error error, std::uint32_t request);

  std::optional<Connection> main_;  // Empty once the session is over.
  std::optional<Connection> back_;
  std::chrono::milliseconds timeout_;
  bool reply_ack_ = false;
  std::uint64_t config_changes_ = 0;
};

}  // namespace sluice::vhost
