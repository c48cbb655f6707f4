// Waiting for an endpoint to become a connection.
#include "vhost/frontend_source.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace sluice::vhost {

Result<FrontendSource> FrontendSource::create(const Options& options) {
  // To an endpoint the socket matters, not who speaks first on it.
  EndpointOptions endpoint;
  endpoint.path = options.path;
  endpoint.client = !options.server;
  return FrontendSource(TRY(Endpoint::create(std::move(endpoint))), options.frontend);
}

Result<std::unique_ptr<Frontend>> FrontendSource::next(std::chrono::milliseconds wait) {
  using Clock = std::chrono::steady_clock;
  if (std::exchange(taken_, false)) endpoint_->session_over();
  const auto deadline = Clock::now() + wait;
  for (;;) {
    if (std::optional<UniqueFd> socket = endpoint_->on_ready()) {
      taken_ = true;
      return Frontend::adopt(std::move(*socket), options_);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      const std::optional<Error> last = endpoint_->last_error();
      return fail(ErrorCode::kTimeout, "no vhost-user back-end came in time",
                  last ? last->detail : 0);
    }
    pollfd item{.fd = endpoint_->fd(), .events = POLLIN, .revents = 0};
    const int milliseconds = static_cast<int>(std::min<decltype(left)>(left, 60'000));
    if (::poll(&item, 1, milliseconds) < 0 && errno != EINTR) {
      return fail_errno("cannot wait for a back-end");
    }
  }
}

}  // namespace sluice::vhost
