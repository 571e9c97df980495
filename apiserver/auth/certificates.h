// CertificateAuthority: an EC P-256 authority that issues leaf certificates and signs requests
// (CSR). All texts are PEM. Threads: any; an authority is immutable once made.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::apiserver {

struct KeyPair {
  std::string certificate;
  std::string key;
};

struct LeafOptions {
  std::string common_name;
  std::vector<std::string> organizations;
  std::vector<std::string> dns_names;
  std::vector<std::string> ip_addresses;
  bool is_server = false;
  bool is_client = false;
  std::chrono::seconds validity = std::chrono::hours(24 * 365);
};

class CertificateAuthority {
 public:
  // A new self-signed authority, valid for ten years from `now`.
  static Result<std::shared_ptr<const CertificateAuthority>> Make(const std::string& common_name,
                                                                  WallTime now);
  // Errors: BadRequest (not PEM, key and certificate do not fit).
  static Result<std::shared_ptr<const CertificateAuthority>> Load(const KeyPair& pair);
  ~CertificateAuthority();

  const KeyPair& pair() const { return pair_; }
  // A fresh key with a certificate for it. Valid from five minutes before `now`, for clocks that
  // are behind. Errors: InternalError (OpenSSL), BadRequest (an address that is none).
  Result<KeyPair> Issue(const LeafOptions& options, WallTime now) const;
  // Signs the key of a PKCS#10 request; subject and alternative names are the request's, the rest
  // of `options` is taken. Errors: BadRequest (malformed request or signature).
  Result<std::string> SignRequest(const std::string& request_pem, const LeafOptions& options,
                                  WallTime now) const;

 private:
  struct Impl;
  explicit CertificateAuthority(std::unique_ptr<Impl> impl, KeyPair pair);
  std::unique_ptr<Impl> impl_;
  KeyPair pair_;
};

// A new EC P-256 private key, PEM (PKCS#8).
Result<std::string> MakePrivateKey();
// The public half of a private key, PEM (SubjectPublicKeyInfo).
Result<std::string> PublicKeyOf(const std::string& private_key_pem);
// The end of the first certificate's validity. Errors: BadRequest.
Result<WallTime> NotAfter(const std::string& certificate_pem);
// The start of the first certificate's validity. Errors: BadRequest.
Result<WallTime> NotBefore(const std::string& certificate_pem);

}  // namespace sublet::apiserver
