// OwnerReferencesPermissionEnforcement, CertificateApproval, CertificateSigning,
// CertificateSubjectRestriction: rules that ask for a further right of the user.
// Source: k8s.io/kubernetes plugin/pkg/admission/{gc,certificates}.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "kube/base64.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

bool Blocks(const Json& owner) { return kube::FindBool(owner, {"blockOwnerDeletion"}); }

const Json& OwnersIn(const Json& object) {
  static const Json kNone = Json::array();
  const Json* list = kube::Find(object, {"metadata", "ownerReferences"});
  return list != nullptr && list->is_array() ? *list : kNone;
}

// Who makes an object block the deletion of another must be able to hold that one back anyway.
Result<void> CheckOwners(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (!environment.allows || !request.subresource.empty()) {
    return Ok();
  }
  const Json& owners = OwnersIn(*request.object);
  const Json none = Json::array();
  const Json& before = request.old_object != nullptr ? OwnersIn(*request.old_object) : none;
  if (owners == before) {
    return Ok();
  }
  if (request.old_object != nullptr) {
    const AccessQuestion question{.verb = "delete",
                                  .group = request.resource->group(),
                                  .version = request.resource->version(),
                                  .resource = request.resource->plural(),
                                  .subresource = "",
                                  .namespace_name = request.namespace_name,
                                  .name = request.name};
    if (!environment.allows(*request.user, question)) {
      return AdmissionForbidden(request, "cannot set an ownerRef on a resource you can't delete: ");
    }
  }
  const CatalogPtr catalog = environment.catalog->Get();
  for (const auto& owner : owners) {
    const bool was = std::any_of(before.begin(), before.end(), [&](const Json& old) {
      return Blocks(old) && kube::FindString(old, {"uid"}) == kube::FindString(owner, {"uid"});
    });
    if (!Blocks(owner) || was) {
      continue;
    }
    const auto version = kube::GroupVersion::Parse(kube::FindString(owner, {"apiVersion"}));
    const Resource* resource =
        catalog->FindKind(version.group, version.version, kube::FindString(owner, {"kind"}));
    if (resource == nullptr) {
      return AdmissionForbidden(request,
                                "cannot set blockOwnerDeletion in this case because cannot find "
                                "RESTMapping for APIVersion " +
                                    std::string(kube::FindString(owner, {"apiVersion"})) +
                                    " Kind " + std::string(kube::FindString(owner, {"kind"})));
    }
    const AccessQuestion question{
        .verb = "update",
        .group = resource->group(),
        .version = resource->version(),
        .resource = resource->plural(),
        .subresource = "finalizers",
        .namespace_name = resource->namespaced() ? request.namespace_name : "",
        .name = std::string(kube::FindString(owner, {"name"}))};
    if (!environment.allows(*request.user, question)) {
      return AdmissionForbidden(request,
                                "cannot set blockOwnerDeletion if an ownerReference refers to a "
                                "resource you can't set finalizers on: ");
    }
  }
  return Ok();
}

// A signer is named "example.com/name"; rights are given on it or on "example.com/*".
bool MaySign(const AdmissionEnvironment& environment, const User& user, std::string_view verb,
             const std::string& signer) {
  if (!environment.allows) {
    return true;
  }
  AccessQuestion question{.verb = std::string(verb),
                          .group = "certificates.k8s.io",
                          .version = "*",
                          .resource = "signers",
                          .subresource = "",
                          .namespace_name = "",
                          .name = signer};
  if (environment.allows(user, question)) {
    return true;
  }
  question.name = signer.substr(0, signer.find('/')) + "/*";
  return environment.allows(user, question);
}

// Whether the request asks for organization system:masters: looked for in the DER of the PEM, as
// the attribute O (2.5.4.10) with that text.
bool AsksForMasters(const Json& object) {
  constexpr std::string_view kMasters = "system:masters";
  const auto pem = kube::DecodeBase64(kube::FindString(object, {"spec", "request"}));
  if (!pem) {
    return false;
  }
  const auto begin = pem->find("-----\n");
  const auto end = pem->find("\n-----END");
  if (begin == std::string::npos || end == std::string::npos || end < begin + 6) {
    return false;
  }
  std::string body = pem->substr(begin + 6, end - begin - 6);
  std::erase_if(body, [](char c) { return c == '\n' || c == '\r'; });
  const auto der = kube::DecodeBase64(body);
  if (!der) {
    return false;
  }
  for (auto at = der->find(kMasters); at != std::string::npos; at = der->find(kMasters, at + 1)) {
    if (at >= 5 && der->substr(at - 5, 3) == "\x55\x04\x0a") {
      return true;
    }
  }
  return false;
}

Result<void> CheckCertificates(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (!request.Is("certificates.k8s.io", "certificatesigningrequests")) {
    return Ok();
  }
  const Json& object = *request.object;
  const std::string signer(kube::FindString(object, {"spec", "signerName"}));
  if (request.operation == Operation::kCreate) {
    if (signer == "kubernetes.io/kube-apiserver-client" && AsksForMasters(object)) {
      return AdmissionForbidden(request,
                                "use of kubernetes.io/kube-apiserver-client signer with "
                                "system:masters group is not allowed");
    }
    return Ok();
  }
  const std::string old_signer(kube::FindString(*request.old_object, {"spec", "signerName"}));
  if (request.subresource == "approval" &&
      !MaySign(environment, *request.user, "approve", old_signer)) {
    return AdmissionForbidden(
        request, "user not permitted to approve requests with signerName \"" + old_signer + "\"");
  }
  if (request.subresource == "status" &&
      kube::FindString(object, {"status", "certificate"}) !=
          kube::FindString(*request.old_object, {"status", "certificate"}) &&
      !MaySign(environment, *request.user, "sign", old_signer)) {
    return AdmissionForbidden(
        request, "user not permitted to sign requests with signerName \"" + old_signer + "\"");
  }
  return Ok();
}

}  // namespace

AdmissionPlugin OwnerReferencesPermissionEnforcement(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "OwnerReferencesPermissionEnforcement";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.validate = [environment](AdmissionRequest& request) {
    return CheckOwners(environment, request);
  };
  return plugin;
}

AdmissionPlugin CertificateRequests(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "CertificateApproval,CertificateSigning,CertificateSubjectRestriction";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.validate = [environment](AdmissionRequest& request) {
    return CheckCertificates(environment, request);
  };
  return plugin;
}

}  // namespace sublet::apiserver
