// Fuzzes the token parser: no bytes may verify that were not signed, none may crash it.
#include <cstdlib>

#include "apiserver/auth/certificates.h"
#include "apiserver/auth/jwt.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace sublet::apiserver;
  static const auto key = JwtKey::FromPem(MakePrivateKey().value()).value();
  const std::string_view token(reinterpret_cast<const char*>(data), size);
  const auto parsed = ParseJwt(token);
  if (parsed.ok() && key->Verify(parsed->signed_text, parsed->signature)) {
    std::abort();
  }
  return 0;
}
