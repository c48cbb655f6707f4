// The four kinds of ring, each with the two classes of ours and the test doubles opposite them.
#pragma once

#include <string>

#include "support/raw_driver.h"
#include "support/reference_device.h"
#include "virtio/packed_device.h"
#include "virtio/packed_driver.h"
#include "virtio/ring.h"
#include "virtio/split_device.h"
#include "virtio/split_driver.h"

namespace sluice::test {

template <virtio::Order kOrder>
struct SplitKind {
  using Device = virtio::SplitDeviceRing<kOrder>;
  using Driver = virtio::SplitDriverRing<kOrder>;
  using RawRing = RawSplitRing;
  using RawDriver = RawSplitDriver;
  using Reference = ReferenceSplitDevice;
  static constexpr bool kPacked = false;
  static constexpr bool kInOrder = kOrder == virtio::Order::kInOrder;
};

template <virtio::Order kOrder>
struct PackedKind {
  using Device = virtio::PackedDeviceRing<kOrder>;
  using Driver = virtio::PackedDriverRing<kOrder>;
  using RawRing = RawPackedRing;
  using RawDriver = RawPackedDriver;
  using Reference = ReferencePackedDevice;
  static constexpr bool kPacked = true;
  static constexpr bool kInOrder = kOrder == virtio::Order::kInOrder;
};

using SplitAny = SplitKind<virtio::Order::kAny>;
using SplitInOrder = SplitKind<virtio::Order::kInOrder>;
using PackedAny = PackedKind<virtio::Order::kAny>;
using PackedInOrder = PackedKind<virtio::Order::kInOrder>;

/// Names of the instances of a typed suite.
struct KindNames {
  template <class Kind>
  static std::string GetName(int /*index*/) {
    return std::string(Kind::kPacked ? "Packed" : "Split") + (Kind::kInOrder ? "InOrder" : "");
  }
};

}  // namespace sluice::test
