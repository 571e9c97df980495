// Certificate signing requests. Source: k8s.io/kubernetes pkg/apis/certificates/validation.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/base64.h"
#include "kube/kinds/go_diff.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::int64_t kSecondsMin = 600;
constexpr std::size_t kSignerDomainMax = 253;
constexpr std::size_t kLabelMax = 63;

std::ptrdiff_t CountConditions(const Json& object, std::string_view type) {
  const auto& list = Items(Get(object, "status"), "conditions");
  return std::count_if(list.begin(), list.end(),
                       [type](const Json& one) { return Str(one, "type") == type; });
}

bool RepeatsConditions(const Json& object) {
  const auto& list = Items(Get(object, "status"), "conditions");
  return std::any_of(list.begin(), list.end(), [&](const Json& one) {
    return CountConditions(object, Str(one, "type")) > 1;
  });
}

// What an older object shows already is borne.
void Conditions(const Json& object, const Json& old, FieldErrors* errors) {
  const Path status("status");
  const Path path = status.Child("conditions");
  const bool bears_both =
      CountConditions(old, "Approved") > 0 && CountConditions(old, "Denied") > 0;
  const bool bears_repeated = RepeatsConditions(old);
  const bool bears_empty = CountConditions(old, "") > 0;
  std::set<std::string> seen;
  const auto& list = Items(Get(object, "status"), "conditions");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Path at = path.Index(i);
    const std::string type = Str(list[i], "type");
    if (type.empty() && !bears_empty) {
      errors->Required(at.Child("type"));
    }
    const std::string value = Str(list[i], "status");
    if (type == "Approved" || type == "Denied" || type == "Failed") {
      OneOf(at.Child("status"), value, {"True"}, true, errors);
    } else {
      OneOf(at.Child("status"), value, {"False", "True", "Unknown"}, true, errors);
    }
    const char* other = type == "Approved" ? "Denied" : type == "Denied" ? "Approved" : "";
    if (!bears_both && *other != '\0' && seen.contains(other)) {
      errors->Invalid(path, type, "Approved and Denied conditions are mutually exclusive");
    }
    if (!seen.insert(type).second && !bears_repeated) {
      errors->Duplicate(at.Child("type"), type);
    }
  }
}

// The conditions of one type, as they stand.
Json OfType(const Json& object, std::string_view type) {
  Json found = Json::array();
  for (const Json& one : Items(Get(object, "status"), "conditions")) {
    if (Str(one, "type") == type) {
      found.push_back(one);
    }
  }
  return found;
}

void ConditionChanges(const Json& object, const Json& old, bool is_approval, FieldErrors* errors) {
  const Path status("status");
  const Path path = status.Child("conditions");
  for (const char* type : {"Approved", "Denied", "Failed"}) {
    if (CountConditions(object, type) < CountConditions(old, type)) {
      errors->Forbidden(path, "updates may not remove a condition of type " + GoQuote(type));
    }
  }
  for (const char* type : {"Approved", "Denied"}) {
    const Json now = OfType(object, type);
    const Json before = OfType(old, type);
    if (is_approval || now.size() < before.size()) {
      continue;
    }
    if (now.size() > before.size()) {
      errors->Forbidden(path, "updates may not add a condition of type " + GoQuote(type));
    } else if (now != before) {
      errors->Forbidden(path, "updates may not modify a condition of type " + GoQuote(type) + "\n" +
                                  GoDiff("[]CertificateSigningRequestCondition", before, now));
    }
  }
}

// PEM blocks as status.certificate holds them. Differs: what stands inside a block is not parsed,
// kube/ knows no cryptography; whoever uses the certificate does.
void Certificates(const Path& path, const std::string& encoded, FieldErrors* errors) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  const std::string pem = DecodeBase64(encoded).value_or("");
  int blocks = 0;
  for (std::size_t at = pem.find(kBegin); at != std::string::npos; at = pem.find(kBegin, at + 1)) {
    const std::size_t from = at + kBegin.size();
    const std::string type = pem.substr(from, pem.find("-----", from) - from);
    if (type != "CERTIFICATE") {
      errors->Invalid(path, "<certificate data>",
                      "only CERTIFICATE PEM blocks are allowed, found " + GoQuote(type));
      return;
    }
    ++blocks;
  }
  if (blocks == 0 && !encoded.empty()) {
    errors->Invalid(path, "<certificate data>", "must contain at least one CERTIFICATE PEM block");
  }
}

