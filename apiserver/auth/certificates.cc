#include "apiserver/auth/certificates.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "apiserver/auth/openssl_ptr.h"
#include "base/random.h"

namespace sublet::apiserver {
namespace {

constexpr std::chrono::minutes kBackdate(5);
constexpr std::chrono::hours kAuthorityValidity(24 * 3650);

Status Failed(std::string_view what) {
  return InternalError(std::string(what) + ": " + OpensslError());
}

Result<KeyPtr> NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (!key) {
    return Failed("cannot make an EC key");
  }
  return key;
}

Result<std::string> KeyPem(EVP_PKEY* key) {
  BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("cannot encode a key");
  }
  return BioText(bio.get());
}

Result<std::string> CertificatePem(X509* certificate) {
  BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) {
    return Failed("cannot encode a certificate");
  }
  return BioText(bio.get());
}

Result<KeyPtr> ReadKey(const std::string& pem) {
  KeyPtr key(PEM_read_bio_PrivateKey(ReadBio(pem).get(), nullptr, nullptr, nullptr));
  if (!key) {
    return BadRequest("not a PEM private key: " + OpensslError());
  }
  return key;
}

Result<X509Ptr> ReadCertificate(const std::string& pem) {
  X509Ptr certificate(PEM_read_bio_X509(ReadBio(pem).get(), nullptr, nullptr, nullptr));
  if (!certificate) {
    return BadRequest("not a PEM certificate: " + OpensslError());
  }
  return certificate;
}

bool AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  ExtensionPtr extension(X509V3_EXT_nconf_nid(nullptr, &context, id, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool AddName(X509_NAME* name, int id, const std::string& value) {
  return X509_NAME_add_entry_by_NID(name, id, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(value.data()),
                                    static_cast<int>(value.size()), -1, 0) == 1;
}

void SetSerialAndTimes(X509* certificate, WallTime now, std::chrono::seconds validity) {
  // 63 random bits: positive, never repeated.
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), (RandomUint64() >> 1) | 1);
  const std::time_t start = std::chrono::system_clock::to_time_t(now - kBackdate);
  const std::time_t end = std::chrono::system_clock::to_time_t(now + validity);
  X509_time_adj_ex(X509_getm_notBefore(certificate), 0, 0, const_cast<std::time_t*>(&start));
  X509_time_adj_ex(X509_getm_notAfter(certificate), 0, 0, const_cast<std::time_t*>(&end));
}

Result<std::string> AlternativeNames(const LeafOptions& options) {
  std::string text;
  for (const auto& name : options.dns_names) {
    if (name.empty() || name.find_first_of(", \n:") != std::string::npos) {
      return BadRequest("not a DNS name: \"" + name + "\"");
    }
    text.append(text.empty() ? "DNS:" : ",DNS:").append(name);
  }
  for (const auto& address : options.ip_addresses) {
    unsigned char parsed[16];
    if (inet_pton(AF_INET, address.c_str(), parsed) != 1 &&
        inet_pton(AF_INET6, address.c_str(), parsed) != 1) {
      return BadRequest("not an IP address: \"" + address + "\"");
    }
    text.append(text.empty() ? "IP:" : ",IP:").append(address);
  }
  return text;
}

std::string ExtendedUsage(const LeafOptions& options) {
  std::string usage = options.is_server ? "serverAuth" : "";
  if (options.is_client) {
    usage.append(usage.empty() ? "clientAuth" : ",clientAuth");
  }
  return usage;
}

Result<WallTime> TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return BadRequest("the certificate's validity cannot be read");
  }
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

}  // namespace

struct CertificateAuthority::Impl {
  X509Ptr certificate;
  KeyPtr key;

  // Fills what every leaf has and signs it. The caller has set subject, key and alternative names.
  Result<std::string> Finish(X509* leaf, const LeafOptions& options, WallTime now) const {
    X509_set_version(leaf, 2);
    SetSerialAndTimes(leaf, now, options.validity);
    X509_set_issuer_name(leaf, X509_get_subject_name(certificate.get()));
    const std::string usage = ExtendedUsage(options);
    const bool ok =
        AddExtension(leaf, certificate.get(), NID_basic_constraints, "critical,CA:FALSE") &&
        AddExtension(leaf, certificate.get(), NID_key_usage,
                     "critical,digitalSignature,keyEncipherment") &&
        (usage.empty() || AddExtension(leaf, certificate.get(), NID_ext_key_usage, usage)) &&
        AddExtension(leaf, certificate.get(), NID_authority_key_identifier, "keyid") &&
        X509_sign(leaf, key.get(), EVP_sha256()) > 0;
    if (!ok) {
      return Failed("cannot sign a certificate");
    }
    return CertificatePem(leaf);
  }
};

CertificateAuthority::CertificateAuthority(std::unique_ptr<Impl> impl, KeyPair pair)
    : impl_(std::move(impl)), pair_(std::move(pair)) {}
CertificateAuthority::~CertificateAuthority() = default;

