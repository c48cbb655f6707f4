// Frames for fake ports.
#include "support/fake_port.h"

namespace sluice::test {

Frame make_frame(net::PackedMac destination, net::PackedMac source, std::uint32_t tag,
                 std::size_t size) {
  Frame frame(std::max<std::size_t>(size, packet::kEthernetHeaderSize));
  std::memcpy(frame.data(), &destination, 6);
  std::memcpy(frame.data() + 6, &source, 6);
  frame[12] = std::byte{0x88};
  frame[13] = std::byte{0xb5};
  if (size >= 18) std::memcpy(frame.data() + 14, &tag, sizeof tag);
  return frame;
}

}  // namespace sluice::test
