// Descriptors that came from a peer: what they are, and how to be rid of one.
#pragma once

#include "base/unique_fd.h"

namespace sluice {

/// True for an eventfd(2).
[[nodiscard]] bool is_eventfd(int fd);

/// True for memfd, tmpfs and hugetlbfs: only files in memory have seals. The question never waits.
[[nodiscard]] bool lives_in_memory(int fd);

/// True if neither looking at this file nor closing it can make us wait: event counters, files in
/// memory, pipes, local sockets. Others are served by someone, maybe by the peer itself (FUSE), who
/// need not answer; of those nothing is asked, not even fstat(2).
[[nodiscard]] bool is_harmless(int fd);

/// Closes a descriptor that is not harmless, by a thread of its own: close(2) may wait for its
/// server for ever.
void close_foreign(UniqueFd fd);

}  // namespace sluice
