// FrontendSource: gets front-ends, by connecting or by listening, as often as it is asked. For
// reconnecting: a back-end that is gone is followed by the next one.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/error.h"
#include "vhost/frontend.h"
#include "vhost/server.h"

namespace sluice::vhost {

class FrontendSource {
 public:
  struct Options {
    std::string path;     // Of the Unix socket.
    bool server = false;  // We listen, the back-end connects.
    FrontendOptions frontend;
  };

  /// Server: listens at once. Errors: those of Endpoint::create.
  [[nodiscard]] static Result<FrontendSource> create(const Options& options);

  /// Waits up to `wait` for a back-end. The one before must be gone or done with.
  /// Errors: kTimeout if none came; `detail` is the errno of the last attempt, if there was one.
  [[nodiscard]] Result<std::unique_ptr<Frontend>> next(std::chrono::milliseconds wait);

 private:
  FrontendSource(std::unique_ptr<Endpoint> endpoint, const FrontendOptions& options)
      : endpoint_(std::move(endpoint)), options_(options) {}

  std::unique_ptr<Endpoint> endpoint_;
  FrontendOptions options_;
  bool taken_ = false;  // The endpoint waits for session_over().
};

}  // namespace sluice::vhost
