// Waiting for answers, and judging them.
#include "vhost/frontend_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace sluice::vhost {
namespace {

// Messages of the back-end's channel that are served before the main channel gets its turn again.
constexpr int kBackBurst = 16;

Error over() {
  return {ErrorCode::kClosed, "the vhost-user session is over"};
}

Status check_answer(const Message& answer, Request request, AnswerShape shape) {
  if (!answer.is(request)) {
    return fail(ErrorCode::kProtocol, "the back-end answered another request", answer.request);
  }
  if ((answer.flags & kFlagReply) == 0) {
    return fail(ErrorCode::kProtocol, "the back-end's answer does not say that it is one",
                answer.request);
  }
  if (answer.payload.size() < shape.size_min || answer.payload.size() > shape.size_max) {
    return fail(ErrorCode::kProtocol, "the back-end's answer has the wrong size", answer.request);
  }
  if (answer.fds.size() > shape.fds) {
    return fail(ErrorCode::kProtocol, "the back-end's answer has too many descriptors",
                answer.request);
  }
  return {};
}

}  // namespace

Result<UniqueFd> copy_to_send(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno("cannot duplicate a descriptor");
  return copy;
}

Result<FrontendChannel> FrontendChannel::adopt(UniqueFd socket, std::chrono::milliseconds timeout) {
  return FrontendChannel(TRY(Connection::adopt(std::move(socket))), timeout);
}

std::unexpected<Error> FrontendChannel::give_up(Error error, std::uint32_t request) {
  main_.reset();
  back_.reset();
  if (error.code == ErrorCode::kClosed) {
    error.text = "the back-end hung up instead of taking a request";
    error.detail = request;
  }
  return std::unexpected(error);
}

std::unexpected<Error> FrontendChannel::broken(const char* text, std::int64_t detail) {
  main_.reset();
  back_.reset();
  return fail(ErrorCode::kProtocol, text, detail);
}

Result<UniqueFd> FrontendChannel::duplicate_socket() const {
  if (!main_) return fail(ErrorCode::kClosed, "the session is over");
  return copy_to_send(main_->fd());
}

Status FrontendChannel::command(Message message) {
  if (!main_) return std::unexpected(over());
  const auto deadline = Clock::now() + timeout_;
  const auto request = static_cast<Request>(message.request);
  if (reply_ack_) message.flags |= kFlagNeedReply;
  if (const Status sent = transmit(std::move(message), deadline); !sent) {
    return give_up(sent.error(), static_cast<std::uint32_t>(request));
  }
  if (!reply_ack_) {
    const Status asked = transmit(Message(Request::kGetFeatures), deadline);
    if (!asked) return give_up(asked.error(), static_cast<std::uint32_t>(request));
  }
  const Request answered = reply_ack_ ? request : Request::kGetFeatures;
  const Result<Message> answer = await(answered, AnswerShape::of(sizeof(std::uint64_t)), deadline);
  if (!answer) return give_up(answer.error(), static_cast<std::uint32_t>(request));
  if (reply_ack_ && answer->get<std::uint64_t>() != 0) {
    return fail(ErrorCode::kPermission, "the back-end refused a request",
                static_cast<std::int64_t>(request));
  }
  return {};
}

Result<Message> FrontendChannel::ask(Message message, AnswerShape shape) {
  if (!main_) return std::unexpected(over());
  const auto deadline = Clock::now() + timeout_;
  const auto request = static_cast<Request>(message.request);
  const Status sent = transmit(std::move(message), deadline);
  if (!sent) return give_up(sent.error(), static_cast<std::uint32_t>(request));
  Result<Message> answer = await(request, shape, deadline);
  if (!answer) return give_up(answer.error(), static_cast<std::uint32_t>(request));
  return answer;
}

Result<std::uint64_t> FrontendChannel::ask_number(Request request) {
  return TRY(ask(Message(request), AnswerShape::of(sizeof(std::uint64_t)))).get<std::uint64_t>();
}

Result<UniqueFd> FrontendChannel::open_back_channel() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail_errno("cannot make the back-end's channel");
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  back_ = TRY(Connection::adopt(std::move(ours)));
  return theirs;
}

// Sends all of it: a back-end that does not read may stop us until the deadline, not longer.
Status FrontendChannel::transmit(Message message, Clock::time_point deadline) {
  // Whatever lies there now answers no question of ours.
  if (const auto stray = TRY(main_->receive())) {
    return fail(ErrorCode::kProtocol, "the back-end answered without being asked", stray->request);
  }
  TRY(main_->send(std::move(message)));
  while (main_->unsent()) {
    TRY(wait(deadline));
    TRY(main_->flush());
  }
  return {};
}

Result<Message> FrontendChannel::await(Request request, AnswerShape shape,
                                       Clock::time_point deadline) {
  for (;;) {
    if (auto answer = TRY(main_->receive())) {
      TRY(check_answer(*answer, request, shape));
      return std::move(*answer);
    }
    TRY(wait(deadline));
  }
}

// Waits until something can go on, and serves the back-end's channel: a back-end may wait for an
// answer there before it answers us.
Status FrontendChannel::wait(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (left <= 0) return fail(ErrorCode::kTimeout, "the back-end did not answer in time");
  std::array<pollfd, 2> items{};
  items[0] = {.fd = main_->fd(), .events = POLLIN, .revents = 0};
  if (main_->unsent()) items[0].events |= POLLOUT;
  items[1] = {.fd = back_ ? back_->fd() : -1, .events = POLLIN, .revents = 0};
  if (back_ && back_->unsent()) items[1].events |= POLLOUT;
  const int milliseconds = static_cast<int>(std::min<decltype(left)>(left, 60'000));
  if (::poll(items.data(), items.size(), milliseconds) < 0 && errno != EINTR) {
    return fail_errno("cannot wait for the back-end");
  }
  if (items[1].revents != 0) serve_back_channel();
  return {};
}

void FrontendChannel::serve_back_channel() {
  for (int i = 0; back_ && i < kBackBurst; ++i) {
    Result<std::optional<Message>> message = back_->receive();
    if (message && !*message) {
      if (!back_->flush()) back_.reset();
      return;
    }
    // A channel that breaks is of no more use; the main one decides over the session.
    if (!message || !answer_back_channel(**message)) back_.reset();
  }
}

Status FrontendChannel::answer_back_channel(const Message& message) {
  const bool known = message.is(BackendRequest::kConfigChangeMsg) && message.payload.empty();
  if (known) ++config_changes_;
  if ((message.flags & kFlagNeedReply) == 0) return {};
  Message answer;
  answer.request = message.request;
  answer.flags |= kFlagReply;
  answer.add(std::uint64_t{known ? 0U : 1U});
  return back_->send(std::move(answer));
}

bool FrontendChannel::poll_now() {
  if (!main_) return false;
  serve_back_channel();
  const Result<std::optional<Message>> message = main_->receive();
  if (message && !*message) return true;
  main_.reset();
  back_.reset();
  return false;
}

}  // namespace sluice::vhost
