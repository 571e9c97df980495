// ParseGpuRequest and the amounts: KAI's annotations to exact bytes, and every refusal by name.
#include "gpu/api/request.h"

#include <gtest/gtest.h>

namespace sublet::gpu {
namespace {

using Annotations = std::map<std::string, std::string, std::less<>>;

GpuRequest Parsed(const Annotations& annotations) {
  auto result = ParseGpuRequest(annotations);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message());
  EXPECT_TRUE(result.ok() && result->has_value());
  return result.ok() && result->has_value() ? **result : GpuRequest{};
}

std::string ErrorField(const Annotations& annotations) {
  auto result = ParseGpuRequest(annotations);
  if (result.ok()) {
    return "accepted";
  }
  EXPECT_EQ(result.error().reason(), Reason::kInvalid);
  return result.error().details().causes.at(0).field;
}

TEST(GpuRequest, APodWithoutGpuAnnotationsAsksForNothing) {
  auto result = ParseGpuRequest({{"app", "x"}});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->has_value());
}

TEST(GpuRequest, FractionIsKeptExactly) {
  const GpuRequest request = Parsed({{"gpu-fraction", "0.25"}});
  EXPECT_EQ(request.fraction_nano, 250'000'000);
  const auto amounts = AmountsOn(request, "GPU-a", 143'771 * kBytesPerMebibyte);
  ASSERT_TRUE(amounts.ok());
  EXPECT_EQ(amounts->memory_bytes, 143'771 * kBytesPerMebibyte / 4);
  EXPECT_EQ(amounts->share_milli, 250);
}

// KAI rounds 2000 MiB on an H200 up to 2875 MiB (1/100 portions).
TEST(GpuRequest, MemoryInMebibytesIsNotRoundedToAPortionOfTheDevice) {
  const GpuRequest request = Parsed({{"gpu-memory", "2000"}});
  const auto amounts = AmountsOn(request, "GPU-a", 143'771 * kBytesPerMebibyte);
  ASSERT_TRUE(amounts.ok());
  EXPECT_EQ(amounts->memory_bytes, 2000 * kBytesPerMebibyte);
  EXPECT_EQ(amounts->share_milli, 13);
}

TEST(GpuRequest, NFractionsNeverAddUpToMoreThanTheDevice) {
  for (std::int64_t n = 2; n <= 100; ++n) {
    const std::string fraction = std::to_string(1'000'000'000 / n);
    const std::string text = "0." + std::string(9 - fraction.size(), '0') + fraction;
    const auto amounts = AmountsOn(Parsed({{"gpu-fraction", text}}), "GPU-a", 80'999'999'999);
    ASSERT_TRUE(amounts.ok());
    EXPECT_LE(amounts->memory_bytes * n, 80'999'999'999);
    EXPECT_LE(amounts->share_milli * n, 1000);
  }
}

TEST(GpuRequest, ComputeAnnotationsStandBesideTheFraction) {
  const GpuRequest request = Parsed({{"gpu-fraction", "0.5"},
                                     {"gpu-fraction-num-devices", "2"},
                                     {"gpu-fraction-container-name", "worker"},
                                     {"gpu.sublet.dev/compute-weight", "30"},
                                     {"gpu.sublet.dev/compute-request", "12.5"},
                                     {"gpu.sublet.dev/compute-limit", "80"},
                                     {"gpu.sublet.dev/compute-mode", "strict"}});
  EXPECT_EQ(request.num_devices, 2);
  EXPECT_EQ(request.container_name, "worker");
  EXPECT_EQ(request.weight, 30);
  EXPECT_EQ(request.request_milli, 125);
  EXPECT_EQ(request.limit_milli, 800);
  EXPECT_EQ(request.mode, ComputeMode::kStrict);
  EXPECT_EQ(AmountsOn(request, "GPU-a", 1000)->share_milli, 125);
}

// Row 36 of the hostile cases: each of these must name the annotation.
TEST(GpuRequest, HostileNumbersAreRefusedByName) {
  for (const char* text :
       {"-0.5", "NaN", "1e308", "0.5 ", " 0.5", "", "0", "1", "1.5", "0.", ".5", "+0.5", "0x1p-1",
        "inf", "0.1234567891", "0,5", "99999999999999999999"}) {
    EXPECT_EQ(ErrorField({{"gpu-fraction", text}}), "metadata.annotations[gpu-fraction]") << text;
  }
  for (const char* text : {"-1", "0", "1.5", "1e3", "4Gi", "", "99999999999"}) {
    EXPECT_EQ(ErrorField({{"gpu-memory", text}}), "metadata.annotations[gpu-memory]") << text;
  }
  EXPECT_EQ(ErrorField({{"gpu-fraction", "0.5"}, {"gpu-fraction-num-devices", "17"}}),
            "metadata.annotations[gpu-fraction-num-devices]");
  EXPECT_EQ(ErrorField({{"gpu-fraction", "0.5"}, {"gpu-fraction-container-name", "../x"}}),
            "metadata.annotations[gpu-fraction-container-name]");
  EXPECT_EQ(ErrorField({{"gpu-fraction", "0.5"}, {"gpu-memory", "5"}}),
            "metadata.annotations[gpu-memory]");
  EXPECT_EQ(ErrorField({{"gpu-fraction-num-devices", "2"}}),
            "metadata.annotations[gpu-fraction-num-devices]");
  EXPECT_EQ(ErrorField({{"gpu-fraction", "0.5"},
                        {"gpu.sublet.dev/compute-request", "50"},
                        {"gpu.sublet.dev/compute-limit", "40"}}),
            "metadata.annotations[gpu.sublet.dev/compute-request]");
  EXPECT_EQ(ErrorField({{"gpu-fraction", "0.5"}, {"gpu.sublet.dev/compute-mode", "fast"}}),
            "metadata.annotations[gpu.sublet.dev/compute-mode]");
}

TEST(GpuRequest, MoreThanTheDeviceHasIsRefused) {
  const auto amounts =
      AmountsOn(Parsed({{"gpu-memory", "2000"}}), "GPU-a", 1000 * kBytesPerMebibyte);
  ASSERT_FALSE(amounts.ok());
  EXPECT_EQ(amounts.error().reason(), Reason::kInvalid);
}

TEST(GpuSliceSpec, ValidationNamesTheFields) {
  GpuSliceSpec spec{
      .node = "n1", .pod = {"p", "u"}, .devices = {{"GPU-a", 5, 5}, {"GPU-a", 0, 1001}}};
  const auto result = ValidateSliceSpec("u", spec);
  ASSERT_FALSE(result.ok());
  const auto& causes = result.error().details().causes;
  ASSERT_EQ(causes.size(), 3U);
  EXPECT_EQ(causes[0].field, "spec.devices[1].uuid");
  EXPECT_EQ(causes[1].field, "spec.devices[1].memoryBytes");
  EXPECT_EQ(causes[2].field, "spec.devices[1].shareMilli");
  spec.devices.pop_back();
  EXPECT_TRUE(ValidateSliceSpec("u", spec).ok());
}

}  // namespace
}  // namespace sublet::gpu
