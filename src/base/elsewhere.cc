// Detached threads.
#include "base/elsewhere.h"

#include <system_error>
#include <thread>
#include <utility>

namespace sluice {

bool run_elsewhere(std::function<void()> work) {
  try {
    std::thread(std::move(work)).detach();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace sluice
