// Work that may take long, done where nobody waits for it.
#pragma once

#include <functional>

namespace sluice {

/// Runs `work` on a thread of its own that nobody joins; the end of the process is its end too.
/// False if no thread could be started: then nothing was done.
[[nodiscard]] bool run_elsewhere(std::function<void()> work);

}  // namespace sluice
