// Protobuf bodies of the reference encoder, with every field filled: testdata/protobuf.txt has one
// object a line, its JSON and its bytes.
#include "kube/protobuf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kube/base64.h"
#include "kube/object.h"
#include "kube/protobuf_wire.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

TEST(Protobuf, ReadsWhatTheReferenceWrites) {
  const char* source = std::getenv("SUBLET_SOURCE_DIR");
  const char* other = std::getenv("SUBLET_PROTOBUF_CASES");
  std::ifstream file(other != nullptr ? std::string(other)
                                      : std::string(source != nullptr ? source : ".") +
                                            "/kube/testdata/protobuf.txt");
  ASSERT_TRUE(file.good());
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json c = Json::parse(line);
    const std::string bytes = *DecodeBase64(c["pb"].get<std::string>());
    ASSERT_TRUE(IsProtobuf(bytes));
    auto decoded = DecodeProtobuf(bytes);
    ASSERT_TRUE(decoded.ok()) << line.substr(0, 200);
    const GroupVersionKind kind = KindOf(*decoded);
    const schema::Type type = schema::FindType(kind.group, kind.version, kind.kind);
    ASSERT_TRUE(NormalizeTyped(type, &*decoded).ok());
    Json expected = c["json"];
    ASSERT_TRUE(NormalizeTyped(type, &expected).ok());
    EXPECT_EQ(*decoded, expected) << kind.kind << Json::diff(expected, *decoded);
    const std::string encoded = EncodeProtobuf(type, *decoded);
    auto again = DecodeProtobuf(encoded);
    ASSERT_TRUE(again.ok()) << kind.kind;
    ASSERT_TRUE(NormalizeTyped(type, &*again).ok());
    EXPECT_EQ(*again, *decoded) << kind.kind << Json::diff(*decoded, *again);
  }
  EXPECT_GT(cases, 10);
}

TEST(Protobuf, MalformedBytesAreBadRequests) {
  for (const std::string& bytes :
       {std::string("k8s"), std::string("{}"), std::string("k8s\0\x0a\xff", 6),
        std::string("k8s\0\x0a\x0b\x0a\x02v1\x12\x05"
                    "Bogus",
                    17)}) {
    const auto decoded = DecodeProtobuf(bytes);
    ASSERT_FALSE(decoded.ok());
    EXPECT_EQ(decoded.error().code(), 400);
  }
}

TEST(Base64, RoundTrips) {
  for (const std::string& text : {std::string(), std::string("a"), std::string("ab"),
                                  std::string("abc"), std::string("\x00\xff\x80", 3)}) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(text)), text);
  }
  EXPECT_EQ(DecodeBase64("YQ"), std::nullopt);
  EXPECT_EQ(DecodeBase64("Y=Q="), std::nullopt);
  EXPECT_EQ(DecodeBase64("YQ==\n"), "a");
}

TEST(Protobuf, TimesOfTheFirstYearAreRead) {
  const schema::Type lease = schema::FindType("coordination.k8s.io", "v1", "Lease");
  const schema::Field spec = lease.FindField("spec");
  const schema::Field acquired = spec.type().FindField("acquireTime");
  std::string time;
  std::string inner;
  std::string outer;
  wire::PutNumber(1, static_cast<std::uint64_t>(-62'135'596'798), &time);
  wire::PutBytes(acquired.number(), time, &inner);
  wire::PutBytes(spec.number(), inner, &outer);
  const auto decoded = DecodeMessage(lease, outer);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(FindString(*decoded, {"spec", "acquireTime"}), "0001-01-01T00:00:02.000000Z");
}

}  // namespace
}  // namespace sublet::kube
