// Who a process is: cgroups of all layouts, the mounted slice, UUIDs, the admin socket's first
// line.
#include "gpu/gpud/identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "gpu/gpud/admin_server.h"
#include "gpu/gpud/pages.h"

namespace sublet::gpu {
namespace {

TEST(Identity, TheLongestCgroupNamesTheContainer) {
  EXPECT_EQ(LongestCgroup("0::/kubepods/pod1/c1\n"), "/kubepods/pod1/c1");
  EXPECT_EQ(LongestCgroup("9:name=systemd:/\n4:memory:/docker/abc\n0::/\n"), "/docker/abc");
  EXPECT_EQ(LongestCgroup(""), "");
  EXPECT_EQ(LongestCgroup("nonsense"), "");
}

TEST(Identity, ASiblingIsNotWithin) {
  EXPECT_TRUE(IsWithinCgroup("/a/b", "/a/b"));
  EXPECT_TRUE(IsWithinCgroup("/a/b/c", "/a/b"));
  EXPECT_FALSE(IsWithinCgroup("/a/bc", "/a/b"));
  EXPECT_FALSE(IsWithinCgroup("/a", "/a/b"));
}

TEST(Identity, TheMountedFolderNamesTheSlice) {
  EXPECT_EQ(
      MountedSliceIn("36 35 0:25 / / rw - overlay o rw\n"
                     "90 36 0:26 /sublet/gpud/slices/u-1 /run/sublet/gpu ro - tmpfs tmpfs rw\n"),
      "u-1");
  EXPECT_EQ(MountedSliceIn("90 36 0:26 /x /run/sublet/gpu2 ro - tmpfs tmpfs rw\n"), "");
  EXPECT_EQ(MountedSlice(getpid()), "");
}

TEST(Identity, AProcessIsItsPidAndItsStart) {
  const std::uint64_t start = ProcessStartTime(getpid());
  EXPECT_GT(start, 0U);
  const int good = OpenPidfd(getpid(), start);
  EXPECT_GE(good, 0);
  close(good);
  EXPECT_EQ(OpenPidfd(getpid(), start + 1), -1);
  EXPECT_EQ(ProcessStartTime(0), 0U);
}

TEST(Identity, UuidsAndRequestLinesAreRead) {
  unsigned char bytes[16];
  ASSERT_TRUE(ParseDeviceUuid("GPU-00112233-4455-6677-8899-aabbccddeeff", bytes));
  EXPECT_EQ(bytes[15], 0xff);
  EXPECT_TRUE(ParseDeviceUuid("MIG-00112233-4455-6677-8899-aabbccddeeff", bytes));
  EXPECT_FALSE(ParseDeviceUuid("GPU-00112233", bytes));
  EXPECT_FALSE(ParseDeviceUuid("GPU-00112233-4455-6677-8899-aabbccddeeff0", bytes));
  EXPECT_FALSE(ParseDeviceUuid("x", bytes));
  EXPECT_EQ(AdminPath("GET /status HTTP/1.0\r\n\r\n"), "/status");
  EXPECT_EQ(AdminPath("POST /status HTTP/1.0\r\n\r\n"), "");
  EXPECT_EQ(AdminPath("GET /status"), "");
}

}  // namespace
}  // namespace sublet::gpu
