// Descriptors that came from a peer: what they are, and how to be rid of one.
#pragma once

#include <utility>

#include "base/unique_fd.h"

namespace sluice {

/// True for an eventfd(2).
[[nodiscard]] bool is_eventfd(int fd);

/// True for memfd, tmpfs and hugetlbfs: only files in memory have seals. The question never waits.
[[nodiscard]] bool lives_in_memory(int fd);

/// True if neither looking at this file nor closing it can make us wait: event counters, files in
/// memory, pipes. Others are served by someone, maybe by the peer itself (FUSE), who need not
/// answer; of those nothing is asked, not even fstat(2). The close of a socket waits if it lingers
/// (SO_LINGER), and that of a local one closes what lies in it.
[[nodiscard]] bool is_harmless(int fd);

/// True for a Unix socket. One from a peer is not harmless to close, but of use.
[[nodiscard]] bool is_local_socket(int fd);

/// Closes a descriptor that is not harmless, by a thread of its own: close(2) may wait for its
/// server for ever.
void close_foreign(UniqueFd fd);

/// A connected local socket whose other end is a peer's. It goes without a wait: descriptors that
/// the peer sent and nobody read are closed with it, and of those each may be one that lingers.
class PeerSocket {
 public:
  PeerSocket() = default;
  PeerSocket(UniqueFd fd) : fd_(std::move(fd)) {}  // Implicit: it is the same, held with care.
  PeerSocket(PeerSocket&&) noexcept = default;
  PeerSocket& operator=(PeerSocket&& other) noexcept;
  ~PeerSocket() { close(); }

  [[nodiscard]] int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }

 private:
  void close();
  UniqueFd fd_;
};

}  // namespace sluice
