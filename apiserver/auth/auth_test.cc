// Who asks and what they may: tokens, authentication, impersonation, RBAC, escalation, reviews.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <nlohmann/json.hpp>

#include "apiserver/auth/base64url.h"
#include "apiserver/auth/certificates.h"
#include "apiserver/auth/default_policy.h"
#include "apiserver/auth/impersonation.h"
#include "apiserver/auth/openssl_ptr.h"
#include "apiserver/auth/reviews.h"

namespace sublet::apiserver {
namespace {

using kube::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FakeObjects final : public TokenObjects {
 public:
  std::optional<LiveObject> Find(std::string_view resource, std::string_view namespace_name,
                                 std::string_view name) const override {
    const auto found = objects.find(std::string(resource) + "/" + std::string(namespace_name) +
                                    "/" + std::string(name));
    return found == objects.end() ? std::nullopt : std::optional(found->second);
  }
  std::map<std::string, LiveObject> objects;
};

class FakeRbac final : public RbacSource {
 public:
  bool HasChanges() const override { return !changes.empty(); }
  void Drain(std::vector<RbacChange>& out, bool*) override { out = std::exchange(changes, {}); }
  void Put(const Json& object) {
    RbacChange change;
    const auto kind = kube::FindString(object, {"kind"});
    change.kind = kind == "ClusterRole"          ? RbacChange::Kind::kClusterRole
                  : kind == "Role"               ? RbacChange::Kind::kRole
                  : kind == "ClusterRoleBinding" ? RbacChange::Kind::kClusterRoleBinding
                                                 : RbacChange::Kind::kRoleBinding;
    change.name = kube::FindString(object, {"metadata", "name"});
    change.namespace_name = kube::FindString(object, {"metadata", "namespace"});
    change.object = std::make_shared<const Json>(object);
    changes.push_back(std::move(change));
  }
  std::vector<RbacChange> changes;
};

Json Role(const char* kind, const char* name, const char* ns, Json rules) {
  Json role = {{"kind", kind}, {"metadata", {{"name", name}}}, {"rules", std::move(rules)}};
  if (*ns != '\0') {
    role["metadata"]["namespace"] = ns;
  }
  return role;
}

Json Binding(const char* kind, const char* name, const char* ns, const char* role_kind,
             const char* role, Json subject) {
  Json binding = {{"kind", kind},
                  {"metadata", {{"name", name}}},
                  {"roleRef", {{"kind", role_kind}, {"name", role}}},
                  {"subjects", {std::move(subject)}}};
  if (*ns != '\0') {
    binding["metadata"]["namespace"] = ns;
  }
  return binding;
}

class TokenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    key_ = JwtKey::FromPem(MakePrivateKey().value()).value();
    objects_.objects["serviceaccounts/ns/app"] = {"sa-uid", std::nullopt, ""};
    objects_.objects["pods/ns/p"] = {"pod-uid", std::nullopt, "node1"};
    objects_.objects["nodes//node1"] = {"node-uid", std::nullopt, ""};
    tokens_ = std::make_unique<ServiceAccountTokens>(
        TokenServiceOptions{}, std::vector<std::shared_ptr<const JwtKey>>{key_}, objects_, clock_);
  }
  std::string Ask(Json spec = Json::object()) {
    const auto made = tokens_->Request("ns", "app", {{"spec", std::move(spec)}});
    return made.ok() ? (*made)["status"]["token"].get<std::string>() : made.error().message();
  }

  FakeClock clock_;
  FakeObjects objects_;
  std::shared_ptr<const JwtKey> key_;
  std::unique_ptr<ServiceAccountTokens> tokens_;
};

TEST_F(TokenTest, ABoundTokenNamesItsAccountItsPodAndItsNode) {
  const auto user = tokens_->Authenticate(
      Ask({{"boundObjectRef", {{"kind", "Pod"}, {"name", "p"}, {"uid", "pod-uid"}}}}));
  ASSERT_TRUE(user.ok()) << user.error().message();
  EXPECT_EQ(user->name, "system:serviceaccount:ns:app");
  EXPECT_EQ(user->uid, "sa-uid");
  EXPECT_THAT(user->groups, ElementsAre("system:serviceaccounts", "system:serviceaccounts:ns"));
  EXPECT_THAT(user->extra.at("authentication.kubernetes.io/pod-name"), ElementsAre("p"));
  EXPECT_THAT(user->extra.at("authentication.kubernetes.io/node-name"), ElementsAre("node1"));
  EXPECT_THAT(user->extra.at("authentication.kubernetes.io/node-uid"), ElementsAre("node-uid"));
  EXPECT_TRUE(user->extra.contains("authentication.kubernetes.io/credential-id"));
}

