#include "apiserver/handlers/continue_token.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "kube/json.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view kVersion = "meta.k8s.io/v1";
constexpr std::size_t kBytesMax = 4096;

std::string EncodeBase64Url(std::string_view data) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : data) {
    bits = (bits << 8) | static_cast<unsigned char>(c);
    count += 8;
    while (count >= 6) {
      count -= 6;
      out += kAlphabet[(bits >> count) & 63];
    }
  }
  if (count > 0) {
    out += kAlphabet[(bits << (6 - count)) & 63];
  }
  return out;
}

std::optional<std::string> DecodeBase64Url(std::string_view text, std::size_t* bad) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto value = kAlphabet.find(text[i]);
    if (value == std::string_view::npos) {
      *bad = i;
      return std::nullopt;
    }
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>((bits >> count) & 255);
    }
  }
  if (text.size() % 4 == 1) {
    *bad = text.size();
    return std::nullopt;
  }
  return out;
}

Status BadToken(std::string_view why) {
  return BadRequest("invalid continue token: continue key is not valid" + std::string(why));
}

// The key must stay below the collection: no "..", no empty or "." segment.
bool IsCleanPath(std::string_view path) {
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  while (true) {
    const auto slash = path.find('/');
    const auto segment = path.substr(0, slash);
    if (segment.empty() || segment == "." || segment == "..") {
      return false;
    }
    if (slash == std::string_view::npos) {
      return true;
    }
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string EncodeContinue(const ContinueToken& token) {
  std::string json =
      "{\"v\":\"meta.k8s.io/v1\",\"rv\":" + std::to_string(token.revision) + ",\"start\":";
  kube::AppendJsonString(token.start, &json);
  json += '}';
  return EncodeBase64Url(json);
}

Result<ContinueToken> DecodeContinue(std::string_view text) {
  if (text.size() > kBytesMax) {
    return BadToken(": too long");
  }
  std::size_t bad = 0;
  const auto json = DecodeBase64Url(text, &bad);
  if (!json) {
    return BadToken(": illegal base64 data at input byte " + std::to_string(bad));
  }
  const auto tree = kube::ParseJson(*json);
  if (!tree.ok()) {
    return BadToken(": " + tree.error().message());
  }
  if (!tree->is_object()) {
    return BadToken(": json: cannot unmarshal into Go value of type storage.continueToken");
  }
  const auto version = kube::FindString(*tree, {"v"});
  if (version != kVersion) {
    return BadToken(": server does not recognize this encoded version " + std::string(version));
  }
  ContinueToken token;
  token.revision = kube::FindInt(*tree, {"rv"});
  token.start = std::string(kube::FindString(*tree, {"start"}));
  if (token.revision == 0) {
    return BadToken(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)");
  }
  if (token.start.empty()) {
    return BadToken(": encoded start key empty (version meta.k8s.io/v1)");
  }
  if (!IsCleanPath(token.start)) {
    return BadToken(": " + token.start);
  }
  return token;
}

}  // namespace sublet::apiserver
