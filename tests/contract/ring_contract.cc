// Instantiates the contracts of both ring ends for every kind of ring.
#include "contract/both_ends_contract.h"
#include "contract/device_notify_contract.h"
#include "contract/device_ring_contract.h"
#include "contract/driver_ring_contract.h"
#include "support/ring_kinds.h"

namespace sluice::test {

using AllKinds = testing::Types<SplitAny, SplitInOrder, PackedAny, PackedInOrder>;
INSTANTIATE_TYPED_TEST_SUITE_P(Ring, DeviceRingContract, AllKinds, KindNames);
INSTANTIATE_TYPED_TEST_SUITE_P(Ring, DeviceNotifyContract, AllKinds, KindNames);
INSTANTIATE_TYPED_TEST_SUITE_P(Ring, DriverRingContract, AllKinds, KindNames);
INSTANTIATE_TYPED_TEST_SUITE_P(Ring, BothEndsContract, AllKinds, KindNames);

}  // namespace sluice::test
