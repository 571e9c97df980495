// Owning pointers for OpenSSL's types and its error text. Private to auth/.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace sublet::apiserver {

template <auto kFree>
struct OpensslFree {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
inline void FreeBio(BIO* bio) { BIO_free(bio); }

using BioPtr = std::unique_ptr<BIO, OpensslFree<FreeBio>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using KeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, OpensslFree<EVP_PKEY_CTX_free>>;
using DigestContextPtr = std::unique_ptr<EVP_MD_CTX, OpensslFree<EVP_MD_CTX_free>>;
using X509Ptr = std::unique_ptr<X509, OpensslFree<X509_free>>;
using X509RequestPtr = std::unique_ptr<X509_REQ, OpensslFree<X509_REQ_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, OpensslFree<X509_EXTENSION_free>>;
using EcdsaSignaturePtr = std::unique_ptr<ECDSA_SIG, OpensslFree<ECDSA_SIG_free>>;
using BignumPtr = std::unique_ptr<BIGNUM, OpensslFree<BN_free>>;

// The oldest error of this thread's queue as text; the queue is then empty.
inline std::string OpensslError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  char text[256] = "unknown error";
  if (code != 0) {
    ERR_error_string_n(code, text, sizeof text);
  }
  return text;
}

inline BioPtr ReadBio(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// What was written to a memory BIO.
inline std::string BioText(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<std::size_t>(bytes));
}

}  // namespace sublet::apiserver
