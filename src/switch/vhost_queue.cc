// A broken ring of a vhost-user port.
#include "switch/vhost_queue.h"

namespace sluice::fabric {

void VhostQueueBase::mark_broken(const Error& error) {
  if (note_broken(error) && start_.error != nullptr) start_.error->notify();
}

}  // namespace sluice::fabric
