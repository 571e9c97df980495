#include "apiserver/auth/jwt.h"

#include <openssl/core_names.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/sha.h>

#include <nlohmann/json.hpp>

#include "apiserver/auth/base64url.h"
#include "apiserver/auth/openssl_ptr.h"

namespace sublet::apiserver {
namespace {

constexpr int kCoordinateBytes = 32;  // of P-256

std::string BignumBytes(const BIGNUM* number, int bytes) {
  std::string out(static_cast<std::size_t>(bytes), '\0');
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(out.data()), bytes);
  return out;
}

// JWS carries an ECDSA signature as r||s, OpenSSL as DER.
std::string RawFromDer(const std::string& der) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  EcdsaSignaturePtr signature(d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())));
  if (!signature) {
    return "";
  }
  return BignumBytes(ECDSA_SIG_get0_r(signature.get()), kCoordinateBytes) +
         BignumBytes(ECDSA_SIG_get0_s(signature.get()), kCoordinateBytes);
}

std::string DerFromRaw(std::string_view raw) {
  if (raw.size() != 2 * kCoordinateBytes) {
    return "";
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(raw.data());
  EcdsaSignaturePtr signature(ECDSA_SIG_new());
  ECDSA_SIG_set0(signature.get(), BN_bin2bn(bytes, kCoordinateBytes, nullptr),
                 BN_bin2bn(bytes + kCoordinateBytes, kCoordinateBytes, nullptr));
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(signature.get(), &der);
  std::string out(reinterpret_cast<char*>(der), size > 0 ? static_cast<std::size_t>(size) : 0);
  OPENSSL_free(der);
  return out;
}

std::string KeyNumber(const EVP_PKEY* key, const char* name, int bytes) {
  BIGNUM* raw = nullptr;
  if (EVP_PKEY_get_bn_param(key, name, &raw) != 1) {
    ERR_clear_error();
    return "";
  }
  BignumPtr number(raw);
  return BignumBytes(number.get(), bytes > 0 ? bytes : BN_num_bytes(number.get()));
}

}  // namespace

struct JwtKey::Impl {
  KeyPtr key;
  bool is_private = false;
};

JwtKey::JwtKey(std::unique_ptr<Impl> impl, std::string id, bool is_ec)
    : impl_(std::move(impl)), id_(std::move(id)), is_ec_(is_ec) {}
JwtKey::~JwtKey() = default;

Result<std::shared_ptr<const JwtKey>> JwtKey::FromPem(const std::string& pem) {
  auto impl = std::make_unique<Impl>();
  impl->key.reset(PEM_read_bio_PrivateKey(ReadBio(pem).get(), nullptr, nullptr, nullptr));
  impl->is_private = impl->key != nullptr;
  if (!impl->key) {
    ERR_clear_error();
    impl->key.reset(PEM_read_bio_PUBKEY(ReadBio(pem).get(), nullptr, nullptr, nullptr));
  }
  if (!impl->key) {
    return BadRequest("not a PEM key: " + OpensslError());
  }
  const bool is_ec = EVP_PKEY_is_a(impl->key.get(), "EC") == 1;
  if (is_ec ? EVP_PKEY_get_bits(impl->key.get()) != 256
            : EVP_PKEY_is_a(impl->key.get(), "RSA") != 1) {
    return BadRequest("a signing key must be EC P-256 or RSA");
  }
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(impl->key.get(), &der);
  if (size <= 0) {
    return BadRequest("the key cannot be encoded: " + OpensslError());
  }
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(der, static_cast<std::size_t>(size), digest);
  OPENSSL_free(der);
  std::string id = EncodeBase64Url({reinterpret_cast<char*>(digest), sizeof digest});
  return std::shared_ptr<const JwtKey>(new JwtKey(std::move(impl), std::move(id), is_ec));
}

Result<std::string> JwtKey::Sign(const kube::Json& claims) const {
  if (!impl_->is_private) {
    return InternalError("a public key cannot sign tokens");
  }
  std::string text =
      EncodeBase64Url(R"({"alg":")" + std::string(algorithm()) + R"(","kid":")" + id_ + "\"}");
  text.append(".").append(EncodeBase64Url(kube::Dump(claims)));
  DigestContextPtr context(EVP_MD_CTX_new());
  std::size_t size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::string signature;
  bool ok =
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, impl_->key.get()) == 1 &&
      EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1;
  if (ok) {
    signature.resize(size);
    ok = EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                        bytes, text.size()) == 1;
    signature.resize(size);
  }
  if (!ok) {
    return InternalError("cannot sign a token: " + OpensslError());
  }
  text.append(".").append(EncodeBase64Url(is_ec_ ? RawFromDer(signature) : signature));
  return text;
}

bool JwtKey::Verify(std::string_view text, std::string_view signature) const {
  const std::string der = is_ec_ ? DerFromRaw(signature) : std::string(signature);
  if (der.empty()) {
    return false;
  }
  DigestContextPtr context(EVP_MD_CTX_new());
  const bool ok =
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, impl_->key.get()) == 1 &&
      EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(der.data()),
                       der.size(), reinterpret_cast<const unsigned char*>(text.data()),
                       text.size()) == 1;
  ERR_clear_error();
  return ok;
}

kube::Json JwtKey::ToJwk() const {
  kube::Json jwk = {{"use", "sig"}, {"kid", id_}, {"alg", std::string(algorithm())}};
  const EVP_PKEY* key = impl_->key.get();
  if (is_ec_) {
    jwk["kty"] = "EC";
    jwk["crv"] = "P-256";
    jwk["x"] = EncodeBase64Url(KeyNumber(key, OSSL_PKEY_PARAM_EC_PUB_X, kCoordinateBytes));
    jwk["y"] = EncodeBase64Url(KeyNumber(key, OSSL_PKEY_PARAM_EC_PUB_Y, kCoordinateBytes));
  } else {
    jwk["kty"] = "RSA";
    jwk["n"] = EncodeBase64Url(KeyNumber(key, OSSL_PKEY_PARAM_RSA_N, 0));
    jwk["e"] = EncodeBase64Url(KeyNumber(key, OSSL_PKEY_PARAM_RSA_E, 0));
  }
  return jwk;
}

Result<ParsedJwt> ParseJwt(std::string_view token) {
  const auto first = token.find('.');
  const auto second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (token.size() > kJwtBytesMax || second == std::string_view::npos ||
      token.find('.', second + 1) != std::string_view::npos) {
    return Unauthorized();
  }
  const auto header = DecodeBase64Url(token.substr(0, first));
  auto claims = DecodeBase64Url(token.substr(first + 1, second - first - 1));
  auto signature = DecodeBase64Url(token.substr(second + 1));
  if (!header || !claims || !signature || signature->empty()) {
    return Unauthorized();
  }
  kube::JsonLimits limits;
  limits.depth_max = 16;
  const auto parsed = kube::ParseJson(*header, limits);
  if (!parsed.ok() || !parsed->is_object()) {
    return Unauthorized();
  }
  ParsedJwt jwt;
  jwt.algorithm = kube::FindString(*parsed, {"alg"});
  jwt.key_id = kube::FindString(*parsed, {"kid"});
  jwt.signed_text = token.substr(0, second);
  jwt.signature = std::move(*signature);
  jwt.claims = std::move(*claims);
  return jwt;
}

}  // namespace sublet::apiserver
