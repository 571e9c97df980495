#include "controllers/namespace_contents.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::string_view kTokenType = "kubernetes.io/service-account-token";
constexpr std::string_view kAccountName = "kubernetes.io/service-account.name";
constexpr std::string_view kAccountUid = "kubernetes.io/service-account.uid";
constexpr char kRootCa[] = "kube-root-ca.crt";
// Secret tokens do not expire; ten years is what the token endpoint is asked for instead.
constexpr std::int64_t kTokenSeconds = 10LL * 365 * 24 * 3600;

// A namespace that is going away refuses new content; that is no failure.
Result<Outcome> DoneUnlessFailed(const Result<Json>& written) {
  if (written.ok() || written.error().Is(Reason::kAlreadyExists) ||
      written.error().Is(Reason::kNotFound) || written.error().Is(Reason::kForbidden)) {
    return Outcome::Done();
  }
  return written.error();
}

// One object per namespace, made again whenever it is missing.
class ServiceAccountController final : public Controller {
 public:
  explicit ServiceAccountController(const Context& context)
      : namespaces_(context, kNamespaces),
        accounts_(context, kServiceAccounts),
        queue_(context.manager.Add(
            {.name = "serviceaccount",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&namespaces_.informer(), &accounts_.informer()}})) {
    RouteNamespaces(namespaces_, queue_);
    accounts_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (!after && before->key.name == "default") {
        queue_.Add({"", before->key.namespace_name});
      }
    });
  }

  static void RouteNamespaces(const Collection& namespaces, client::WorkQueue& queue) {
    namespaces.informer().AddHandler([&queue](const ObjectPtr&, const ObjectPtr& after) {
      if (after && !after->deleting()) {
        queue.Add(after->key);
      }
    });
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr name = namespaces_.Find(key);
    if (!name || name->deleting() || accounts_.Find({key.name, "default"})) {
      return Outcome::Done();
    }
    return DoneUnlessFailed(
        accounts_.Create(key.name, {{"metadata", {{"name", "default"}, {"namespace", key.name}}}}));
  }

  const Collection namespaces_;
  const Collection accounts_;
  client::WorkQueue& queue_;
};

class RootCaController final : public Controller {
 public:
  explicit RootCaController(const Context& context)
      : root_ca_pem_(context.settings.root_ca_pem),
        namespaces_(context, kNamespaces),
        // Only these: no ConfigMap of a user is kept by this controller.
        informer_(
            context.informers.For({.resource = kConfigMaps.resource,
                                   .kind = kConfigMaps.kind,
                                   .field_selector = std::string("metadata.name=") + kRootCa})),
        client_(context.client),
        queue_(context.manager.Add(
            {.name = "root-ca",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&namespaces_.informer(), &informer_}})) {
    ServiceAccountController::RouteNamespaces(namespaces_, queue_);
    informer_.AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      queue_.Add({"", (after ? after : before)->key.namespace_name});
    });
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr name = namespaces_.Find(key);
    if (!name || name->deleting() || root_ca_pem_.empty()) {
      return Outcome::Done();
    }
    const client::Target target{kConfigMaps.resource, key.name, kRootCa, ""};
    const ObjectPtr cached = informer_.Get({key.name, kRootCa});
    if (!cached) {
      return DoneUnlessFailed(client_.Create(
          target,
          {{"apiVersion", "v1"},
           {"kind", "ConfigMap"},
           {"metadata",
            {{"name", kRootCa},
             {"namespace", key.name},
             {"annotations",
              {{"kubernetes.io/description",
                "Contains a CA bundle that can be used to verify the kube-apiserver when using "
                "internal endpoints such as the internal service IP or kubernetes.default.svc. No "
                "other usage is guaranteed across distributions of Kubernetes clusters."}}}}},
           {"data", {{"ca.crt", root_ca_pem_}}}}));
    }
    SUBLET_TRY(Json object, cached->Parse());
    if (object.value("data", Json()) == Json({{"ca.crt", root_ca_pem_}})) {
      return Outcome::Done();
    }
    object["data"] = {{"ca.crt", root_ca_pem_}};
    object.erase("binaryData");
    return DoneUnlessFailed(client_.Update(target, object));
  }

  const std::string root_ca_pem_;
  const Collection namespaces_;
  client::Informer& informer_;
  const client::Client client_;
  client::WorkQueue& queue_;
};

// Charts still use token Secrets: filled when the account exists, removed when it goes away.
class TokenSecretController final : public Controller {
 public:
  explicit TokenSecretController(const Context& context)
      : root_ca_pem_(context.settings.root_ca_pem),
        client_(context.client),
        accounts_(context, kServiceAccounts),
        secrets_(context.informers.For({.resource = kSecrets.resource,
                                        .kind = kSecrets.kind,
                                        .field_selector = "type=" + std::string(kTokenType)})),
        queue_(context.manager.Add(
            {.name = "token-secret",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&accounts_.informer(), &secrets_}})) {
    secrets_.AddHandler([this](const ObjectPtr&, const ObjectPtr& after) {
      if (after) {
        queue_.Add(after->key);
      }
    });
    accounts_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      for (const ObjectPtr& secret :
           secrets_.ListNamespace((after ? after : before)->key.namespace_name)) {
        queue_.Add(secret->key);
      }
    });
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = secrets_.Get(key);
    if (!cached || cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json secret, cached->Parse());
    const std::string account(kube::AnnotationOf(secret, kAccountName));
    const client::Target target{kSecrets.resource, key.namespace_name, key.name, ""};
    const ObjectPtr owner = accounts_.Find({key.namespace_name, account});
    const std::string_view uid = kube::AnnotationOf(secret, kAccountUid);
    if (!owner || (!uid.empty() && uid != owner->uid)) {
      // Not created yet is different from gone: only a Secret that had a token is taken away.
      if (uid.empty()) {
        return Outcome::Done();
      }
      return DoneUnlessFailed(client_.Delete(target, {.uid = cached->uid}));
    }
    const Json* data = kube::Find(secret, {"data"});
    if (data != nullptr && data->contains("token") && data->contains("ca.crt") &&
        data->contains("namespace")) {
      return Outcome::Done();
    }
    SUBLET_TRY(const Json review,
               client_.Create({kServiceAccounts.resource, key.namespace_name, account, "token"},
                              {{"apiVersion", "authentication.k8s.io/v1"},
                               {"kind", "TokenRequest"},
                               {"spec",
                                {{"expirationSeconds", kTokenSeconds},
                                 {"boundObjectRef",
                                  {{"apiVersion", "v1"},
                                   {"kind", "Secret"},
                                   {"name", key.name},
                                   {"uid", cached->uid}}}}}}));
    kube::SetAnnotation(&secret, kAccountUid, owner->uid);
    Json& out = kube::EnsureObject(&secret, "data");
    out["token"] = EncodeBase64(kube::FindString(review, {"status", "token"}));
    out["ca.crt"] = EncodeBase64(root_ca_pem_);
    out["namespace"] = EncodeBase64(key.namespace_name);
    return DoneUnlessFailed(client_.Update(target, secret));
  }

  const std::string root_ca_pem_;
  const client::Client client_;
  const Collection accounts_;
  client::Informer& secrets_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeServiceAccountController(const Context& context) {
  return std::make_unique<ServiceAccountController>(context);
}
std::unique_ptr<Controller> MakeRootCaController(const Context& context) {
  return std::make_unique<RootCaController>(context);
}
std::unique_ptr<Controller> MakeTokenSecretController(const Context& context) {
  return std::make_unique<TokenSecretController>(context);
}

}  // namespace sublet::controllers
