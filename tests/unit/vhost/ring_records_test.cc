// The file of used positions: what makes a record count, and what the file refuses to be.
#include "vhost/ring_records.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "support/temporary_directory.h"
#include "unit/memory/leaks.h"

namespace sluice::test {
namespace {

using vhost::RingFingerprint;
using vhost::RingRecords;

RingFingerprint fingerprint() {
  return {.descriptors = 0x1000,
          .driver_area = 0x2000,
          .device_area = 0x3000,
          .file_device = 1,
          .file_inode = 2,
          .file_offset = 3,
          .region_size = 4,
          .size = 256,
          .features = 1};
}

class RingRecordsTest : public testing::Test {
 protected:
  std::shared_ptr<RingRecords> open(std::uint16_t rings = 3) {
    auto records = RingRecords::open(path_, rings);
    EXPECT_TRUE(records.has_value()) << records.error().text;
    return records ? *records : nullptr;
  }
  ErrorCode failure(std::uint16_t rings = 3) {
    const auto records = RingRecords::open(path_, rings);
    EXPECT_FALSE(records.has_value());
    return records ? ErrorCode::kParse : records.error().code;
  }
  TemporaryDirectory directory_;
  std::string path_ = directory_ / "port.rings";
};

TEST_F(RingRecordsTest, AFreshFileHasNoLiveRecord) {
  const auto records = open();
  for (std::uint16_t ring = 0; ring < 3; ++ring) {
    EXPECT_EQ(records->table().find(ring, fingerprint()), nullptr);
    EXPECT_EQ(records->table().find(ring, RingFingerprint()), nullptr);
  }
}

TEST_F(RingRecordsTest, ARecordOutlivesItsProcess) {
  {
    const auto records = open();
    virtio::UsedPositionRecord* record = records->table().begin(1, fingerprint(), 0x8005);
    record->begin(0x8005);
    record->entry(0, {.len = 60, .id = 7, .slots = 0});
    record->commit(1, 0x8006);
  }
  const auto records = open();
  const virtio::UsedPositionRecord* record = records->table().find(1, fingerprint());
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->old_used, 0x8005);
  EXPECT_EQ(record->new_used, 0x8006);
  EXPECT_EQ(record->count, 1U);
  EXPECT_EQ(record->log[0].id, 7);
  EXPECT_EQ(records->table().find(0, fingerprint()), nullptr);
}

TEST_F(RingRecordsTest, AnOrderlyStopEndsIt) {
  const auto records = open();
  ASSERT_NE(records->table().begin(1, fingerprint(), 0x8005), nullptr);
  records->table().end(1);
  EXPECT_EQ(records->table().find(1, fingerprint()), nullptr);
}

TEST_F(RingRecordsTest, EveryPartOfTheFingerprintCounts) {
  const auto records = open();
  ASSERT_NE(records->table().begin(0, fingerprint(), 0x8000), nullptr);
  EXPECT_NE(records->table().find(0, fingerprint()), nullptr);
  for (int field = 0; field < 9; ++field) {
    RingFingerprint other = fingerprint();
    switch (field) {
      case 0: ++other.descriptors; break;
      case 1: ++other.driver_area; break;
      case 2: ++other.device_area; break;
      case 3: ++other.file_device; break;
      case 4: ++other.file_inode; break;
      case 5: ++other.file_offset; break;
      case 6: ++other.region_size; break;
      case 7: ++other.size; break;
      case 8: ++other.features; break;
    }
    EXPECT_EQ(records->table().find(0, other), nullptr) << field;
  }
}

TEST_F(RingRecordsTest, AFileForAnotherNumberOfRingsStartsAnew) {
  ASSERT_NE(open(3)->table().begin(0, fingerprint(), 0x8000), nullptr);
  EXPECT_EQ(open(5)->table().find(0, fingerprint()), nullptr);
  EXPECT_EQ(open(3)->table().find(0, fingerprint()), nullptr);
}

TEST_F(RingRecordsTest, RubbishOfTheRightSizeStartsAnew) {
  open();
  const auto size = std::filesystem::file_size(path_);
  std::string magic(8, '\0');
  std::ifstream(path_, std::ios::binary).read(magic.data(), 8);
  for (const char fill : {'\0', '\x5a', '\xff'}) {
    // All zeros: we were killed while we made it.
    const std::string start = fill == '\0' ? std::string(8, fill) : magic;
    std::ofstream(path_, std::ios::binary) << start + std::string(size - 8, fill);
    const auto records = open();
    for (std::uint16_t ring = 0; ring < 3; ++ring) {
      EXPECT_EQ(records->table().find(ring, fingerprint()), nullptr);
    }
  }
}

// A file of ours that somebody put there, by a link or by mistake, keeps what it holds.
TEST_F(RingRecordsTest, AFileThatHoldsSomethingElseIsLeftAlone) {
  std::ofstream(path_) << "a letter to my mother";
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(std::filesystem::file_size(path_), 21U);
}

TEST_F(RingRecordsTest, AFileWithAnotherNameIsLeftAlone) {
  open();
  std::filesystem::create_hard_link(path_, directory_ / "other");
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
}

TEST_F(RingRecordsTest, OneProcessAtATime) {
  const auto records = open();
  EXPECT_EQ(failure(), ErrorCode::kExists);
}

TEST_F(RingRecordsTest, IsForItsOwnerOnly) {
  const auto records = open();
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(RingRecordsTest, FollowsNoLinkAndTakesNothingButAPlainFile) {
  ASSERT_EQ(::symlink("elsewhere", path_.c_str()), 0);
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "elsewhere"));
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
  ASSERT_EQ(::rmdir(path_.c_str()), 0);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(failure(), ErrorCode::kInvalidArgument);
}

TEST_F(RingRecordsTest, BelongsToUs) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  open();
  ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(failure(), ErrorCode::kPermission);
}

TEST_F(RingRecordsTest, AMissingDirectoryIsNamed) {
  path_ = directory_ / "not/there/port.rings";
  EXPECT_EQ(failure(), ErrorCode::kNotFound);
}

TEST_F(RingRecordsTest, LeavesNothingOpen) {
  const LeakCheck leaks;
  open();
}

}  // namespace
}  // namespace sluice::test