TEST_F(TokenTest, ATokenDiesWithItsAccountItsPodAndItsTime) {
  const std::string bound = Ask({{"boundObjectRef", {{"kind", "Pod"}, {"name", "p"}}}});
  const std::string plain = Ask();
  ASSERT_TRUE(tokens_->Authenticate(bound).ok());
  objects_.objects["pods/ns/p"].deleted_at = clock_.Now();
  EXPECT_TRUE(tokens_->Authenticate(bound).ok()) << "a minute to shut down";
  clock_.Advance(std::chrono::seconds(61));
  EXPECT_THAT(tokens_->Authenticate(bound).error().message(), HasSubstr("is deleted"));
  objects_.objects["pods/ns/p"] = {"other-uid", std::nullopt, ""};
  EXPECT_THAT(tokens_->Authenticate(bound).error().message(), HasSubstr("not the one"));
  EXPECT_TRUE(tokens_->Authenticate(plain).ok());
  clock_.Advance(std::chrono::hours(1));
  EXPECT_THAT(tokens_->Authenticate(plain).error().message(), HasSubstr("expired"));
  objects_.objects.clear();
  EXPECT_THAT(tokens_->Authenticate(tokens_->MakeLegacyToken("ns", "app", "sa-uid", "s").value())
                  .error()
                  .message(),
              HasSubstr("does not exist"));
}

TEST_F(TokenTest, ALegacyTokenLivesAsLongAsItsSecret) {
  const std::string token = tokens_->MakeLegacyToken("ns", "app", "sa-uid", "s").value();
  EXPECT_FALSE(tokens_->Authenticate(token).ok());
  objects_.objects["secrets/ns/s"] = {"u", std::nullopt, ""};
  clock_.Advance(std::chrono::hours(24 * 3650));
  EXPECT_TRUE(tokens_->Authenticate(token).ok());
}

TEST_F(TokenTest, AudiencesMustMeet) {
  const std::string vault = Ask({{"audiences", {"vault"}}});
  EXPECT_FALSE(tokens_->Authenticate(vault).ok());
  std::vector<std::string> matched;
  EXPECT_TRUE(tokens_->Authenticate(vault, {"other", "vault"}, &matched).ok());
  EXPECT_THAT(matched, ElementsAre("vault"));
}

TEST_F(TokenTest, ForgedTokensAreRefused) {
  const std::string token = Ask();
  EXPECT_FALSE(tokens_->Authenticate("").ok());
  EXPECT_FALSE(tokens_->Authenticate("a.b.c").ok());
  EXPECT_FALSE(tokens_->Authenticate(token + "A").ok());
  EXPECT_FALSE(tokens_->Authenticate(token + ".x").ok());
  const auto first = token.find('.');
  const auto second = token.find('.', first + 1);
  // Other claims under the same signature.
  auto claims = DecodeBase64Url(token.substr(first + 1, second - first - 1)).value();
  claims.replace(claims.find("\"app\""), 5, "\"bpp\"");
  EXPECT_FALSE(tokens_
                   ->Authenticate(token.substr(0, first + 1) + EncodeBase64Url(claims) +
                                  token.substr(second))
                   .ok());
  // "alg": "none" and the key confused with a shared secret.
  for (const char* algorithm : {"none", "HS256"}) {
    const std::string header =
        R"({"alg":")" + std::string(algorithm) + R"(","kid":")" + key_->id() + "\"}";
    EXPECT_FALSE(tokens_->Authenticate(EncodeBase64Url(header) + token.substr(first)).ok());
  }
  // Another key.
  const ServiceAccountTokens others({}, {JwtKey::FromPem(MakePrivateKey().value()).value()},
                                    objects_, clock_);
  EXPECT_FALSE(others.Authenticate(token).ok());
}

