// The two address spaces a peer names memory in. Neither can be dereferenced.
#pragma once

#include <cstdint>

#include "base/strong.h"

namespace sluice::memory {

/// Guest-physical address, as descriptors hold it.
using GuestAddress = Strong<struct GuestAddressTag, std::uint64_t>;
/// Front-end virtual address, as SET_VRING_ADDR holds it. Never comparable with the first.
using UserAddress = Strong<struct UserAddressTag, std::uint64_t>;

}  // namespace sluice::memory