Result<std::shared_ptr<const CertificateAuthority>> CertificateAuthority::Make(
    const std::string& common_name, WallTime now) {
  auto impl = std::make_unique<Impl>();
  SUBLET_TRY(impl->key, NewKey());
  impl->certificate.reset(X509_new());
  X509* certificate = impl->certificate.get();
  X509_set_version(certificate, 2);
  SetSerialAndTimes(certificate, now, kAuthorityValidity);
  X509_NAME* name = X509_get_subject_name(certificate);
  const bool ok =
      AddName(name, NID_commonName, common_name) && X509_set_issuer_name(certificate, name) == 1 &&
      X509_set_pubkey(certificate, impl->key.get()) == 1 &&
      AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE") &&
      AddExtension(certificate, certificate, NID_key_usage,
                   "critical,digitalSignature,keyEncipherment,keyCertSign") &&
      AddExtension(certificate, certificate, NID_subject_key_identifier, "hash") &&
      X509_sign(certificate, impl->key.get(), EVP_sha256()) > 0;
  if (!ok) {
    return Failed("cannot make the certificate authority");
  }
  KeyPair pair;
  SUBLET_TRY(pair.certificate, CertificatePem(certificate));
  SUBLET_TRY(pair.key, KeyPem(impl->key.get()));
  return std::shared_ptr<const CertificateAuthority>(
      new CertificateAuthority(std::move(impl), std::move(pair)));
}

Result<std::shared_ptr<const CertificateAuthority>> CertificateAuthority::Load(
    const KeyPair& pair) {
  auto impl = std::make_unique<Impl>();
  SUBLET_TRY(impl->certificate, ReadCertificate(pair.certificate));
  SUBLET_TRY(impl->key, ReadKey(pair.key));
  if (X509_check_private_key(impl->certificate.get(), impl->key.get()) != 1) {
    ERR_clear_error();
    return BadRequest("the authority's key does not fit its certificate");
  }
  return std::shared_ptr<const CertificateAuthority>(
      new CertificateAuthority(std::move(impl), pair));
}

Result<KeyPair> CertificateAuthority::Issue(const LeafOptions& options, WallTime now) const {
  SUBLET_TRY(KeyPtr key, NewKey());
  SUBLET_TRY(const std::string names, AlternativeNames(options));
  X509Ptr leaf(X509_new());
  X509_NAME* subject = X509_get_subject_name(leaf.get());
  bool ok = X509_set_pubkey(leaf.get(), key.get()) == 1;
  for (const auto& organization : options.organizations) {
    ok = ok && AddName(subject, NID_organizationName, organization);
  }
  ok = ok && AddName(subject, NID_commonName, options.common_name);
  if (!names.empty()) {
    ok = ok && AddExtension(leaf.get(), impl_->certificate.get(), NID_subject_alt_name, names);
  }
  if (!ok) {
    return Failed("cannot make a certificate");
  }
  KeyPair pair;
  SUBLET_TRY(pair.certificate, impl_->Finish(leaf.get(), options, now));
  SUBLET_TRY(pair.key, KeyPem(key.get()));
  return pair;
}

Result<std::string> CertificateAuthority::SignRequest(const std::string& request_pem,
                                                      const LeafOptions& options,
                                                      WallTime now) const {
  X509RequestPtr request(
      PEM_read_bio_X509_REQ(ReadBio(request_pem).get(), nullptr, nullptr, nullptr));
  if (!request) {
    return BadRequest("not a PEM certificate request: " + OpensslError());
  }
  EVP_PKEY* key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || X509_REQ_verify(request.get(), key) != 1) {
    ERR_clear_error();
    return BadRequest("the certificate request's signature is not its key's");
  }
  X509Ptr leaf(X509_new());
  X509_set_subject_name(leaf.get(), X509_REQ_get_subject_name(request.get()));
  X509_set_pubkey(leaf.get(), key);
  STACK_OF(X509_EXTENSION)* extensions = X509_REQ_get_extensions(request.get());
  const int index =
      extensions == nullptr ? -1 : X509v3_get_ext_by_NID(extensions, NID_subject_alt_name, -1);
  if (index >= 0) {
    X509_add_ext(leaf.get(), X509v3_get_ext(extensions, index), -1);
  }
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  return impl_->Finish(leaf.get(), options, now);
}

Result<std::string> MakePrivateKey() {
  SUBLET_TRY(KeyPtr key, NewKey());
  return KeyPem(key.get());
}

Result<std::string> PublicKeyOf(const std::string& private_key_pem) {
  SUBLET_TRY(KeyPtr key, ReadKey(private_key_pem));
  BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PUBKEY(bio.get(), key.get()) != 1) {
    return Failed("cannot encode a public key");
  }
  return BioText(bio.get());
}

Result<WallTime> NotAfter(const std::string& certificate_pem) {
  SUBLET_TRY(X509Ptr certificate, ReadCertificate(certificate_pem));
  return TimeOf(X509_get0_notAfter(certificate.get()));
}

Result<WallTime> NotBefore(const std::string& certificate_pem) {
  SUBLET_TRY(X509Ptr certificate, ReadCertificate(certificate_pem));
  return TimeOf(X509_get0_notBefore(certificate.get()));
}

}  // namespace sublet::apiserver