TEST_F(TokenTest, RequestsAreValidated) {
  EXPECT_THAT(Ask({{"expirationSeconds", 60}}),
              HasSubstr("may not specify a duration less than 10 minutes"));
  EXPECT_EQ(tokens_->Request("ns", "none", Json::object()).error().reason(), Reason::kNotFound);
  EXPECT_EQ(
      tokens_
          ->Request("ns", "app", {{"spec", {{"boundObjectRef", {{"kind", "Pod"}, {"name", "q"}}}}}})
          .error()
          .reason(),
      Reason::kNotFound);
  EXPECT_EQ(tokens_
                ->Request("ns", "app",
                          {{"spec",
                            {{"boundObjectRef", {{"kind", "Pod"}, {"name", "p"}, {"uid", "x"}}}}}})
                .error()
                .reason(),
            Reason::kConflict);
}

TEST_F(TokenTest, TheDiscoveryDocumentsLetOthersVerify) {
  const Json document = Json::parse(tokens_->DiscoveryDocument("https://1.2.3.4:6443"));
  EXPECT_EQ(document["issuer"], "https://kubernetes.default.svc.cluster.local");
  EXPECT_EQ(document["jwks_uri"], "https://1.2.3.4:6443/openid/v1/jwks");
  EXPECT_EQ(document["id_token_signing_alg_values_supported"], Json({"ES256"}));
  const Json keys = Json::parse(tokens_->KeysDocument());
  EXPECT_EQ(keys["keys"][0]["kid"], key_->id());
  EXPECT_EQ(DecodeBase64Url(keys["keys"][0]["x"].get<std::string>())->size(), 32u);
}

TEST(Jwt, RsaKeysSignAndVerifyAndPublicOnesOnlyVerify) {
  const KeyPtr rsa(EVP_RSA_gen(2048));
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), rsa.get(), nullptr, nullptr, 0, nullptr, nullptr);
  const auto key = JwtKey::FromPem(BioText(bio.get())).value();
  EXPECT_EQ(key->algorithm(), "RS256");
  const std::string token = key->Sign({{"sub", "x"}}).value();
  const auto parsed = ParseJwt(token).value();
  EXPECT_TRUE(key->Verify(parsed.signed_text, parsed.signature));
  EXPECT_FALSE(key->Verify(token, parsed.signature));
  EXPECT_EQ(key->ToJwk()["kty"], "RSA");
  EXPECT_EQ(key->ToJwk()["e"], "AQAB");
  const std::string pem = MakePrivateKey().value();
  const auto public_key = JwtKey::FromPem(PublicKeyOf(pem).value()).value();
  EXPECT_EQ(public_key->id(), JwtKey::FromPem(pem).value()->id());
  EXPECT_FALSE(public_key->Sign({}).ok());
  EXPECT_FALSE(JwtKey::FromPem("nonsense").ok());
}

class AuthenticatorTest : public TokenTest {
 protected:
  Result<User> Run(std::vector<std::pair<std::string, std::string>> headers,
                   const std::function<void(Request&)>& change = {}) {
    AuthenticatorOptions options;
    options.static_tokens["secret"] = {"jane", "7", {"devs"}, {}};
    const Authenticator authenticator(std::move(options), tokens_.get());
    Request request;
    request.headers = std::move(headers);
    if (change) {
      change(request);
    }
    SUBLET_RETURN_IF_ERROR(authenticator.Authenticate(request));
    EXPECT_TRUE(request.Header("authorization").empty());
    return request.user;
  }
};

TEST_F(AuthenticatorTest, EveryCredentialFindsItsUser) {
  EXPECT_EQ(Run({{"authorization", "Bearer secret"}})->name, "jane");
  EXPECT_THAT(Run({{"authorization", "bearer   secret"}})->groups,
              ElementsAre("devs", "system:authenticated"));
  EXPECT_EQ(Run({{"authorization", "Bearer " + Ask()}})->name, "system:serviceaccount:ns:app");
  EXPECT_EQ(
      Run({{"sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io." +
                                          EncodeBase64Url("secret")}})
          ->name,
      "jane");
  const auto by_certificate = Run({}, [](Request& request) {
    request.tls_common_name = "admin";
    request.tls_organizations = {"system:masters"};
    request.tls_fingerprint = "ab12";
  });
  EXPECT_THAT(by_certificate->extra.at("authentication.kubernetes.io/credential-id"),
              ElementsAre("X509SHA256=ab12"));
  EXPECT_EQ(by_certificate->name, "admin");
  EXPECT_THAT(by_certificate->groups, ElementsAre("system:masters", "system:authenticated"));
  const auto nobody = Run({});
  EXPECT_EQ(nobody->name, "system:anonymous");
  EXPECT_THAT(nobody->groups, ElementsAre("system:unauthenticated"));
}

