// JSON Web Tokens as Kubernetes uses them: compact form, ES256 and RS256, one key per `kid`.
// Threads: any; keys are immutable once made.
// Source: RFC 7515, 7517, 7518; k8s.io/kubernetes pkg/serviceaccount (key ids).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

inline constexpr std::size_t kJwtBytesMax = 64 * 1024;

class JwtKey {
 public:
  // A private (signs and verifies) or public key (verifies), PEM; EC P-256 or RSA.
  // Errors: BadRequest.
  static Result<std::shared_ptr<const JwtKey>> FromPem(const std::string& pem);
  ~JwtKey();

  // base64url(SHA-256(DER of the public key)), as kube-apiserver names keys.
  const std::string& id() const { return id_; }
  std::string_view algorithm() const { return is_ec_ ? "ES256" : "RS256"; }

  // header.claims.signature. Errors: InternalError (a public key cannot sign).
  Result<std::string> Sign(const kube::Json& claims) const;
  // True when `signature` (raw bytes) is this key's for `text`.
  bool Verify(std::string_view text, std::string_view signature) const;
  // The public half as a JWK object.
  kube::Json ToJwk() const;

 private:
  struct Impl;
  JwtKey(std::unique_ptr<Impl> impl, std::string id, bool is_ec);
  std::unique_ptr<Impl> impl_;
  std::string id_;
  bool is_ec_;
};

struct ParsedJwt {
  std::string algorithm;
  std::string key_id;
  std::string_view signed_text;  // header.claims; points into the token
  std::string signature;
  std::string claims;  // JSON text, unverified
};

// Splits and decodes a token without verifying it. Errors: Unauthorized (malformed, too long).
Result<ParsedJwt> ParseJwt(std::string_view token);

}  // namespace sublet::apiserver
