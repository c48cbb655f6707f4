// The bytes of a reverse ARP request (RFC 903).
#include "switch/announcement.h"

#include <cstring>

namespace sluice::fabric {

Announcement make_announcement(net::PackedMac mac) {
  constexpr std::array<unsigned char, 60> kFrame = {
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff,  // To everyone,
      0,    0,    0,    0,    0,    0,     // from the station.
      0x80, 0x35,                          // RARP:
      0,    1,                             // Ethernet
      0x08, 0,                             // for IPv4,
      6,    4,                             // with addresses of these sizes.
      0,    3,                             // Request reverse.
      0,    0,    0,    0,    0,    0,     // Sender: the station,
      0,    0,    0,    0,                 // which has no IP address.
      0,    0,    0,    0,    0,    0,     // Target: the same.
      0,    0,    0,    0};
  Announcement frame;
  std::memcpy(frame.data(), kFrame.data(), frame.size());
  for (const std::size_t at : {6UZ, 22UZ, 32UZ}) std::memcpy(frame.data() + at, &mac, 6);
  return frame;
}

}  // namespace sluice::fabric