TEST_F(AuthenticatorTest, BadCredentialsAreRefusedNotTakenForNone) {
  EXPECT_EQ(Run({{"authorization", "Bearer wrong"}}).error().code(), 401);
  EXPECT_EQ(
      Run({}, [](Request& request) { request.tls_certificate_rejected = true; }).error().message(),
      "Unauthorized");
  // A good token beside a rejected certificate counts.
  EXPECT_TRUE(Run({{"authorization", "Bearer secret"}}, [](Request& request) {
                request.tls_certificate_rejected = true;
              }).ok());
}

class RbacTest : public ::testing::Test {
 protected:
  RbacTest() : authorizer_(source_) {}
  Decision Ask(const char* user, const char* verb, const char* group, const char* resource,
               const char* ns = "", const char* name = "", const char* subresource = "") {
    const User asked{user, "", {"system:authenticated"}, {}};
    return authorizer_.Authorize({.user = &asked,
                                  .verb = verb,
                                  .group = group,
                                  .resource = resource,
                                  .subresource = subresource,
                                  .namespace_name = ns,
                                  .name = name},
                                 true);
  }
  bool AskPath(const char* user, const char* path) {
    const User asked{user, "", {"system:unauthenticated"}, {}};
    return authorizer_
        .Authorize({.user = &asked, .verb = "get", .is_resource = false, .path = path})
        .allowed;
  }
  void Grant(const char* user, Json rules, const char* ns = "") {
    const bool local = *ns != '\0';
    source_.Put(Role(local ? "Role" : "ClusterRole", user, ns, std::move(rules)));
    source_.Put(Binding(local ? "RoleBinding" : "ClusterRoleBinding", user, ns,
                        local ? "Role" : "ClusterRole", user, {{"kind", "User"}, {"name", user}}));
  }

  FakeRbac source_;
  Authorizer authorizer_;
};

Json ResourceRule(Json verbs, Json groups, Json resources, Json names = Json::array()) {
  return Json{{"verbs", std::move(verbs)},
              {"apiGroups", std::move(groups)},
              {"resources", std::move(resources)},
              {"resourceNames", std::move(names)}};
}

TEST_F(RbacTest, RulesMatchAsInKubernetes) {
  Grant("reader", {ResourceRule({"get", "list"}, {""}, {"pods", "pods/log"}),
                   ResourceRule({"*"}, {"apps"}, {"*/scale"}),
                   ResourceRule({"get"}, {""}, {"secrets"}, {"one"}),
                   Json{{"verbs", {"get"}}, {"nonResourceURLs", {"/logs/*", "/version"}}}});
  EXPECT_TRUE(Ask("reader", "get", "", "pods", "a").allowed);
  EXPECT_TRUE(Ask("reader", "list", "", "pods").allowed);
  EXPECT_FALSE(Ask("reader", "watch", "", "pods").allowed);
  EXPECT_FALSE(Ask("reader", "get", "apps", "pods").allowed);
  EXPECT_TRUE(Ask("reader", "get", "", "pods", "a", "p", "log").allowed);
  EXPECT_FALSE(Ask("reader", "get", "", "pods", "a", "p", "exec").allowed);
  EXPECT_TRUE(Ask("reader", "update", "apps", "deployments", "a", "d", "scale").allowed);
  EXPECT_FALSE(Ask("reader", "update", "apps", "deployments", "a", "d").allowed);
  EXPECT_TRUE(Ask("reader", "get", "", "secrets", "a", "one").allowed);
  EXPECT_FALSE(Ask("reader", "get", "", "secrets", "a", "two").allowed);
  EXPECT_FALSE(Ask("reader", "list", "", "secrets", "a").allowed);
  EXPECT_FALSE(AskPath("reader", "/logs"));
  EXPECT_TRUE(AskPath("reader", "/logs/x"));
  EXPECT_TRUE(AskPath("reader", "/version"));
  EXPECT_EQ(Ask("reader", "get", "", "pods").reason,
            "RBAC: allowed by ClusterRoleBinding \"reader\" of ClusterRole \"reader\" to User "
            "\"reader\"");
}