// What stands between the lines of the first PEM block. Differs: the request itself is not parsed nor
// its signature checked, kube/ knows no cryptography; who signs it does.
bool HoldsRequest(const std::string& pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE REQUEST-----";
  constexpr std::string_view kEnd = "-----END CERTIFICATE REQUEST-----";
  const std::size_t begin = pem.find("-----BEGIN ");
  if (begin == std::string::npos || pem.compare(begin, kBegin.size(), kBegin) != 0) {
    return false;
  }
  const std::size_t from = begin + kBegin.size();
  const std::size_t end = pem.find(kEnd, from);
  if (end == std::string::npos) {
    return false;
  }
  std::string body = pem.substr(from, end - from);
  std::erase_if(body, [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
  return DecodeBase64(body).has_value();
}

void SignerPart(const Path& path, const std::string& part, bool is_domain, FieldErrors* errors) {
  for (std::size_t start = 0; start <= part.size();) {
    const std::size_t end = std::min(part.find('.', start), part.size());
    const std::string label = part.substr(start, end - start);
    const Problems problems = is_domain ? IsDns1123Label(label) : IsDns1123Subdomain(label);
    for (const std::string& problem : problems) {
      errors->Invalid(path, part, "validating label " + GoQuote(label) + ": " + problem);
    }
    if (!problems.empty()) {
      return;
    }
    start = end + 1;
  }
}

void SignerName(const Path& path, const std::string& signer, FieldErrors* errors) {
  if (signer.empty()) {
    return errors->Required(path);
  }
  if (std::count(signer.begin(), signer.end(), '/') != 1) {
    return errors->Invalid(path, signer,
                           "must be a fully qualified domain and path of the form "
                           "'example.com/signer-name'");
  }
  const std::size_t slash = signer.find('/');
  const std::string domain = signer.substr(0, slash);
  if (domain.size() > kSignerDomainMax) {
    errors->TooLong(path, static_cast<int>(kSignerDomainMax));
  }
  SignerPart(path, domain, true, errors);
  if (domain.find('.') == std::string::npos) {
    errors->Invalid(path, domain,
                    "should be a domain with at least two segments separated by dots");
  }
  SignerPart(path, signer.substr(slash + 1), false, errors);
  constexpr std::size_t kMax = 2 * kSignerDomainMax + kLabelMax + 2;
  if (signer.size() > kMax) {
    errors->TooLong(path, static_cast<int>(kMax));
  }
}

void Usages(const Path& path, const Json& spec, const Json& old_spec, FieldErrors* errors) {
  static constexpr std::string_view kUsages[] = {"any",
                                                 "cert sign",
                                                 "client auth",
                                                 "code signing",
                                                 "content commitment",
                                                 "crl sign",
                                                 "data encipherment",
                                                 "decipher only",
                                                 "digital signature",
                                                 "email protection",
                                                 "encipher only",
                                                 "ipsec end system",
                                                 "ipsec tunnel",
                                                 "ipsec user",
                                                 "key agreement",
                                                 "key encipherment",
                                                 "microsoft sgc",
                                                 "netscape sgc",
                                                 "ocsp signing",
                                                 "s/mime",
                                                 "server auth",
                                                 "signing",
                                                 "timestamping"};
  const auto known = [](const Json& usage) {
    return std::find(std::begin(kUsages), std::end(kUsages), usage.get<std::string>()) !=
           std::end(kUsages);
  };
  const auto& usages = Items(spec, "usages");
  const auto& before = Items(old_spec, "usages");
  if (usages.empty()) {
    errors->Required(path);
  }
  const bool bears_unknown = !std::all_of(before.begin(), before.end(), known);
  for (std::size_t i = 0; i < usages.size() && !bears_unknown; ++i) {
    if (!known(usages[i])) {
      errors->NotSupported(path.Index(i).Text(), usages[i],
                           {std::begin(kUsages), std::end(kUsages)});
    }
  }
  const bool bears_repeated = std::set<Json>(before.begin(), before.end()).size() < before.size();
  std::set<Json> seen;
  for (std::size_t i = 0; i < usages.size() && !bears_repeated; ++i) {
    if (!seen.insert(usages[i]).second) {
      errors->Duplicate(path.Index(i), usages[i]);
    }
  }
}

void Whole(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Path path("spec");
  if (!HoldsRequest(DecodeBase64(Str(spec, "request")).value_or(""))) {
    errors->Invalid(path.Child("request"), Get(spec, "request"),
                    "PEM block type must be CERTIFICATE REQUEST");
  }
  Usages(path.Child("usages"), spec, Get(old, "spec"), errors);
  SignerName(path.Child("signerName"), Str(spec, "signerName"), errors);
  const Json& seconds = Get(spec, "expirationSeconds");
  if (seconds.is_number_integer() && seconds.get<std::int64_t>() < kSecondsMin) {
    errors->Invalid(path.Child("expirationSeconds"), seconds,
                    "may not specify a duration less than 600 seconds (10 minutes)");
  }
  Conditions(object, old, errors);
  const Path status("status");
  const std::string certificate = Str(Get(object, "status"), "certificate");
  if (certificate != Str(Get(old, "status"), "certificate")) {
    Certificates(status.Child("certificate"), certificate, errors);
  }
}

}  // namespace

void CertificateSigningRequest(const Json& object, FieldErrors* errors) {
  Whole(object, Json(), errors);
}

void CertificateSigningRequestUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Whole(object, old, errors);
  ConditionChanges(object, old, false, errors);
}

void CertificateSigningRequestStatus(const Json& object, const Json& old, FieldErrors* errors) {
  CertificateSigningRequestUpdate(object, old, errors);
  const Path status("status");
  const std::string before = Str(Get(old, "status"), "certificate");
  if (Str(Get(object, "status"), "certificate") != before && !before.empty()) {
    errors->Forbidden(status.Child("certificate"),
                      "updates may not modify existing certificate content");
  }
}

void CertificateSigningRequestApproval(std::string_view, const Json& object, const Json& old,
                                       FieldErrors* errors) {
  Whole(object, old, errors);
  ConditionChanges(object, old, true, errors);
}

}  // namespace sublet::kube::validate
