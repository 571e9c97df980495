// Which devices a CEL selector takes.
#include "scheduler/device_selector.h"

#include <gtest/gtest.h>

namespace sublet::scheduler {
namespace {

SliceDevice Device() {
  SliceDevice device;
  device.name = "gpu-0";
  device.attributes["gpu.example.com/model"] = {DeviceAttribute::Kind::kText, "LATEST-GPU", 0};
  device.attributes["gpu.example.com/index"] = {DeviceAttribute::Kind::kNumber, "", 3};
  device.attributes["gpu.example.com/ecc"] = {DeviceAttribute::Kind::kBool, "", 1};
  device.capacity["gpu.example.com/memory"] = "80Gi";
  return device;
}

TEST(DeviceSelectorTest, ChoosesDevicesAsCelWould) {
  const std::pair<const char*, bool> cases[] = {
      {R"(device.driver == "gpu.example.com")", true},
      {R"(device.driver == 'other.example.com')", false},
      {R"(device.driver != "x" && device.attributes["gpu.example.com"].model == "LATEST-GPU")",
       true},
      {R"(device.attributes["gpu.example.com"]["index"] >= 3)", true},
      {R"(device.attributes["gpu.example.com"].index in ["3"])", false},
      {R"(device.attributes["gpu.example.com"].model in ["A", "LATEST-GPU"])", true},
      {R"(device.attributes["gpu.example.com"].ecc)", true},
      {R"(!device.attributes["gpu.example.com"].ecc)", false},
      {R"(device.attributes["gpu.example.com"].model.lowerAscii().startsWith("latest"))", true},
      {R"(device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) > 0)", true},
      {R"(device.capacity["gpu.example.com"].memory.isLessThan(quantity("40Gi")))", false},
      {R"(has(device.attributes["gpu.example.com"].serial))", false},
      // What the device does not have is no match, except where the other side decides.
      {R"(device.attributes["gpu.example.com"].serial == "1")", false},
      {R"(device.attributes["gpu.example.com"].serial == "1" || true)", true},
      {R"(!(device.attributes["gpu.example.com"].serial == "1"))", false},
  };
  for (const auto& [text, matches] : cases) {
    const auto selector = DeviceSelector::Parse(text);
    ASSERT_TRUE(selector.ok()) << text << ": " << selector.error().message();
    EXPECT_EQ((*selector)->Matches("gpu.example.com", Device()), matches) << text;
  }
  for (const char* text : {"", "device.driver ==", "device.driver == \"a", "device.name == \"x\"",
                           "true true", "device.driver.matches(\"g.*\")", "semver(\"1.0.0\")",
                           "1 +1 == 2", "[1] == [1]", "device.driver == \"a\" ? true : false"}) {
    EXPECT_FALSE(DeviceSelector::Parse(text).ok()) << text;
  }
  EXPECT_FALSE(DeviceSelector::Parse(std::string(200, '(') + "true" + std::string(200, ')')).ok());
}

}  // namespace
}  // namespace sublet::scheduler