TEST_F(RbacTest, ARoleBindingCountsInItsNamespaceOnly) {
  Grant("local", Json::array({ResourceRule({"get"}, {""}, {"pods"})}), "a");
  source_.Put(Binding("RoleBinding", "sa", "a", "Role", "local",
                      {{"kind", "ServiceAccount"}, {"name", "app"}}));
  EXPECT_TRUE(Ask("local", "get", "", "pods", "a").allowed);
  EXPECT_FALSE(Ask("local", "get", "", "pods", "b").allowed);
  EXPECT_FALSE(Ask("local", "get", "", "pods").allowed);
  EXPECT_TRUE(Ask("system:serviceaccount:a:app", "get", "", "pods", "a").allowed);
}

TEST_F(RbacTest, ChangesCountAtOnceAndMissingRolesAreNamed) {
  EXPECT_FALSE(Ask("late", "get", "", "pods").allowed);
  source_.Put(Binding("ClusterRoleBinding", "b", "", "ClusterRole", "gone",
                      {{"kind", "User"}, {"name", "late"}}));
  EXPECT_EQ(Ask("late", "get", "", "pods").reason,
            "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found");
  source_.Put(
      Role("ClusterRole", "gone", "", Json::array({ResourceRule({"get"}, {""}, {"pods"})})));
  EXPECT_TRUE(Ask("late", "get", "", "pods").allowed);
  RbacChange removed;
  removed.kind = RbacChange::Kind::kClusterRoleBinding;
  removed.name = "b";
  source_.changes.push_back(removed);
  EXPECT_FALSE(Ask("late", "get", "", "pods").allowed);
}

TEST_F(RbacTest, NodesReadWhatTheirPodsUse) {
  class Graph final : public NodeGraph {
   public:
    bool NodeUses(std::string_view node, std::string_view resource, std::string_view ns,
                  std::string_view name) const override {
      return node == "n1" && resource == "secrets" && ns == "a" && name == "used";
    }
  } graph;
  const Authorizer authorizer(source_, &graph);
  const User node{"system:node:n1", "", {"system:nodes"}, {}};
  const User other{"system:node:n2", "", {"system:nodes"}, {}};
  const auto secret = [&](const User& user, const char* verb, const char* name) {
    return authorizer.Allows(
        {.user = &user, .verb = verb, .resource = "secrets", .namespace_name = "a", .name = name});
  };
  EXPECT_TRUE(secret(node, "get", "used"));
  EXPECT_FALSE(secret(node, "get", "other"));
  EXPECT_FALSE(secret(node, "list", ""));
  EXPECT_FALSE(secret(node, "update", "used"));
  EXPECT_FALSE(secret(other, "get", "used"));
  EXPECT_TRUE(authorizer.Allows({.user = &node, .verb = "create", .resource = "nodes"}));
  EXPECT_FALSE(authorizer.Allows({.user = &node, .verb = "delete", .resource = "namespaces"}));
}

TEST_F(RbacTest, TheDefaultPolicyGivesKubernetesRights) {
  for (const Json& object : DefaultRbacObjects()) {
    source_.Put(object);
  }
  EXPECT_TRUE(AskPath("system:anonymous", "/version"));
  EXPECT_TRUE(AskPath("system:anonymous", "/readyz"));
  EXPECT_FALSE(AskPath("system:anonymous", "/api"));
  EXPECT_TRUE(Ask("jane", "create", "authorization.k8s.io", "selfsubjectaccessreviews").allowed);
  EXPECT_FALSE(Ask("jane", "list", "", "pods", "a").allowed);
  source_.Put(Binding("RoleBinding", "edit", "a", "ClusterRole", "edit",
                      {{"kind", "User"}, {"name", "jane"}}));
  source_.Put(Binding("RoleBinding", "admin", "a", "ClusterRole", "admin",
                      {{"kind", "User"}, {"name", "bob"}}));
  EXPECT_TRUE(Ask("jane", "create", "apps", "deployments", "a").allowed) << "aggregated";
  EXPECT_TRUE(Ask("jane", "list", "", "pods", "a").allowed);
  EXPECT_FALSE(Ask("jane", "create", "rbac.authorization.k8s.io", "roles", "a").allowed);
  EXPECT_TRUE(Ask("bob", "create", "rbac.authorization.k8s.io", "roles", "a").allowed);
  EXPECT_TRUE(
      Ask("system:serviceaccount:kube-system:replicaset-controller", "create", "", "pods", "x")
          .allowed);
  EXPECT_EQ(DefaultRbacObjects().size(), 133u);
}

