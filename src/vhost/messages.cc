// Checks of a message against its row.
#include "vhost/messages.h"

namespace sluice::vhost {
namespace {

bool fds_are_right(FdRule rule, const Message& message) {
  const std::size_t count = message.fds.size();
  switch (rule) {
    case FdRule::kNone: return count == 0;
    case FdRule::kOne: return count == 1;
    case FdRule::kAtMostOne: return count <= 1;
    case FdRule::kRing: return count == ((message.get<std::uint64_t>() & kVringNoFd) != 0 ? 0 : 1);
    case FdRule::kTable: return count == message.get<MemoryTable>().num_regions;
  }
  return false;
}

}  // namespace

Status check_message(const MessageRow& row, const Message& message,
                     std::uint64_t protocol_features) {
  if (row.support == Support::kRefused) {
    return fail(ErrorCode::kUnsupported, "the message is not supported", message.request);
  }
  if ((message.flags & kFlagReply) != 0) {
    return fail(ErrorCode::kProtocol, "a front-end sent a reply", message.request);
  }
  if (message.payload.size() < row.size_min || message.payload.size() > row.size_max) {
    return fail(ErrorCode::kProtocol, "the message has the wrong size",
                static_cast<std::int64_t>(message.payload.size()));
  }
  if (!fds_are_right(row.fds, message)) {
    return fail(ErrorCode::kProtocol, "the message has the wrong number of descriptors",
                static_cast<std::int64_t>(message.fds.size()));
  }
  if (row.needs && !has(protocol_features, *row.needs)) {
    return fail(ErrorCode::kNotNegotiated, "the message needs a feature that was not negotiated",
                message.request);
  }
  return {};
}

}  // namespace sluice::vhost