TEST(DefaultPolicy, ReconcilingAddsWhatIsMissingUnlessSwitchedOff) {
  const Json wanted = DefaultRbacObjects()[1];
  EXPECT_FALSE(ReconcileDefault(wanted, wanted).has_value());
  Json stored = wanted;
  stored["rules"] = Json::array({ResourceRule({"get"}, {"x"}, {"y"})});
  const auto changed = ReconcileDefault(stored, wanted);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ((*changed)["rules"].size(), 1 + wanted["rules"].size());
  stored["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "false";
  EXPECT_FALSE(ReconcileDefault(stored, wanted).has_value());
}

TEST_F(RbacTest, NobodyGrantsWhatTheyDoNotHold) {
  Grant("limited",
        {ResourceRule({"get", "list"}, {""}, {"pods"}),
         ResourceRule({"*"}, {"rbac.authorization.k8s.io"}, {"roles"})},
        "a");
  const User user{"limited", "", {"system:authenticated"}, {}};
  const Json small = Role("Role", "r", "a", Json::array({ResourceRule({"get"}, {""}, {"pods"})}));
  EXPECT_TRUE(authorizer_.CheckRoleWrite(user, small, nullptr).ok())
      << "escalate is among the verbs of *";
  Grant("limited", Json::array({ResourceRule({"get", "list"}, {""}, {"pods"})}), "a");
  EXPECT_TRUE(authorizer_.CheckRoleWrite(user, small, nullptr).ok());
  const Json large =
      Role("Role", "r", "a",
           Json::array({ResourceRule({"get", "delete", "watch"}, {""}, {"pods", "secrets"})}));
  EXPECT_EQ(authorizer_.CheckRoleWrite(user, large, nullptr).error().message(),
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"limited\" "
            "(groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not "
            "currently held:\n"
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}\n"
            "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\" \"watch\"]}");
  EXPECT_TRUE(authorizer_.CheckRoleWrite(user, large, &large).ok()) << "unchanged rules";
  source_.Put(Role("ClusterRole", "big", "", Json::array({ResourceRule({"*"}, {"*"}, {"*"})})));
  const Json binding = Binding("RoleBinding", "b", "a", "ClusterRole", "big",
                               {{"kind", "User"}, {"name", "limited"}});
  EXPECT_EQ(authorizer_.CheckBindingWrite(user, binding, nullptr).error().code(), 403);
  Json missing = binding;
  missing["roleRef"]["name"] = "none";
  EXPECT_EQ(authorizer_.CheckBindingWrite(user, missing, nullptr).error().code(), 404);
  Grant("binder", Json::array({ResourceRule({"bind"}, {"rbac.authorization.k8s.io"},
                                            {"clusterroles"}, {"big"})}));
  const User binder{"binder", "", {}, {}};
  EXPECT_TRUE(authorizer_.CheckBindingWrite(binder, binding, nullptr).ok());
  const User master{"root", "", {"system:masters"}, {}};
  EXPECT_TRUE(authorizer_.CheckBindingWrite(master, binding, nullptr).ok());
}

TEST_F(RbacTest, RefusalsHaveKubernetesTexts) {
  const User user{"u", "", {}, {}};
  const auto text = [&](Attributes attributes, std::string_view reason = "") {
    attributes.user = &user;
    return ForbiddenStatus(attributes, reason).message();
  };
  EXPECT_EQ(text({.verb = "get", .resource = "pods", .namespace_name = "ns", .name = "p"}),
            "pods \"p\" is forbidden: User \"u\" cannot get resource \"pods\" in API group \"\" in "
            "the namespace \"ns\"");
  EXPECT_EQ(text({.verb = "list", .group = "apps", .resource = "deployments"}),
            "deployments.apps is forbidden: User \"u\" cannot list resource \"deployments\" in API "
            "group \"apps\" at the cluster scope");
  EXPECT_EQ(text({.verb = "create",
                  .resource = "pods",
                  .subresource = "exec",
                  .namespace_name = "ns",
                  .name = "p"},
                 "why"),
            "pods \"p\" is forbidden: User \"u\" cannot create resource \"pods/exec\" in API group "
            "\"\" in the namespace \"ns\": why");
  EXPECT_EQ(text({.verb = "get", .is_resource = false, .path = "/x"}),
            "forbidden: User \"u\" cannot get path \"/x\"");
}

TEST_F(RbacTest, ImpersonationNeedsTheRightForEachPart) {
  Grant("boss", {ResourceRule({"impersonate"}, {""}, {"users"}, {"jane"}),
                 ResourceRule({"impersonate"}, {""}, {"groups"}, {"devs"}),
                 ResourceRule({"impersonate"}, {""}, {"serviceaccounts"}),
                 ResourceRule({"impersonate"}, {"authentication.k8s.io"}, {"userextras/scopes"})});
  const auto run = [&](std::vector<std::pair<std::string, std::string>> headers) {
    Request request;
    request.user = {"boss", "", {"system:authenticated"}, {}};
    request.headers = std::move(headers);
    auto result = Impersonate(request, authorizer_);
    return result.ok() ? Result<User>(request.user) : Result<User>(result.error());
  };
  const auto jane = run({{"impersonate-user", "jane"},
                         {"impersonate-group", "devs"},
                         {"impersonate-extra-scopes", "view"}});
  ASSERT_TRUE(jane.ok()) << jane.error().message();
  EXPECT_EQ(jane->name, "jane");
  EXPECT_THAT(jane->groups, ElementsAre("devs", "system:authenticated"));
  EXPECT_THAT(jane->extra.at("scopes"), ElementsAre("view"));
  EXPECT_THAT(
      run({{"impersonate-user", "system:serviceaccount:a:b"}})->groups,
      ElementsAre("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"));
  EXPECT_EQ(run({{"impersonate-user", "root"}}).error().message(),
            "users \"root\" is forbidden: User \"boss\" cannot impersonate resource \"users\" in "
            "API group \"\" at the cluster scope");
  EXPECT_EQ(
      run({{"impersonate-user", "jane"}, {"impersonate-group", "system:masters"}}).error().code(),
      403);
  EXPECT_EQ(run({{"impersonate-user", "jane"}, {"impersonate-extra-other", "x"}}).error().code(),
            403);
  EXPECT_EQ(run({{"impersonate-group", "devs"}}).error().code(), 400);
}

TEST_F(RbacTest, ReviewsAnswerWhatTheAuthorizerWould) {
  Grant("jane", Json::array({ResourceRule({"get"}, {""}, {"pods"})}), "a");
  const Authenticator authenticator({{{"t0ken", {"jane", "", {"devs"}, {}}}}, true}, nullptr);
  const AccessReviews reviews(authorizer_, authenticator);
  const User jane{"jane", "", {"devs"}, {}};
  const Json asked = {
      {"spec",
       {{"resourceAttributes", {{"verb", "get"}, {"resource", "pods"}, {"namespace", "a"}}}}}};
  EXPECT_EQ((*reviews.SelfSubjectAccess(asked, jane))["status"]["allowed"], true);
  Json other = asked;
  other["spec"]["user"] = "bob";
  EXPECT_EQ((*reviews.SubjectAccess(other))["status"]["allowed"], false);
  EXPECT_EQ(reviews.SubjectAccess(asked).error().code(), 422);
  EXPECT_EQ(reviews.LocalSubjectAccess(other, "b").error().code(), 422);
  EXPECT_TRUE(reviews.LocalSubjectAccess(other, "a").ok());
  EXPECT_EQ(reviews.SelfSubjectAccess({{"spec", Json::object()}}, jane).error().code(), 422);
  const Json rules = reviews.SelfSubjectRules({{"spec", {{"namespace", "a"}}}}, jane).value();
  EXPECT_EQ(rules["status"]["resourceRules"][0]["resources"], Json({"pods"}));
  EXPECT_EQ(rules["status"]["incomplete"], false);
  EXPECT_EQ((*reviews.SelfSubject({}, jane))["status"]["userInfo"]["username"], "jane");
  const Json good = reviews.Token({{"spec", {{"token", "t0ken"}}}}).value();
  EXPECT_EQ(good["status"]["authenticated"], true);
  EXPECT_EQ(good["status"]["user"]["groups"], Json({"devs", "system:authenticated"}));
  EXPECT_FALSE(
      (*reviews.Token({{"spec", {{"token", "bad"}}}}))["status"].contains("authenticated"));
}

}  // namespace
}  // namespace sublet::apiserver
